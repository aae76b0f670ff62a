//! The list of what a reader skipped, for terminals and pages.

use buddy_core::visible;
use buddy_record::Skipped;

use crate::{count, escape};

/// Lines on a terminal; pages and records have all of them.
const MOST_LINES: usize = 12;

/// Renders a line for each, with a heading; nothing if all was read.
pub(crate) fn skipped_text(skipped: &[Skipped]) -> String {
    if skipped.is_empty() {
        return String::new();
    }
    let mut text = format!("\nSkipped {}:\n", count(skipped.len() as u64));
    for one in skipped.iter().take(MOST_LINES) {
        text.push_str(&format!("  {}: {}\n", visible(&place(one)), visible(&one.why)));
    }
    if let Some(more) = skipped.len().checked_sub(MOST_LINES).filter(|&more| more > 0) {
        text.push_str(&format!("  and {} more, which --json and --html list\n", count(more as u64)));
    }
    text
}

/// Renders a list for a page; nothing if all was read.
pub(crate) fn skipped_html(skipped: &[Skipped]) -> Option<String> {
    let line = |one: &Skipped| format!("<li>{}: {}</li>\n", escape(&place(one)), escape(&one.why));
    let lines: String = skipped.iter().map(line).collect();
    (!lines.is_empty()).then(|| format!("<ul>\n{lines}</ul>\n"))
}

fn place(one: &Skipped) -> String {
    if one.file.is_empty() { one.name.clone() } else { format!("{} in {}", one.name, one.file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_lists_some_and_counts_the_others() {
        assert_eq!(skipped_text(&[]), "");
        let one = Skipped::new("d\u{1b}[2J", "it is text").of("a.h5");
        assert_eq!(skipped_text(&[one]), "\nSkipped 1:\n  d\\u{1b}[2J in a.h5: it is text\n");
        let many: Vec<_> = (0..20).map(|index| Skipped::new(index.to_string(), "it is text")).collect();
        let text = skipped_text(&many);
        assert_eq!(text.lines().count(), 2 + MOST_LINES + 1);
        assert!(text.contains("and 8 more"), "{text}");
        assert_eq!(skipped_html(&many).unwrap().matches("<li>").count(), 20);
    }
}
