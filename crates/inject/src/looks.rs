//! Snapshots in a log: the sizes of each allocation.

use std::{collections::BTreeMap, fs, path::Path};

use buddy_core::{Blocks, Histogram};

use crate::log::Words;

/// A snapshot of a process's memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// Index among all snapshots of the process, from 0; some are dropped.
    pub index: u64,
    /// Launches that the program had made.
    pub launches: u64,
    /// Time since the start of CUDA.
    pub nanoseconds: u64,
    /// Duration.
    pub cost_nanoseconds: u64,
    /// The kernel just launched, or the program's label.
    pub label: String,
    /// Allocations in it, by slot.
    pub seen: BTreeMap<usize, Seen>,
}

/// An allocation in a snapshot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// Address.
    pub base: u64,
    /// Entries by class, for each codec.
    pub histograms: Vec<Histogram>,
    /// The same by block.
    pub blocks: Vec<Blocks>,
    /// Some of its pages with the first codec, a digit per entry.
    pub rows: Vec<String>,
}

impl Look {
    /// Parses the allocations; returns `None` for an invalid line, which a killed process may leave
    /// at the end.
    pub(crate) fn read(&mut self, text: &str) -> Option<()> {
        text.lines().try_for_each(|line| {
            let (kind, rest) = line.split_once(' ')?;
            self.add(kind, &mut Words::new(rest))
        })
    }

    /// Reads the snapshot's file, which the library wrote before its line in the log. Returns false
    /// if it is missing or truncated.
    pub(crate) fn is_whole_in(&mut self, folder: &Path, name: &str) -> bool {
        let file = folder.join(format!("{name}.{}.look", self.index));
        fs::read_to_string(file).is_ok_and(|text| self.read(&text).is_some())
    }

    /// Parses one line; returns `None` if it does not belong to a snapshot.
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
