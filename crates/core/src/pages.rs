//! Spatial map of compressibility, as in the paper: pages of 64 entries by size class.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{ENTRIES_PER_PAGE, SizeClass};

/// Size class of every entry in some 8 KiB pages of an array, evenly spaced and in address order.
/// Clones share the data.
///
/// In JSON a row is a string with one digit per entry: the index in [`SizeClass::ALL`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Digits", try_from = "Digits")]
pub struct PageMap {
    pages: u64,
    /// Entries of all rows, concatenated.
    classes: Arc<[SizeClass]>,
    /// End of each row in `classes`.
    ends: Arc<[usize]>,
}

/// JSON form of [`PageMap`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "PageMap")]
struct Digits {
    pages: u64,
    rows: Vec<String>,
}

impl PageMap {
    /// Creates a map of `rows` for an array of `pages` pages in total.
    pub fn new<Row: AsRef<[SizeClass]>>(pages: u64, rows: impl IntoIterator<Item = Row>) -> Self {
        let (mut classes, mut ends) = (Vec::new(), Vec::new());
        for row in rows {
            classes.extend_from_slice(row.as_ref());
            ends.push(classes.len());
        }
        Self { pages, classes: classes.into(), ends: ends.into() }
    }

    /// Creates a map from concatenated pages of 64 entries; the last page may be shorter.
    pub fn from_pages(pages: u64, classes: Vec<SizeClass>) -> Self {
        let rows = classes.len().div_ceil(ENTRIES_PER_PAGE);
        let ends = (1..=rows).map(|row| classes.len().min(row * ENTRIES_PER_PAGE)).collect();
        Self { pages, classes: classes.into(), ends }
    }

    /// Returns the number of pages of the whole array.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns the rows, first to last, each with the classes of its entries.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[SizeClass]> {
        (0..self.ends.len()).map(|row| self.row(row))
    }

    /// Returns the entries of one row.
    ///
    /// # Panics
    /// If `row` is out of range.
    pub fn row(&self, row: usize) -> &[SizeClass] {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.classes[start..self.ends[row]]
    }

    /// Returns the entries of all rows, concatenated.
    pub fn classes(&self) -> &Arc<[SizeClass]> {
        &self.classes
    }

    /// Returns whether every page of the array is shown.
    pub fn is_whole(&self) -> bool {
        self.ends.len() as u64 == self.pages
    }

    /// Returns a map of at most `rows` pages; a map that is not whole is returned unchanged.
    #[must_use]
    pub fn sampled(&self, rows: usize) -> Self {
        if !self.is_whole() || self.ends.len() <= rows {
            return self.clone();
        }
        Self::new(
            self.pages,
            (0..rows).map(|row| self.row(Self::page_of_row(self.pages, rows, row) as usize)),
        )
    }

    /// Returns the page of an array of `pages` that row `row` of a `rows`-row map shows.
    pub fn page_of_row(pages: u64, rows: usize, row: usize) -> u64 {
        (u128::from(pages) * row as u128 / rows.max(1) as u128) as u64
    }

    /// Returns whether a map of `rows` rows, at most `pages`, shows page `page`.
    pub fn shows(pages: u64, rows: usize, page: u64) -> bool {
        let rows_before = |page: u64| (u128::from(page) * rows as u128).div_ceil(u128::from(pages.max(1)));
        rows_before(page) < rows_before(page + 1)
    }

    /// Returns whether this can be a map of an array of `entries`.
    pub fn fits(&self, entries: u64) -> bool {
        let per_page = ENTRIES_PER_PAGE as u64;
        let length = |row: usize| {
            let page = Self::page_of_row(self.pages, self.ends.len(), row);
            (entries - page * per_page).min(per_page)
        };
        self.pages == entries.div_ceil(per_page)
            && self.ends.len() as u64 <= self.pages
            && self.rows().enumerate().all(|(i, row)| row.len() as u64 == length(i))
    }

    /// Parses rows in the JSON form, for an array of `pages` pages in total.
    ///
    /// # Errors
    /// A message if a character is not a class digit.
    pub fn from_digits(pages: u64, rows: &[impl AsRef<str>]) -> Result<Self, String> {
        let class = |digit: u8| {
            let found = SizeClass::ALL.get(usize::from(digit.wrapping_sub(b'0')));
            found.copied().ok_or_else(|| "a row of a page map has digits from 0 to 5".to_owned())
        };
        let row = |row: &_| AsRef::<str>::as_ref(row).bytes().map(class).collect();
        Ok(Self::new(pages, rows.iter().map(row).collect::<Result<Vec<Vec<SizeClass>>, String>>()?))
    }

    /// Returns the rows in the JSON form, one digit per entry.
    pub fn digits(&self) -> Vec<String> {
        let digit = |class: &SizeClass| char::from(b'0' + class.index() as u8);
        self.rows().map(|row| row.iter().map(digit).collect()).collect()
    }
}

