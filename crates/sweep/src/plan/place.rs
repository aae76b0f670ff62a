//! Errors in a plan, with their line.

/// Most frequent cause of syntax errors.
const QUOTES: &str = "names and ranges need quotes, such as \"cg\" and \"50..200 step 50\"";

/// Describes a syntax error of the TOML reader.
pub(super) fn of_form(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().lines().map(str::trim).collect::<Vec<_>>().join(" ");
    if message.contains("missing field `axes`") {
        return "missing table [axes] with the program and the varied settings".to_owned();
    }
    let Some(span) = error.span() else { return message };
    let before = text.get(..span.start).unwrap_or(text);
    let number = before.lines().count().max(1) + usize::from(before.ends_with('\n'));
    let line = text.lines().nth(number - 1).unwrap_or_default().trim();
    let hint = if line.contains('=') && !message.contains("unknown field") {
        format!("; {QUOTES}")
    } else {
        String::new()
    };
    format!("line {number}, `{line}`: {message}{hint}")
}

/// Describes an error in a setting, with its line after the table of this name, or after the first
/// of them.
pub(super) fn of_setting(text: &str, table: &str, key: &str, why: &str) -> String {
    let said = if why.contains(key) { why.to_owned() } else { format!("{key}: {why}") };
    match line(text, table, key) {
        Some(number) => format!("line {number}, [{table}]: {said}"),
        None => format!("[{table}]: {said}"),
    }
}

/// Finds the line of a setting, from 1: written in full, or by its last part under a table of the
/// first.
fn line(text: &str, table: &str, key: &str) -> Option<usize> {
    let has = |line: &str, key: &str| {
        let line = line.trim_start().trim_start_matches(['"', '\'']);
        let rest = line.strip_prefix(key).map(|rest| rest.trim_start_matches(['"', '\'']).trim_start());
        rest.is_some_and(|rest| rest.starts_with('='))
    };
    let head = |line: &str| line.trim_start().trim_start_matches('[').starts_with(table);
    let begin = text.lines().position(|line| line.trim_start().starts_with('[') && head(line))?;
    let find = |key: &str| text.lines().skip(begin).position(|line| has(line, key));
    let last = key.rsplit('.').next().unwrap_or(key);
    let others: &[&str] = match key {
        "program" => &["network", "trace"],
        "spec" => &["gpu"],
        "metadata" => &["buddy.metadata_bytes"],
        _ => &[],
    };
    let mut all = [key].into_iter().chain(others.iter().copied()).chain([last]);
    all.find_map(find).map(|at| begin + at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_found_in_full_or_under_its_table() {
        let text = "name = 'x'\n[axes]\nlink = 50\n l2.bytes = 1\n[gpu.wide]\nbase = 'h200'\n[gpu.wide.l2]\nways = 3\n";
        for (table, key, number) in
            [("axes", "link", 3), ("axes", "l2.bytes", 4), ("gpu", "base", 6), ("gpu", "l2.ways", 8)]
        {
            assert_eq!(line(text, table, key), Some(number), "{key}");
        }
        assert_eq!(line(text, "axes", "mode"), None);
        assert_eq!(of_setting(text, "axes", "link", "no"), "line 3, [axes]: link: no");
    }
}
