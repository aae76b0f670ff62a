//! The paper's spatial picture of compressibility: pages of 64 entries, by size class.

use serde::{Deserialize, Serialize};

use crate::{ENTRIES_PER_PAGE, SizeClass};

/// Some of the 8 KB pages of an array, evenly spaced and in address order, with the size class of each of their
/// entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageMap {
    /// How many pages the whole array has.
    pub pages: u64,
    /// One text per sampled page, one digit per entry: the class's place in [`SizeClass::ALL`]. Only the last
    /// page of an array may have fewer than 64.
    pub rows: Vec<String>,
}

impl PageMap {
    /// Which page of an array of `pages` a map of `rows` rows shows in row `row`.
    pub fn page_of_row(pages: u64, rows: usize, row: usize) -> u64 {
        (u128::from(pages) * row as u128 / rows.max(1) as u128) as u64
    }

    /// Which page row `row` shows.
    pub fn page(&self, row: usize) -> u64 {
        Self::page_of_row(self.pages, self.rows.len(), row)
    }

    /// One row of classes.
    pub fn row(classes: impl Iterator<Item = SizeClass>) -> String {
        classes.map(|class| char::from(b'0' + class.index() as u8)).collect()
    }

    /// Whether this can be a map of an array of `entries`.
    pub fn fits(&self, entries: u64) -> bool {
        let per_page = ENTRIES_PER_PAGE as u64;
        let digits = |row: &String| row.bytes().all(|digit| (b'0'..=b'5').contains(&digit));
        let length = |row: usize| (entries - self.page(row) * per_page).min(per_page);
        self.pages == entries.div_ceil(per_page)
            && self.rows.len() as u64 <= self.pages
            && self.rows.iter().enumerate().all(|(i, row)| digits(row) && row.len() as u64 == length(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_spread_over_the_pages() {
        let shown =
            |pages, rows| (0..rows).map(|row| PageMap::page_of_row(pages, rows, row)).collect::<Vec<_>>();
        assert_eq!(shown(3, 3), [0, 1, 2]);
        assert_eq!(shown(10, 4), [0, 2, 5, 7]);
        assert_eq!(shown(u64::MAX, 2), [0, u64::MAX / 2]);
    }

    #[test]
    fn a_row_has_a_digit_per_entry() {
        assert_eq!(PageMap::row(SizeClass::ALL.into_iter()), "012345");
        let full = "0".repeat(64);
        let map =
            |pages, rows: &[&str]| PageMap { pages, rows: rows.iter().map(|&row| row.to_owned()).collect() };
        assert!(map(2, &[&full, "5"]).fits(65));
        assert!(map(0, &[]).fits(0));
        assert!(!map(2, &[&full, "55"]).fits(65));
        assert!(!map(3, &[&full, "5"]).fits(65));
    }
}
