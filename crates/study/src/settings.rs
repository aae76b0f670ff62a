//! How large a study is.

use buddy_workloads::Info;
use serde_json::json;

use crate::Key;

/// The scale and the seed of a study. Everything else follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Its name: `quick`, `default` or `full`.
    pub name: &'static str,
    /// Bytes of every program, or the paper's footprint.
    pub bytes: Option<u64>,
    /// Warp instructions of a network's iteration that are simulated, about.
    pub network_instructions: u64,
    /// Seed of whatever is random.
    pub seed: u64,
}

impl Settings {
    /// Every stage in less than two minutes.
    pub const QUICK: Self =
        Self { name: "quick", bytes: Some(4_000_000), network_instructions: 2_000_000, seed: 1 };
    /// What docs/explain/results.md shows.
    pub const DEFAULT: Self =
        Self { name: "default", bytes: Some(64_000_000), network_instructions: 60_000_000, seed: 1 };
    /// The paper's footprints, which take hours.
    pub const FULL: Self = Self { name: "full", bytes: None, network_instructions: 1_000_000_000, seed: 1 };

    /// Bytes of a program, never more than the paper has.
    pub fn bytes_of(&self, info: &Info) -> u64 {
        self.bytes.unwrap_or(info.paper_bytes).min(info.paper_bytes)
    }

    /// What a reader should know of it.
    pub fn describe(&self) -> String {
        match self.bytes {
            Some(bytes) => format!("{}, HPC programs of {} MB", self.name, bytes / 1_000_000),
            None => format!("{}, HPC programs of the paper's footprints", self.name),
        }
    }

    /// What a reader must know before he takes a figure for a result; empty where figures are results.
    pub fn caution(&self) -> String {
        if *self != Self::QUICK {
            return String::new();
        }
        "TOY SIZE: programs of 4 MB and a sliver of each training iteration. These figures show that every stage runs; they are \
         not results, and differ from the paper's because of the size alone. For results: buddy reproduce --out DIR (64 MB, \
         less than 45 minutes on two cores)."
            .to_owned()
    }

    /// Where the memory of a program is kept, and what decides it.
    pub(crate) fn program_key(&self, info: &Info) -> Key {
        let inputs = json!({ "program": info.name, "bytes": self.bytes_of(info), "seed": self.seed });
        Key { name: format!("program-{}", info.name), inputs }
    }
}
