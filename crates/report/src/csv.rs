//! Comma-separated values, with unformatted numbers.

use buddy_core::visible;

/// A cell. Texts are quoted if needed; numbers are as short as possible without loss.
pub(crate) enum Value {
    Text(String),
    Number(f64),
    Whole(u64),
}

/// Renders rows below a header line.
pub(crate) fn csv(names: &[&str], rows: impl Iterator<Item = Vec<Value>>) -> String {
    let mut text = names.join(",") + "\n";
    for row in rows {
        let cells: Vec<String> = row.iter().map(cell).collect();
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

fn cell(value: &Value) -> String {
    match value {
        Value::Text(text) => csv_text(text),
        Value::Number(number) => number.to_string(),
        Value::Whole(number) => number.to_string(),
    }
}

/// Formats a text as a cell: control characters are escaped, texts that a spreadsheet would run as
/// a formula begin with an apostrophe, and quotes are added where needed.
pub fn csv_text(text: &str) -> String {
    let text = visible(text);
    let text = match text.starts_with(['=', '+', '-', '@']) {
        true => format!("'{text}"),
        false => text.into_owned(),
    };
    match text.contains(['"', ',']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_run_no_formula_and_no_escape_sequence() {
        assert_eq!(csv_text("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
        assert_eq!(csv_text("@SUM(1,2)"), "\"'@SUM(1,2)\"");
        assert_eq!(csv_text("a\u{1b}[31m\n"), "a\\u{1b}[31m\\n");
        assert_eq!(csv_text("layers.0=w"), "layers.0=w");
    }

    #[test]
    fn texts_are_quoted_where_they_must_be() {
        let row = vec![Value::Text("a,\"b\"".to_owned()), Value::Number(0.1), Value::Whole(7)];
        assert_eq!(
            csv(&["name", "share", "bytes"], [row].into_iter()),
            "name,share,bytes\n\"a,\"\"b\"\"\",0.1,7\n"
        );
    }
}
