//! Size-class counts of an allocation by block of pages, small enough to keep for every snapshot.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{ENTRIES_PER_PAGE, Histogram};

/// Maximum number of blocks in an allocation; per-page targets change only at block boundaries.
const MOST_BLOCKS: u64 = 4096;

/// Entries of an allocation by size class, block by block. A block is a few 8 KiB pages; the last
/// may be shorter. An allocation without blocks is not alive.
///
/// In JSON a row is a string of six counts, prefixed with `3* ` if it stands for three equal
/// blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Rows", try_from = "Rows")]
pub struct Blocks {
    pages: u64,
    counts: Vec<[u64; 6]>,
}

/// JSON form of [`Blocks`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "Blocks")]
struct Rows {
    /// Pages per block.
    pages: u64,
    rows: Vec<String>,
}

impl Blocks {
    /// Returns the block size, a power of two, for an allocation of `pages` pages.
    pub fn pages_of(pages: u64) -> u64 {
        pages.div_ceil(MOST_BLOCKS).next_power_of_two()
    }

    /// Creates blocks of `pages` pages each from their counts.
    pub fn new(pages: u64, counts: Vec<[u64; 6]>) -> Self {
        Self { pages, counts }
    }

    /// Groups the pages of an allocation into blocks.
    pub fn from_pages(pages: &[[u8; 6]]) -> Self {
        let each = Self::pages_of(pages.len() as u64);
        let sum = |block: &[[u8; 6]]| {
            std::array::from_fn(|class| block.iter().map(|page| u64::from(page[class])).sum())
        };
        Self { pages: each, counts: pages.chunks(each as usize).map(sum).collect() }
    }

    /// Returns the pages per block; the last block may have fewer.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns the counts of each block, first to last.
    pub fn counts(&self) -> &[[u64; 6]] {
        &self.counts
    }

    /// Returns the counts of each block for modification.
    pub fn counts_mut(&mut self) -> &mut [[u64; 6]] {
        &mut self.counts
    }

    /// Returns whether these can be the blocks of an allocation of `entries`, at this or a coarser
    /// granularity.
    pub fn fits(&self, entries: u64) -> bool {
        let finest = Self::pages_of(entries.div_ceil(ENTRIES_PER_PAGE as u64));
        let Some(each) = self.pages.checked_mul(ENTRIES_PER_PAGE as u64) else { return false };
        let counted = |(block, counts): (u64, &[u64; 6])| {
            let sum = counts.iter().try_fold(0u64, |sum, &count| sum.checked_add(count));
            sum == Some(each.min(entries.saturating_sub(block.saturating_mul(each))))
        };
        self.pages >= finest
            && self.pages.is_power_of_two()
            && self.counts.len() as u64 == entries.div_ceil(each)
            && (0..).zip(&self.counts).all(counted)
    }

    /// Sums a range of blocks, without optimistic bytes. Blocks out of range count as empty.
    pub fn histogram(&self, blocks: Range<usize>) -> Histogram {
        let mut classes = [0; 6];
        let end = blocks.end.min(self.counts.len());
        for block in &self.counts[blocks.start.min(end)..end] {
            classes.iter_mut().zip(block).for_each(|(sum, &more)| *sum += more);
        }
        Histogram { classes, optimistic_bytes: 0 }
    }
}

impl From<Blocks> for Rows {
    fn from(blocks: Blocks) -> Self {
        let same = blocks.counts.chunk_by(|one, next| one == next);
        let row = |same: &[[u64; 6]]| {
            let counts = same[0].map(|count| count.to_string()).join(" ");
            if same.len() == 1 { counts } else { format!("{}* {counts}", same.len()) }
        };
        Self { pages: blocks.pages, rows: same.map(row).collect() }
    }
}

impl TryFrom<Rows> for Blocks {
    type Error = String;

    fn try_from(Rows { pages, rows }: Rows) -> Result<Self, String> {
        let mut counts = Vec::new();
        for row in rows {
            let wrong = || format!("{row:?} is not six counts, or a number of blocks, `*` and six counts");
            let (times, six) = row.split_once('*').unwrap_or(("1", &row));
            let times: u64 = times.trim().parse().map_err(|_| wrong())?;
            let six: Option<Vec<u64>> = six.split_whitespace().map(|count| count.parse().ok()).collect();
            let six: [u64; 6] = six.and_then(|six| six.try_into().ok()).ok_or_else(wrong)?;
            if times > MOST_BLOCKS - counts.len() as u64 {
                return Err(format!("more than {MOST_BLOCKS} blocks"));
            }
            counts.extend((0..times).map(|_| six));
        }
        Ok(Self { pages, counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_grouped_into_blocks() {
        assert_eq!([0, 1, 4096, 4097, 16_385].map(Blocks::pages_of), [1, 1, 1, 2, 8]);
        let mut pages = vec![[64, 0, 0, 0, 0, 0]; 4800];
        pages[4799] = [0, 0, 0, 0, 0, 5];
        let blocks = Blocks::from_pages(&pages);
        assert_eq!((blocks.pages(), blocks.counts().len()), (2, 2400));
        assert_eq!(blocks.histogram(2398..2400).classes, [192, 0, 0, 0, 0, 5]);
        assert!(blocks.fits(4799 * 64 + 5) && !blocks.fits(4799 * 64 + 6) && !Blocks::default().fits(1));
        let coarser = Blocks::new(4, vec![[256, 0, 0, 0, 0, 0]; 2]);
        assert!(
            coarser.fits(512) && !coarser.fits(511) && !Blocks::new(3, vec![[192, 0, 0, 0, 0, 0]]).fits(192)
        );
        assert_eq!(Blocks::default().histogram(3..9), Histogram::default());
    }

    #[test]
    fn equal_rows_are_written_once() {
        let blocks = Blocks::new(2, vec![[1, 0, 0, 0, 0, 127]; 3]);
        let text = r#"{"pages":2,"rows":["3* 1 0 0 0 0 127"]}"#;
        assert_eq!(serde_json::to_string(&blocks).unwrap(), text);
        assert_eq!(serde_json::from_str::<Blocks>(text).unwrap(), blocks);
        for wrong in ["1 2 3", "x* 1 2 3 4 5 6", "-1 0 0 0 0 0", "4097* 1 1 1 1 1 1"] {
            assert!(serde_json::from_str::<Blocks>(&text.replace("3* 1 0 0 0 0 127", wrong)).is_err());
        }
    }
}
