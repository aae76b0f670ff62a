//! Tables as Markdown, for the documentation, and as columns of text.

use buddy_record::{Grid, GridCell};

use crate::{number, wrap};

/// Renders a table as Markdown; columns of numbers are right-aligned.
pub fn grid_markdown(grid: &Grid) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let right = |column: usize| {
        let figures = |cell: &GridCell| match cell {
            GridCell::Text(text) => text.starts_with(|c: char| c.is_ascii_digit()),
            _ => true,
        };
        column > 0 && grid.rows.iter().all(|row| row.get(column).is_none_or(figures))
    };
    let head = line(grid.columns.iter().map(|(name, _)| plain(name)).collect());
    let sides = (0..grid.columns.len()).map(|column| if right(column) { "---:" } else { "---" });
    let cell = |(cell, (_, unit)): (&GridCell, &(String, _))| match cell {
        GridCell::Number(value) => number(*unit, *value),
        GridCell::Text(text) => plain(text),
        GridCell::Empty => String::new(),
    };
    let row = |row: &Vec<GridCell>| line(row.iter().zip(&grid.columns).map(cell).collect());
    let rows: String = grid.rows.iter().map(row).collect();
    format!("{head}|{}|\n{rows}", sides.collect::<Vec<_>>().join("|"))
}

/// Renders a table as columns of text for a terminal; numbers are right-aligned.
fn grid_text(grid: &Grid) -> String {
    let (lines, widths) = text_rows(grid);
    let is_text = |column: usize| grid.rows.iter().any(|row| matches!(row[column], GridCell::Text(_)));
    let texts: Vec<bool> = (0..widths.len()).map(is_text).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).zip(&texts).map(|((cell, &width), &text)| match text {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let rule = "─".repeat(whole_width(&widths));
    format!("{}{rule}\n{}", line(&lines[0]), lines[1..].iter().map(line).collect::<String>())
}

/// Renders a table in at most `width` columns of text: omits `spare` columns in order, and names
/// them below.
pub fn grid_text_within(grid: &Grid, width: Option<usize>, spare: &[&str]) -> String {
    let Some(width) = width else { return grid_text(grid) };
    let (mut grid, mut left_out) = (grid.clone(), Vec::new());
    for name in spare {
        if whole_width(&text_rows(&grid).1) <= width {
            break;
        }
        let Some(at) = grid.columns.iter().position(|(other, _)| other == name) else { continue };
        grid.columns.remove(at);
        grid.rows.iter_mut().for_each(|row| drop(row.remove(at)));
        left_out.push(*name);
    }
    if left_out.is_empty() {
        return grid_text(&grid);
    }
    let note = format!("({width} columns have no room for: {})", left_out.join(", "));
    format!("{}{}\n", grid_text(&grid), wrap(&note, Some(width)))
}

/// Returns the headers and rows as texts, and the width of each column.
fn text_rows(grid: &Grid) -> (Vec<Vec<String>>, Vec<usize>) {
    let cell = |(cell, (_, unit)): (&GridCell, &(String, _))| match cell {
        GridCell::Number(value) => number(*unit, *value),
        GridCell::Text(text) => text.clone(),
        GridCell::Empty => "-".to_owned(),
    };
    let heads: Vec<String> = grid.columns.iter().map(|(name, _)| name.clone()).collect();
    let rows = grid.rows.iter().map(|row| row.iter().zip(&grid.columns).map(cell).collect());
    let lines: Vec<Vec<String>> = std::iter::once(heads).chain(rows).collect();
    let widest = |column: usize| lines.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = (0..grid.columns.len()).map(widest).collect();
    (lines, widths)
}

/// Returns the characters of a line, with two spaces between columns.
fn whole_width(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
}

/// Escapes a text for a table cell.
fn plain(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use buddy_record::Unit;

    use super::*;

    #[test]
    fn a_narrow_terminal_omits_and_names_spare_columns() {
        let columns =
            ["program", "speed", "cycles", "ipc"].map(|name| (name.to_owned(), Unit::Number)).into();
        let rows = vec![vec!["cg".into(), 1.0.into(), 2.0.into(), 3.0.into()]];
        let grid = Grid { title: String::new(), columns, rows };
        let within = |width| grid_text_within(&grid, width, &["ipc", "none", "cycles"]);
        assert_eq!(within(None), grid_text(&grid));
        assert_eq!(within(Some(27)), grid_text(&grid), "7 + 5 + 6 + 3 and three times two fit");
        let narrow = within(Some(26));
        let (head, note) =
            (narrow.lines().next().unwrap(), narrow.lines().skip(3).collect::<Vec<_>>().join(" "));
        assert_eq!((head, note.as_str()), ("program  speed  cycles", "(26 columns have no room for: ipc)"));
        assert!(within(Some(16)).starts_with("program  speed\n"), "{}", within(Some(16)));
    }

    #[test]
    fn numbers_have_units_and_are_right_aligned() {
        let columns = [("a|b", Unit::Number), ("ratio", Unit::Ratio), ("text", Unit::Number)];
        let columns = columns.map(|(name, unit)| (name.to_owned(), unit)).into();
        let rows =
            vec![vec!["x".into(), 1.5.into(), "2x: y".into()], vec!["y".into(), None.into(), "z".into()]];
        let text = grid_markdown(&Grid { title: String::new(), columns, rows });
        assert_eq!(text, "| a\\|b | ratio | text |\n|---|---:|---|\n| x | 1.50x | 2x: y |\n| y |  | z |\n");
    }

    #[test]
    fn a_terminal_gets_columns() {
        let columns = [("program", Unit::Number), ("speed", Unit::Ratio)];
        let columns = columns.map(|(name, unit)| (name.to_owned(), unit)).into();
        let rows = vec![vec!["cg".into(), 0.5.into()], vec!["lulesh".into(), None.into()]];
        let text = grid_text(&Grid { title: String::new(), columns, rows });
        assert_eq!(text, "program  speed\n──────────────\ncg       0.50x\nlulesh       -\n");
    }
}
