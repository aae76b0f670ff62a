//! Text for a terminal of a given width: wraps sentences, omits columns and shortens names of
//! tables.

use crate::{Cell, Table, names::shorten_apart};

/// Names are shortened to this many characters before columns are omitted.
const NAME_CHARS: usize = 28;
/// Minimum characters of a shortened name.
const LEAST_NAME: usize = 10;

/// Wraps lines at spaces to at most `width` characters; longer words stay whole.
pub fn wrap(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let line = |line: &str| {
        let mut lines: Vec<String> = vec![String::new()];
        for word in line.split(' ') {
            let last = lines.last_mut().expect("never empty");
            if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > width {
                lines.push(word.to_owned());
            } else {
                last.push_str(if last.is_empty() { "" } else { " " });
                last.push_str(word);
            }
        }
        lines.join("\n")
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

impl Table {
    /// Renders the table in at most `width` columns of text. Omits empty `spare` columns, then the
    /// others in order, then shortens the names in the first column such that they stay distinct.
    pub fn to_text_within(&self, width: Option<usize>, spare: &[&str]) -> String {
        let Some(width) = width else { return self.to_text() };
        let mut table = self.clone();
        let mut left_out: Vec<&str> = Vec::new();
        let (empty, full): (Vec<&str>, Vec<&str>) = spare.iter().partition(|name| self.is_empty_column(name));
        for name in empty.iter().chain(&full) {
            if table.others_width() + table.width_of(0).min(NAME_CHARS) <= width {
                break;
            }
            if table.remove_column(name) && full.contains(name) {
                left_out.push(name);
            }
        }
        table.shorten_names(width.saturating_sub(table.others_width()).max(LEAST_NAME));
        let mut text = table.to_text();
        if !left_out.is_empty() {
            let note = format!("({} columns have no room for: {})", width, left_out.join(", "));
            text.push_str(&wrap(&note, Some(width)));
            text.push('\n');
        }
        text
    }

    /// Removes those of these columns that are empty.
    #[must_use]
    pub fn without_empty(mut self, names: &[&str]) -> Self {
        for name in names {
            let says_nothing = |row: &Vec<Cell>, at: usize| row[at].shown().is_empty();
            let at = self.columns.iter().position(|column| column.name == *name);
            if at.is_some_and(|at| self.rows.iter().chain(&self.total).all(|row| says_nothing(row, at))) {
                self.remove_column(name);
            }
        }
        self
    }

    fn is_empty_column(&self, name: &str) -> bool {
        let Some(at) = self.columns.iter().position(|column| column.name == name) else { return true };
        self.rows.iter().chain(&self.total).all(|row| matches!(row[at].shown(), "" | "-"))
    }

    /// Removes a column; returns whether it existed.
    fn remove_column(&mut self, name: &str) -> bool {
        let Some(at) = self.columns.iter().position(|column| column.name == name) else { return false };
        self.columns.remove(at);
        self.rows.iter_mut().chain(&mut self.total).for_each(|row| drop(row.remove(at)));
        true
    }

    /// Returns the width of all columns but the first, with separators.
    fn others_width(&self) -> usize {
        (1..self.columns.len()).map(|column| self.width_of(column) + 2).sum()
    }

    fn shorten_names(&mut self, most: usize) {
        let names: Vec<String> = self.rows.iter().map(|row| row[0].shown().to_owned()).collect();
        for (row, name) in self.rows.iter_mut().zip(shorten_apart(&names, most)) {
            row[0] = Cell::text(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Align, Column};

    fn table() -> Table {
        let column = |name, align| Column { name, group: "", align };
        let row = |name: &str, kind: &str| {
            vec![Cell::text(name), Cell::text(kind), Cell::text("-"), Cell::text("1.00x")]
        };
        Table {
            columns: vec![
                column("name", Align::Left),
                column("kind", Align::Left),
                column("overflow", Align::Right),
                column("ratio", Align::Right),
            ],
            rows: vec![
                row("model.layers.[0-31].self_attn.q_proj.weight", "bf16"),
                row("model.layers.[0-31].self_attn.k_proj.weight", "bf16"),
            ],
            total: vec![row("all", "")],
        }
    }

    #[test]
    fn a_table_fits_and_names_omitted_columns() {
        for width in [20, 30, 40, 50, 60, 80] {
            let text = table().to_text_within(Some(width), &["kind", "overflow"]);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            let mut rows: Vec<&str> = text.lines().skip(2).take(2).collect();
            rows.dedup();
            assert_eq!(rows.len(), 2, "names stay apart:\n{text}");
            assert_eq!(
                text.replace('\n', " ").contains("no room for: kind"),
                width <= 40,
                "{width}:\n{text}"
            );
        }
        assert!(
            table().to_text_within(Some(48), &["kind", "overflow"]).contains("bf16"),
            "what is empty goes first"
        );
        assert_eq!(table().to_text_within(None, &["kind"]), table().to_text());
        assert!(!table().without_empty(&["kind", "none"]).to_text().contains("none"));
    }

    #[test]
    fn sentences_wrap_at_spaces() {
        assert_eq!(wrap("a bc def\n\nlonger", Some(4)), "a bc\ndef\n\nlonger");
        assert_eq!(wrap("a b", None), "a b");
    }
}
