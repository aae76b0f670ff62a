//! Selection, grouping, order and number of rows shown on a terminal.

use std::collections::HashMap;

use crate::names::Numbered;

/// Selection and order of a table's rows. By default all of them, grouped, in their own order.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Columns of the terminal; `None` for no limit.
    pub width: Option<usize>,
    /// Sort key; `None` keeps the order.
    pub sort: Option<SortBy>,
    /// Maximum number of rows.
    pub top: Option<usize>,
    /// Show only names that contain this text, or match it if it has `*` or `?`; empty shows all.
    pub filter: String,
    /// Show a table of codecs if several were measured on everything.
    pub codecs: bool,
    /// Show every array by itself, without grouping.
    pub each: bool,
}

/// Sort key: names ascending, numbers descending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortBy {
    /// The name.
    Name,
    /// Bytes of data.
    Size,
    /// Bytes of device memory saved.
    Saved,
    /// Bytes of data per byte of device memory.
    Ratio,
    /// Share of entries that overflow.
    Overflow,
}

impl SortBy {
    /// All keys.
    pub const ALL: [Self; 5] = [Self::Name, Self::Size, Self::Saved, Self::Ratio, Self::Overflow];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Size => "size",
            Self::Saved => "saved",
            Self::Ratio => "ratio",
            Self::Overflow => "overflow",
        }
    }
}

/// Arrays shown as one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// Common name, with the ranges of numbers.
    pub(crate) name: String,
    /// Indices of the arrays.
    pub(crate) members: Vec<usize>,
}

/// Sort keys of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measure {
    pub(crate) bytes: u64,
    pub(crate) device_bytes: u64,
    pub(crate) ratio: f64,
    pub(crate) overflow: f64,
}

impl View {
    /// Returns whether a name passes the filter.
    pub fn shows(&self, name: &str) -> bool {
        match self.filter.contains(['*', '?']) {
            true => fits(&self.filter, name),
            false => name.contains(&self.filter),
        }
    }

    /// Returns the sorted rows of names that pass the filter, before `top` applies. Names that
    /// differ only in their numbers are grouped if `alike` is equal.
    pub(crate) fn groups(
        &self,
        names: &[&str],
        alike: impl Fn(usize) -> String,
        measure: impl Fn(&[usize]) -> Measure,
    ) -> Vec<Group> {
        let shown: Vec<usize> = (0..names.len()).filter(|&index| self.shows(names[index])).collect();
        let mut groups = match self.each {
            true => {
                shown.iter().map(|&one| Group { name: names[one].to_owned(), members: vec![one] }).collect()
            }
            false => together(names, &shown, alike),
        };
        let Some(key) = self.sort else { return groups };
        let of = |group: &Group| {
            let Measure { bytes, device_bytes, ratio, overflow } = measure(&group.members);
            match key {
                SortBy::Name => 0.0,
                SortBy::Size => bytes as f64,
                SortBy::Saved => bytes as f64 - device_bytes as f64,
                SortBy::Ratio => ratio,
                SortBy::Overflow => overflow,
            }
        };
        groups.sort_by(|a, b| match key {
            SortBy::Name => a.name.cmp(&b.name),
            _ => of(b).total_cmp(&of(a)),
        });
        groups
    }
}

/// Returns the groups in the order of their first members.
fn together(names: &[&str], shown: &[usize], alike: impl Fn(usize) -> String) -> Vec<Group> {
    let parts: HashMap<usize, Numbered> =
        shown.iter().map(|&index| (index, Numbered::new(names[index]))).collect();
    let mut places: HashMap<(Vec<String>, String), usize> = HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for &index in shown {
        let place = *places.entry((parts[&index].texts.clone(), alike(index))).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(index);
    }
    let group = |members: Vec<usize>| {
        let all: Vec<&Numbered> = members.iter().map(|member| &parts[member]).collect();
        Group { name: Numbered::together(&all), members }
    };
    groups.into_iter().map(group).collect()
}

/// Returns whether a text matches a pattern, in which `*` is any text and `?` any character.
fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Position of the last star, and the end of its match.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((at, swallowed)) = star {
            star = Some((at, swallowed + 1));
            (p, t) = (at + 1, swallowed + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] =
        ["embed", "layer.0.up", "layer.0.norm", "layer.1.up", "layer.1.norm", "layer.2.up"];

    fn rows(view: &View) -> Vec<String> {
        let bytes = [9, 4, 1, 4, 1, 8u64];
        let alike = |index: usize| bytes[index].to_string();
        let measure = |members: &[usize]| {
            let bytes: u64 = members.iter().map(|&member| bytes[member]).sum();
            Measure { bytes, device_bytes: bytes, ratio: 1.0, overflow: 0.0 }
        };
        view.groups(&NAMES, alike, measure).into_iter().map(|group| group.name).collect()
    }

    #[test]
    fn names_that_differ_only_in_numbers_are_one_row() {
        assert_eq!(rows(&View::default()), ["embed", "layer.[0-1].up", "layer.[0-1].norm", "layer.2.up"]);
        let sorted = View { sort: Some(SortBy::Size), ..View::default() };
        assert_eq!(rows(&sorted), ["embed", "layer.[0-1].up", "layer.2.up", "layer.[0-1].norm"]);
        let named = View { sort: Some(SortBy::Name), each: true, ..View::default() };
        assert_eq!(rows(&named)[..2], ["embed", "layer.0.norm"]);
    }

    #[test]
    fn a_filter_is_a_text_or_a_pattern() {
        let shown = |filter: &str| rows(&View { filter: filter.to_owned(), ..View::default() });
        assert_eq!(shown("norm"), ["layer.[0-1].norm"]);
        assert_eq!(shown("layer.?.up"), ["layer.[0-1].up", "layer.2.up"]);
        assert_eq!(shown("*e*").len(), 4);
        assert!(shown("layer.*.u").is_empty() && shown("up*").is_empty());
        assert!(fits("*a*b", "xaxxb") && fits("**", "") && !fits("a*b", "ab.c"));
    }
}
