//! Comma-separated values, with unformatted numbers.

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
        Value::Text(text) if text.contains(['"', ',', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Value::Text(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Whole(number) => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_where_they_must_be() {
        let row = vec![Value::Text("a,\"b\"".to_owned()), Value::Number(0.1), Value::Whole(7)];
        assert_eq!(
            csv(&["name", "share", "bytes"], [row].into_iter()),
            "name,share,bytes\n\"a,\"\"b\"\"\",0.1,7\n"
        );
    }
}
