//! A table for the terminal and for a page.

use buddy_core::visible;

use crate::escape;

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Left, for texts.
    Left,
    /// Right, for numbers.
    Right,
}

/// Header of a column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Name.
    pub name: &'static str,
    /// Name of the group that it and its neighbours belong to; may be empty.
    pub group: &'static str,
    /// Alignment of its cells.
    pub align: Align,
}

/// A cell: its text for a terminal, and its HTML and sort key for a page.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    text: String,
    html: Option<String>,
    key: Option<f64>,
}

impl Cell {
    /// Creates a text cell, sorted by its text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: visible(&text.into()).into_owned(), ..Self::default() }
    }

    /// Creates a number cell, shown as `text` and sorted by its value.
    pub fn number(value: f64, text: impl Into<String>) -> Self {
        Self { key: Some(value), ..Self::text(text) }
    }

    /// Returns the text for a terminal.
    pub(crate) fn shown(&self) -> &str {
        &self.text
    }

    /// Sets the HTML that a page shows instead of the text.
    #[must_use]
    pub fn with_html(self, html: String) -> Self {
        Self { html: Some(html), ..self }
    }
}

/// Rows under columns. Total rows stay last in any order.
#[derive(Debug, Clone)]
pub struct Table {
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows, each with a cell for every column.
    pub rows: Vec<Vec<Cell>>,
    /// Rows that stay last, such as a sum.
    pub total: Vec<Vec<Cell>>,
}

impl Table {
    /// Renders the table as columns of text.
    pub fn to_text(&self) -> String {
        let heads: Vec<Cell> = self.columns.iter().map(|column| Cell::text(column.name)).collect();
        let widths: Vec<usize> = (0..self.columns.len()).map(|column| self.width_of(column)).collect();
        let rule = "─".repeat(widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1));
        let line = |row: &Vec<Cell>| self.text_line(row, &widths);
        let mut text = format!("{}\n{rule}\n", line(&heads));
        text.extend(self.rows.iter().map(|row| line(row) + "\n"));
        if !self.total.is_empty() {
            text.push_str(&format!("{rule}\n"));
            text.extend(self.total.iter().map(|row| line(row) + "\n"));
        }
        text
    }

    /// Returns the width of a column, including its header.
    pub(crate) fn width_of(&self, column: usize) -> usize {
        let cells = self.rows.iter().chain(&self.total).map(|row| row[column].text.chars().count());
        cells.chain([self.columns[column].name.chars().count()]).max().unwrap_or(0)
    }

    fn text_line(&self, row: &[Cell], widths: &[usize]) -> String {
        let cell = |((cell, column), &width): ((&Cell, &Column), &usize)| match column.align {
            Align::Left => format!("{:<width$}", cell.text),
            Align::Right => format!("{:>width$}", cell.text),
        };
        let cells: Vec<String> = row.iter().zip(&self.columns).zip(widths).map(cell).collect();
        cells.join("  ").trim_end().to_owned()
    }

    /// Renders the table as HTML; a click on a header sorts it.
    pub fn to_html(&self) -> String {
        let heads: String =
            self.columns.iter().enumerate().map(|(i, column)| self.html_head(i, column)).collect();
        let rows = |rows: &[Vec<Cell>]| rows.iter().map(|row| self.html_row(row)).collect::<String>();
        format!(
            "<div class=\"scroll\"><table class=\"sortable\"><thead>{}<tr>{heads}</tr></thead>\n\
             <tbody>\n{}</tbody><tfoot>\n{}</tfoot></table></div>\n",
            self.html_groups(),
            rows(&self.rows),
            rows(&self.total)
        )
    }

    /// Renders the row of group names; nothing if no column has a group.
    fn html_groups(&self) -> String {
        if self.columns.iter().all(|column| column.group.is_empty()) {
            return String::new();
        }
        let chunks = self.columns.chunk_by(|a, b| a.group == b.group);
        let head = |chunk: &[Column]| {
            let class = if chunk[0].group.is_empty() { "" } else { " class=\"group\"" };
            format!("<th colspan=\"{}\"{class}>{}</th>", chunk.len(), escape(chunk[0].group))
        };
        format!("<tr class=\"groups\">{}</tr>", chunks.map(head).collect::<String>())
    }

    fn html_head(&self, index: usize, column: &Column) -> String {
        let class = self.class(index, column);
        format!("<th{class} aria-sort=\"none\"><button>{}</button></th>", escape(column.name))
    }

    fn html_row(&self, row: &[Cell]) -> String {
        let cell = |(i, (cell, column)): (usize, (&Cell, &Column))| {
            let class = self.class(i, column);
            let key = cell.key.map(|key| format!(" data-key=\"{key}\"")).unwrap_or_default();
            let inner = cell.html.clone().unwrap_or_else(|| escape(&cell.text));
            format!("<td{class}{key}>{inner}</td>")
        };
        let cells: String = row.iter().zip(&self.columns).enumerate().map(cell).collect();
        format!("<tr>{cells}</tr>\n")
    }

    /// Numbers are right-aligned, and the first column of a group has a line before it.
    fn class(&self, index: usize, column: &Column) -> String {
        let first = index > 0 && self.columns[index - 1].group != column.group && !column.group.is_empty();
        let right = column.align == Align::Right;
        match (right, first) {
            (false, false) => String::new(),
            (true, false) => " class=\"n\"".to_owned(),
            (false, true) => " class=\"first\"".to_owned(),
            (true, true) => " class=\"n first\"".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let column = |name, group, align| Column { name, group, align };
        Table {
            columns: vec![column("name", "", Align::Left), column("ratio", "bpc", Align::Right)],
            rows: vec![
                vec![Cell::text("<w>"), Cell::number(1.5, "1.50x")],
                vec![Cell::text("bias"), Cell::number(12.0, "12.00x")],
            ],
            total: vec![vec![Cell::text("all"), Cell::number(2.0, "2.00x").with_html("<b>2</b>".to_owned())]],
        }
    }

    #[test]
    fn text_columns_are_aligned() {
        insta::assert_snapshot!(table().to_text(), @r"
        name   ratio
        ────────────
        <w>    1.50x
        bias  12.00x
        ────────────
        all    2.00x
        ");
    }

    #[test]
    fn html_escapes_texts_and_has_sort_keys() {
        let html = table().to_html();
        assert!(
            html.contains("<td>&lt;w&gt;</td><td class=\"n first\" data-key=\"1.5\">1.50x</td>"),
            "{html}"
        );
        assert!(html.contains("<tfoot>\n<tr><td>all</td><td class=\"n first\" data-key=\"2\"><b>2</b></td>"));
        assert!(html.contains("<th colspan=\"1\" class=\"group\">bpc</th>"));
    }
}
