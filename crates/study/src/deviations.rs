//! docs/deviations.md as a page shows it.

use buddy_report::Deviation;

const TEXT: &str = include_str!("../../../docs/deviations.md");

/// Every deviation, by number.
pub fn deviations() -> Vec<Deviation> {
    let mut all: Vec<Deviation> = TEXT.split("\n## D").skip(1).filter_map(parse).collect();
    all.sort_by_key(|one| one.number);
    all
}

/// One entry, from its number on: `46. Title`, or `46: Title`, and paragraphs.
fn parse(text: &str) -> Option<Deviation> {
    let (head, body) = text.split_once('\n')?;
    let digits = head.find(|c: char| !c.is_ascii_digit())?;
    let (number, title) = head.split_at(digits);
    let title = plain(title.trim_start_matches(['.', ':', ' ']));
    Some(Deviation { number: number.parse().ok()?, title, paragraphs: paragraphs(body) })
}

/// Lines are joined until an empty one, or one that begins a point of a list.
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

/// Markdown's marks for bold and code are left out.
fn plain(text: &str) -> String {
    text.replace("**", "").replace('`', "")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{EXPERIMENTS, Findings, Settings};

    #[test]
    fn entries_are_read_in_both_styles() {
        let one = parse("46. Our `x`\n\n- **The paper says**: a\n  b\n- **We**: c\n\nmore\n").unwrap();
        assert_eq!((one.number, one.title.as_str()), (46, "Our x"));
        assert_eq!(one.paragraphs, ["The paper says: a b", "We: c", "more"]);
        assert_eq!(parse("25: palm\nThe paper\n").unwrap().paragraphs, ["The paper"]);
    }

    #[test]
    fn every_deviation_that_a_figure_names_is_there() {
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
