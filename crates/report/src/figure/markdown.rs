//! Tables as Markdown, for the pages of the documentation.

use buddy_core::{Grid, GridCell};

use crate::number;

/// A table as Markdown; columns of numbers and of what begins with one are set flush right.
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

/// A table in columns of text, for a terminal; numbers stand right.
pub fn grid_text(grid: &Grid) -> String {
    let cell = |(cell, (_, unit)): (&GridCell, &(String, _))| match cell {
        GridCell::Number(value) => number(*unit, *value),
        GridCell::Text(text) => text.clone(),
        GridCell::Empty => "-".to_owned(),
    };
    let heads: Vec<String> = grid.columns.iter().map(|(name, _)| name.clone()).collect();
    let rows: Vec<Vec<String>> =
        grid.rows.iter().map(|row| row.iter().zip(&grid.columns).map(cell).collect()).collect();
    let all = || std::iter::once(&heads).chain(&rows);
    let widths: Vec<usize> =
        (0..heads.len()).map(|i| all().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let is_text = |column: usize| grid.rows.iter().any(|row| matches!(row[column], GridCell::Text(_)));
    let texts: Vec<bool> = (0..heads.len()).map(is_text).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).zip(&texts).map(|((cell, &width), &text)| match text {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let rule = "─".repeat(widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1));
    format!("{}{rule}\n{}", line(&heads), rows.iter().map(line).collect::<String>())
}

/// A text that ends no cell.
fn plain(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use buddy_core::Unit;

    use super::*;

    #[test]
    fn numbers_have_their_unit_and_stand_right() {
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