impl From<PageMap> for Digits {
    fn from(map: PageMap) -> Self {
        Self { pages: map.pages, rows: map.digits() }
    }
}

impl TryFrom<Digits> for PageMap {
    type Error = String;

    fn try_from(Digits { pages, rows }: Digits) -> Result<Self, String> {
        Self::from_digits(pages, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_evenly_spaced_over_the_pages() {
        let shown =
            |pages, rows| (0..rows).map(|row| PageMap::page_of_row(pages, rows, row)).collect::<Vec<_>>();
        assert_eq!(shown(3, 3), [0, 1, 2]);
        assert_eq!(shown(10, 4), [0, 2, 5, 7]);
        assert_eq!(shown(u64::MAX, 2), [0, u64::MAX / 2]);
        for (pages, rows) in [(10, 4), (7, 7), (100, 33), (5, 0), (0, 0)] {
            let found: Vec<u64> = (0..pages).filter(|&page| PageMap::shows(pages, rows, page)).collect();
            assert_eq!(found, shown(pages, rows), "{rows} of {pages}");
        }
    }

    fn json(text: &str) -> Result<PageMap, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn a_json_row_has_one_digit_per_entry() {
        let text = r#"{"pages":1,"rows":["012345"]}"#;
        let map = json(text).unwrap();
        assert_eq!(map.row(0), SizeClass::ALL);
        assert_eq!(serde_json::to_string(&map).unwrap(), text);
        for wrong in ["6", "/", "a", "é"] {
            let error = json(&text.replace("345", wrong)).unwrap_err().to_string();
            assert!(error.contains("digits from 0 to 5"), "{error}");
        }
        assert!(json(r#"{"pages":1,"rows":[],"more":1}"#).is_err());
    }

    #[test]
    fn a_map_fits_only_the_entries_that_it_shows() {
        let full = [SizeClass::Zero; 64];
        let map = |pages, rows: &[&[SizeClass]]| PageMap::new(pages, rows);
        assert!(map(2, &[&full, &full[..1]]).fits(65));
        assert!(map(0, &[]).fits(0));
        assert!(!map(2, &[&full, &full[..2]]).fits(65));
        assert!(!map(3, &[&full, &full[..1]]).fits(65));
        assert_eq!(PageMap::from_pages(2, full[..].repeat(2)[..65].to_vec()), map(2, &[&full, &full[..1]]));
    }

    #[test]
    fn sampling_a_whole_map_selects_rows() {
        let rows: Vec<[SizeClass; 1]> = (0..10).map(|i| [SizeClass::ALL[i % 6]]).collect();
        let map = PageMap::new(10, &rows);
        assert_eq!(map.sampled(4).digits(), ["0", "2", "5", "1"]);
        assert_eq!(map.sampled(10), map);
        assert_eq!(map.sampled(4).sampled(2), map.sampled(4), "a partial map is not sampled again");
    }
}
