//! How fast the simulator is on this machine.

use std::time::Instant;

use buddy_core::RecordKind;
use buddy_sim::{Simulator, bench};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Error, Key, Point};

/// The simulator on one of its fixed traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedRow {
    /// The trace.
    pub trace: String,
    /// Warp instructions.
    pub instructions: u64,
    /// Million of them a second, the best of two tries.
    pub million_per_s: f64,
}

impl SpeedRow {
    /// The rate of Accel-Sim on such a trace.
    pub fn accel_sim(&self) -> Option<f64> {
        bench::accel_sim_million_per_s(&self.trace)
    }
}

/// All of them.
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

/// Times every trace.
pub(crate) fn measure() -> Result<Speed, Error> {
    let rows: Result<_, Error> = bench::TRACES.iter().map(|trace| time(trace)).collect();
    Ok(Speed { rows: rows? })
}

fn time(trace: &str) -> Result<SpeedRow, Error> {
    let wrong = |source| Error::Simulation { point: trace.to_owned(), source };
    let config = Point::new(trace, buddy_sim::Mode::Ideal).config().map_err(wrong)?;
    let (mut seconds, mut instructions) = (f64::INFINITY, 0);
    for _ in 0..TRIES {
        let mut simulator = Simulator::new(config.clone());
        let begin = Instant::now();
        for mut kernel in bench::trace(trace, 1) {
            simulator.run(kernel.as_mut(), &mut |_| true).map_err(wrong)?;
        }
        seconds = seconds.min(begin.elapsed().as_secs_f64());
        instructions = simulator.instructions();
    }
    let million_per_s = instructions as f64 / seconds / 1e6;
    Ok(SpeedRow { trace: trace.to_owned(), instructions, million_per_s })
}
