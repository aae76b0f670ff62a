//! Entries of docs/explain/deviations.md, for the page.

use buddy_report::Deviation;

const TEXT: &str = include_str!("../records/deviations.txt");

/// Returns all deviations by number.
pub fn deviations() -> Vec<Deviation> {
    let mut all: Vec<Deviation> = TEXT.split("\n### D").skip(1).filter_map(parse).collect();
    all.sort_by_key(|one| one.number);
    all
}

/// Parses one entry: `46. Title`, then its points up to the next group's heading.
fn parse(text: &str) -> Option<Deviation> {
    let (head, body) = text.split_once('\n')?;
    let (number, title) = head.split_once(". ")?;
    let body = body.split("\n## ").next()?;
    Some(Deviation { number: number.parse().ok()?, title: plain(title), paragraphs: paragraphs(body) })
}

/// Joins lines up to an empty one or the start of a list item.
fn paragraphs(body: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut open = false;
    for line in body.lines() {
        let point = line.starts_with("- ");
        let text = plain(line.trim_start_matches("- ").trim());
        match all.last_mut().filter(|_| open && !point && !text.is_empty()) {
            Some(last) => *last += &format!(" {text}"),
            None if !text.is_empty() => all.push(text.clone()),
            None => {}
        }
        open = !text.is_empty();
    }
    all
}

/// Removes Markdown marks of bold, code and links; a link keeps its text.
fn plain(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some((begin, end)) = text.find("](").and_then(|at| Some((at, at + text[at..].find(')')?))) {
        text.replace_range(begin..=end, "");
    }
    text.replace("**", "").replace(['`', '[', ']'], "")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{EXPERIMENTS, Findings, Settings};

    #[test]
    fn an_entry_ends_at_the_next_group() {
        let text = "46. Our `x`\n\n- **Paper**: a\n  b ([D40])\n- **Here**: [c](d.md)\n\n## Design\n\nmore\n";
        let one = parse(text).unwrap();
        assert_eq!((one.number, one.title.as_str()), (46, "Our x"));
        assert_eq!(one.paragraphs, ["Paper: a b (D40)", "Here: c"]);
    }

    /// Every entry has exactly the four parts.
    #[test]
    fn every_entry_has_the_same_four_parts() {
        let all = deviations();
        assert_eq!(all.len(), TEXT.lines().filter(|line| line.starts_with("### ")).count());
        for one in all {
            let parts: Vec<_> = one.paragraphs.iter().filter_map(|text| text.split(": ").next()).collect();
            assert_eq!(parts, ["Paper", "Here", "Why", "Effect"], "D{}", one.number);
        }
    }

    /// Links between entries use a definition on the page that points to the entry's heading.
    #[test]
    fn links_between_entries_are_defined() {
        let slug = |heading: &str| -> String {
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.collect::<String>().to_lowercase().replace(' ', "-")
        };
        let headings = TEXT.lines().filter_map(|line| line.strip_prefix("### "));
        let anchors: BTreeSet<String> = headings.map(slug).collect();
        let links = |line: &'static str| line.strip_prefix('[')?.split_once("]: #");
        let defined: BTreeSet<_> = TEXT.lines().filter_map(links).collect();
        for (name, anchor) in &defined {
            assert!(anchors.contains(*anchor), "{name} leads to #{anchor}");
        }
        for name in TEXT.split('[').filter_map(|rest| rest.split_once(']')).map(|(name, _)| name) {
            let entry = name.strip_prefix('D').is_some_and(|rest| rest.parse::<u32>().is_ok());
            assert!(!entry || defined.iter().any(|(known, _)| *known == name), "[{name}] is not defined");
        }
    }

    #[test]
    fn every_deviation_named_by_a_figure_exists() {
        let known: BTreeSet<u32> = deviations().iter().map(|one| one.number).collect();
        let nothing = Findings::new(Settings::QUICK);
        for experiment in EXPERIMENTS {
            let figure = experiment.draw(&nothing);
            let why = figure.quantities.iter().filter_map(|quantity| quantity.deviation);
            for number in figure.deviations.iter().copied().chain(why) {
                assert!(known.contains(&number), "{} names D{number}", figure.name);
            }
        }
    }
}
