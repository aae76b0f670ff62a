//! Speed of the simulator on this machine.

use buddy_record::RecordKind;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Error, Key, bench};

/// Result on one fixed trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedRow {
    /// Its name among the simulator's fixed traces.
    pub trace: String,
    /// Warp instructions per run.
    pub instructions: u64,
    /// Million warp instructions per second, the faster of two runs.
    pub million_per_s: f64,
}

impl SpeedRow {
    /// Returns Accel-Sim's speed on a similar trace.
    pub fn accel_sim(&self) -> Option<f64> {
        bench::accel_sim_million_per_s(&self.trace)
    }
}

/// A row for every fixed trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Speed {
    pub(crate) rows: Vec<SpeedRow>,
}

impl RecordKind for Speed {
    const KIND: &'static str = "simulator-speed";
    const VERSION: u32 = 1;
}

const TRIES: u32 = 2;

pub(crate) fn key() -> Key {
    Key { name: "speed".to_owned(), inputs: json!({ "traces": bench::TRACES, "length": 1, "tries": TRIES }) }
}

/// Times every fixed trace in sequence.
pub(crate) fn measure() -> Result<Speed, Error> {
    let row = |trace: &&str| {
        let speed = bench::time(trace, 1, TRIES, 1)?;
        let (instructions, million_per_s) = (speed.instructions, speed.million_per_s());
        Ok(SpeedRow { trace: (*trace).to_owned(), instructions, million_per_s })
    };
    Ok(Speed { rows: bench::TRACES.iter().map(row).collect::<Result<_, Error>>()? })
}
