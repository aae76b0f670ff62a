//! Snapshots in a log: what was seen of each allocation.

use std::{collections::BTreeMap, fs, path::Path};

use buddy_core::{Blocks, Histogram};

use crate::log::Words;

/// One look at the memory of a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// Index among all looks of the process, from 0; some are dropped.
    pub index: u64,
    /// Launches that the program had made.
    pub launches: u64,
    /// When it was, from the start of CUDA.
    pub nanoseconds: u64,
    /// Time that it took.
    pub cost_nanoseconds: u64,
    /// The kernel that had just been launched, or what the program called it.
    pub label: String,
    /// Allocations seen, by slot.
    pub seen: BTreeMap<usize, Seen>,
}

/// One allocation in one look.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// Where it lay.
    pub base: u64,
    /// Its entries by class, for each codec.
    pub histograms: Vec<Histogram>,
    /// The same block by block.
    pub blocks: Vec<Blocks>,
    /// Some of its pages with the first codec, a digit for each entry.
    pub rows: Vec<String>,
}

impl Look {
    /// Reads what was seen; none if a line is none, which a process that was killed may leave at
    /// the end.
    pub(crate) fn read(&mut self, text: &str) -> Option<()> {
        text.lines().try_for_each(|line| {
            let (kind, rest) = line.split_once(' ')?;
            self.add(kind, &mut Words::new(rest))
        })
    }

    /// Reads the file of the look, which the library wrote before it said that it had looked.
    /// Whether it is there and whole.
    pub(crate) fn is_whole_in(&mut self, folder: &Path, name: &str) -> bool {
        let file = folder.join(format!("{name}.{}.look", self.index));
        fs::read_to_string(file).is_ok_and(|text| self.read(&text).is_some())
    }

    /// Takes one line; none if it is not of a look.
    pub(crate) fn add(&mut self, kind: &str, words: &mut Words<'_>) -> Option<()> {
        let slot = words.number()? as usize;
        let seen = self.seen.entry(slot).or_default();
        match kind {
            "sizes" => {
                seen.base = words.number()?;
                let (codec, classes) = (words.number()? as usize, words.six()?);
                classes.iter().try_fold(0u64, |sum, &count| sum.checked_add(count))?;
                let histogram = Histogram { classes, optimistic_bytes: words.number()? };
                (seen.histograms.len() == codec).then(|| seen.histograms.push(histogram))
            }
            "blocks" => {
                let (codec, pages) = (words.number()? as usize, words.number()?);
                let blocks = Blocks::new(pages, words.blocks()?);
                (seen.blocks.len() == codec).then(|| seen.blocks.push(blocks))
            }
            "rows" => {
                seen.rows = words.rest().split_whitespace().map(str::to_owned).collect();
                Some(())
            }
            _ => None,
        }
    }
}
