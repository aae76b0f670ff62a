//! Names of arrays in tables: groups layers that differ only in their numbers, and shortens long
//! names.

use std::collections::{BTreeSet, HashMap, HashSet};

/// Separators of the parts of a name.
const SEPARATORS: [char; 8] = ['.', '/', ':', '_', '-', '[', ']', ' '];
/// Maximum runs of numbers that are written out; more are shown by their ends.
const MOST_RUNS: usize = 4;

/// A name split at its numbers: `model.layers.7.weight` is `model.layers.`, 7 and `.weight`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Numbered {
    /// Texts around the numbers, one more than there are numbers.
    pub(crate) texts: Vec<String>,
    /// Numbers that are whole parts of the name.
    pub(crate) numbers: Vec<u64>,
}

impl Numbered {
    /// Splits a name.
    pub(crate) fn new(name: &str) -> Self {
        let (mut texts, mut numbers) = (vec![String::new()], Vec::new());
        for part in name.split_inclusive(SEPARATORS) {
            let word = part.trim_end_matches(SEPARATORS);
            let is_number = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit());
            match word.parse::<u64>() {
                // Leading zeros would be lost.
                Ok(number) if is_number && number.to_string() == word => {
                    numbers.push(number);
                    texts.push(part[word.len()..].to_owned());
                }
                _ => texts.last_mut().expect("never empty").push_str(part),
            }
        }
        Self { texts, numbers }
    }

    /// Returns one name for several that differ only in their numbers:
    /// `model.layers.[0-31].weight`.
    pub(crate) fn together(members: &[&Self]) -> String {
        let Some(first) = members.first() else { return String::new() };
        let mut name = first.texts[0].clone();
        for (place, text) in first.texts[1..].iter().enumerate() {
            let numbers: BTreeSet<u64> = members.iter().map(|member| member.numbers[place]).collect();
            match numbers.len() {
                1 => name.push_str(&first.numbers[place].to_string()),
                _ => name.push_str(&format!("[{}]", runs(&numbers))),
            }
            name.push_str(text);
        }
        name
    }
}

/// Formats numbers as runs: `0-3,7`. Many runs are shown by their ends: `0…62`.
fn runs(numbers: &BTreeSet<u64>) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == number => *end = number,
            _ => runs.push((number, number)),
        }
    }
    let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return String::new() };
    if runs.len() > MOST_RUNS {
        return format!("{}…{}", first.0, last.1);
    }
    let run = |&(start, end): &(u64, u64)| {
        if start == end { start.to_string() } else { format!("{start}-{end}") }
    };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

/// Shortens a long name in the middle, since both ends distinguish names.
pub(crate) fn shorten(name: &str, most: usize) -> String {
    cut(name, most, most / 2)
}

/// Keeps the first `start` characters of a long name and the last ones that fit.
fn cut(name: &str, most: usize, start: usize) -> String {
    let safe: Vec<char> = name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if safe.len() <= most {
        return safe.into_iter().collect();
    }
    let end = most.saturating_sub(start + 1);
    safe[..start].iter().chain(&['…']).chain(&safe[safe.len() - end..]).collect()
}

/// Drops the part of a group's name before its first range: `…[0-31].mlp.down_proj.weight`.
fn cut_to_range(name: &str, most: usize) -> String {
    let Some(at) = name.find('[').filter(|_| name.chars().count() > most) else {
        return cut(name, most, most / 3);
    };
    let rest = format!("…{}", &name[at..]);
    let range = rest.chars().position(|c| c == ']').map_or(0, |end| end + 1);
    cut(&rest, most, if range + 8 < most { range } else { most / 3 })
}

