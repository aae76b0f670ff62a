//! Scale of a study.

use buddy_workloads::Info;
use serde_json::json;

use crate::Key;

/// Scale and seed of a study; everything else follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Its name: `quick`, `default` or `full`.
    pub name: &'static str,
    /// Footprint of every program in bytes; `None` for the paper's.
    pub bytes: Option<u64>,
    /// Approximate number of simulated warp instructions of a network's iteration.
    pub network_instructions: u64,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl Settings {
    /// Every stage in less than two minutes.
    pub const QUICK: Self =
        Self { name: "quick", bytes: Some(4_000_000), network_instructions: 2_000_000, seed: 1 };
    /// The scale of docs/explain/results.md.
    pub const DEFAULT: Self =
        Self { name: "default", bytes: Some(64_000_000), network_instructions: 60_000_000, seed: 1 };
    /// The paper's footprints, which take hours.
    pub const FULL: Self = Self { name: "full", bytes: None, network_instructions: 1_000_000_000, seed: 1 };

    /// Returns the footprint of a program, at most the paper's.
    pub fn bytes_of(&self, info: &Info) -> u64 {
        self.bytes.unwrap_or(info.paper_bytes).min(info.paper_bytes)
    }

    /// Returns the footprint of a smaller run of a program, whose targets the large one takes.
    pub fn smaller_bytes_of(&self, info: &Info) -> u64 {
        self.bytes_of(info) / 8
    }

    /// Describes the scale.
    pub fn describe(&self) -> String {
        match self.bytes {
            Some(bytes) => format!("{}, HPC programs of {} MB", self.name, bytes / 1_000_000),
            None => format!("{}, HPC programs of the paper's footprints", self.name),
        }
    }

    /// Returns a warning that the figures are not results; empty if they are.
    pub fn caution(&self) -> String {
        if *self != Self::QUICK {
            return String::new();
        }
        "TOY SIZE: programs of 4 MB and a small sample of each training iteration. These figures only show that every \
         stage runs; they are not results. For results: buddy reproduce --out DIR (64 MB, less than 45 minutes on two \
         cores)."
            .to_owned()
    }

    /// Returns the key of a program's memory.
    pub(crate) fn program_key(&self, info: &Info) -> Key {
        let inputs = json!({ "program": info.name, "bytes": self.bytes_of(info), "seed": self.seed });
        Key { name: format!("program-{}", info.name), inputs }
    }

    /// Returns the key of the memory of a smaller run.
    pub(crate) fn smaller_key(&self, info: &Info) -> Key {
        let inputs = json!({ "program": info.name, "bytes": self.smaller_bytes_of(info), "seed": self.seed });
        Key { name: format!("smaller-{}", info.name), inputs }
    }
}
