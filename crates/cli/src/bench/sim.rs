//! `buddy bench sim`.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Context, Result};
use buddy_record::{Record, RecordKind};
use buddy_snapshot::write_atomic;
use buddy_study::bench;
use clap::Args;
use serde::{Deserialize, Serialize};

/// Time the simulator with four fixed traces
///
/// Speeds are millions of warp instructions per second, the best of several runs, on the paper's
/// GPU in ideal mode. Times are CPU seconds on Linux, and wall-clock seconds elsewhere or with
/// several threads. The last column is Accel-Sim's speed on similar traces, measured earlier on a
/// similar machine.
#[derive(Args)]
#[command(after_help = "Examples:
  buddy bench sim
  buddy bench sim --trace streaming --length 10
  buddy bench sim --threads 2")]
pub(crate) struct Sim {
    /// Time only these traces: arithmetic, streaming, mixed, random
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(bench::TRACES))]
    trace: Vec<String>,
    /// Multiply the number of instructions by N
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    length: u32,
    /// Runs per trace; the fastest counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    tries: u32,
    /// Threads of a simulation
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Write the results as a record
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// Results of one run.
#[derive(Debug, Serialize, Deserialize)]
struct SimBench {
    length: u32,
    #[serde(default = "one")]
    threads: u32,
    rows: Vec<Row>,
}

impl RecordKind for SimBench {
    const KIND: &'static str = "bench-sim";
    const VERSION: u32 = 1;
}

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    trace: String,
    instructions: u64,
    cycles: u64,
    seconds: f64,
    million_per_s: f64,
    /// Accel-Sim's speed in million instructions per second; `None` without a matching trace.
    accel_sim: Option<f64>,
}

impl Sim {
    pub(crate) fn run(self) -> Result<()> {
        let all = bench::TRACES.map(str::to_owned).to_vec();
        let traces = if self.trace.is_empty() { all } else { self.trace };
        let mut out = io::stdout().lock();
        writeln!(out, "trace        instructions      cycles   seconds   M/s    Accel-Sim M/s")
            .context(STDOUT)?;
        let mut rows = Vec::new();
        for trace in traces {
            let row = Row::new(&trace, self.length, self.tries, self.threads)?;
            let peer = row.accel_sim.map_or("-".to_owned(), |rate| format!("{rate:.5}"));
            let Row { instructions, cycles, seconds, million_per_s, .. } = &row;
            writeln!(
                out,
                "{trace:<12} {instructions:>12} {cycles:>11} {seconds:>9.2} {million_per_s:>5.1}   {peer:>13}"
            )
            .context(STDOUT)?;
            rows.push(row);
        }
        if let Some(path) = self.json {
            let record = Record::new(SimBench { length: self.length, threads: self.threads, rows }).to_json();
            write_atomic(&path, |out| out.write_all(record.as_bytes()))?;
        }
        Ok(())
    }
}

/// Threads of records from before there was a choice.
fn one() -> u32 {
    1
}

const STDOUT: &str = "cannot write to stdout";

impl Row {
    fn new(trace: &str, length: u32, tries: u32, threads: u32) -> Result<Self> {
        let speed = bench::time(trace, length, tries, threads as usize)?;
        Ok(Self {
            trace: trace.to_owned(),
            instructions: speed.instructions,
            cycles: speed.cycles,
            seconds: speed.seconds,
            million_per_s: speed.million_per_s(),
            accel_sim: bench::accel_sim_million_per_s(trace),
        })
    }
}