/// Shortens names to at most `most` characters, at least 8, such that distinct names stay distinct;
/// numbers them if no cut achieves that.
pub(crate) fn shorten_apart(names: &[String], most: usize) -> Vec<String> {
    let most = most.max(8);
    let all: HashSet<&String> = names.iter().collect();
    let ranges: Vec<String> = names.iter().map(|name| cut_to_range(name, most)).collect();
    let cuts = [most / 3, most / 2, most * 2 / 3, 0, most - 1].into_iter();
    let cuts = cuts.map(|start| names.iter().map(|name| cut(name, most, start)).collect());
    let differ = |short: &Vec<String>| short.iter().collect::<HashSet<_>>().len() == all.len();
    [ranges].into_iter().chain(cuts).find(differ).unwrap_or_else(|| number(names, most))
}

/// Cuts names at the end, and numbers equal results.
fn number(names: &[String], most: usize) -> Vec<String> {
    let mut taken: HashMap<String, &String> = HashMap::new();
    let mut all = Vec::with_capacity(names.len());
    for name in names {
        let mut found = cut(name, most, most / 2);
        let mut next = 2;
        while taken.get(&found).is_some_and(|other| *other != name) {
            let mark = format!("~{next}");
            found = cut(name, most - mark.len(), (most - mark.len()) / 2) + &mark;
            next += 1;
        }
        taken.insert(found.clone(), name);
        all.push(found);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn together(names: &[&str]) -> String {
        let parts: Vec<Numbered> = names.iter().map(|name| Numbered::new(name)).collect();
        Numbered::together(&parts.iter().collect::<Vec<_>>())
    }

    #[test]
    fn numbers_are_whole_parts_of_a_name() {
        let name = Numbered::new("blk.12.attn_q8.[3]/0");
        assert_eq!((name.texts.join("*"), name.numbers), ("blk.*.attn_q8.[*]/*".to_owned(), vec![12, 3, 0]));
        for none in ["conv1.weight", "f16", "rho_00100", "99999999999999999999", ""] {
            assert!(Numbered::new(none).numbers.is_empty(), "{none}");
        }
    }

    #[test]
    fn layers_are_merged_into_one_name_with_a_range() {
        let layers: Vec<String> =
            (0..32).map(|layer| format!("model.layers.{layer}.mlp.down_proj.weight")).collect();
        let layers: Vec<&str> = layers.iter().map(String::as_str).collect();
        assert_eq!(together(&layers), "model.layers.[0-31].mlp.down_proj.weight");
        assert_eq!(together(&["a.0.b.5", "a.1.b.5", "a.3.b.5"]), "a.[0-1,3].b.5");
        assert_eq!(together(&["a.0", "a.2", "a.4", "a.6", "a.8"]), "a.[0…8]");
        assert_eq!(together(&["a.7.b"]), "a.7.b");
    }

    #[test]
    fn shortened_names_keep_both_ends_and_stay_distinct() {
        assert_eq!(shorten("encoder.layer.0.attention.self.query.weight", 20), "encoder.la…ry.weight");
        assert_eq!(shorten("short", 20), "short");
        let long = ["model.layers.[0-31].post_attention_layernorm.weight".to_owned()];
        assert_eq!(shorten_apart(&long, 40), ["…[0-31].post_attention_layernorm.weight"]);
        assert_eq!(shorten_apart(&long, 30), ["…[0-31]…ntion_layernorm.weight"]);
        let coders = ["en", "de"].map(|which| format!("{which}coder.layers.[0-31].weight"));
        assert_eq!(shorten_apart(&coders, 20)[0], "encode…[0-31].weight");
        let names =
            ["q", "k", "v"].map(|which| format!("model.layers.11.self_attention.{which}_projection.weight"));
        let twins = [&names[..], &names[..1]].concat();
        for most in [8, 12, 20, 26] {
            let short = shorten_apart(&twins, most);
            assert!(short.iter().all(|name| name.chars().count() <= most), "{short:?}");
            assert_eq!(short.iter().collect::<HashSet<_>>().len(), 3, "{short:?}");
            assert_eq!(short[0], short[3], "the same name stays the same");
        }
    }
}
