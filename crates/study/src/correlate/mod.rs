//! Correlation of the model with a real GPU: traces with measured times, simulated on the model of
//! the GPU.
//!
//! A folder holds the traces and `measured.json`, a list with the file, description and time
//! (cycles or nanoseconds) of each. The result is a record; tables, pictures and figure 10 are
//! functions of it.

mod draw;
mod measured;

use std::path::{Component, Path};

use buddy_record::RecordKind;
use buddy_sim::{Config, Simulator, spec};
use buddy_trace::{Problem, open_kernel};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

pub use self::{
    draw::{chart, panels, summary, table},
    measured::{Measured, read_measured},
};
use crate::{arithmetic, correlation};

/// Simulated and measured times of a set of traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Correlation {
    /// Description of the set, such as `small kernels`.
    pub what: String,
    /// The measured GPU.
    pub card: String,
    /// Name of the model.
    pub spec: String,
    /// Clock of the model in MHz.
    pub clock_mhz: f64,
    /// All kernels.
    pub rows: Vec<CorrelationRow>,
    /// Agreement of all kernels, then by group.
    pub groups: Vec<Agreement>,
}

impl RecordKind for Correlation {
    const KIND: &'static str = "correlation";
    const VERSION: u32 = 1;
}

/// One kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorrelationRow {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Measured nanoseconds; cycles are converted with the model's clock.
    pub card_ns: f64,
    /// Simulated nanoseconds.
    pub model_ns: f64,
    /// Warp instructions.
    pub instructions: u64,
    /// Warp instructions with guessed timing.
    pub unknown: u64,
    /// Bytes read from device memory on the GPU, if counted.
    pub card_read_bytes: Option<u64>,
    /// Bytes read from device memory on the model.
    pub model_read_bytes: u64,
}

impl CorrelationRow {
    /// Returns simulated time over measured time.
    pub fn ratio(&self) -> f64 {
        self.model_ns / self.card_ns
    }

    /// Returns the absolute error relative to the measured time.
    pub fn error(&self) -> f64 {
        (self.ratio() - 1.0).abs()
    }
}

/// Agreement over a group of kernels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agreement {
    /// The group; `all` for every kernel.
    pub group: String,
    /// Number of kernels.
    pub kernels: usize,
    /// Mean error.
    pub mean_error: f64,
    /// Median error.
    pub median_error: f64,
    /// Mean signed error; negative if the model is too fast.
    pub mean_signed_error: f64,
    /// Correlation of the times.
    pub r: Option<f64>,
    /// Correlation of their logarithms.
    pub r_log: Option<f64>,
}

impl Agreement {
    fn of<'a>(group: &str, rows: impl Iterator<Item = &'a CorrelationRow> + Clone) -> Self {
        let mut errors: Vec<f64> = rows.clone().map(CorrelationRow::error).collect();
        errors.sort_by(f64::total_cmp);
        let pairs: Vec<(f64, f64)> = rows.clone().map(|row| (row.card_ns, row.model_ns)).collect();
        let logs: Vec<(f64, f64)> = pairs.iter().map(|(card, model)| (card.ln(), model.ln())).collect();
        let middle = errors.len() / 2;
        let median = match errors.len() % 2 {
            0 if middle > 0 => (errors[middle - 1] + errors[middle]) / 2.0,
            _ => errors.get(middle).copied().unwrap_or_default(),
        };
        Self {
            group: group.to_owned(),
            kernels: errors.len(),
            mean_error: arithmetic(errors.iter().copied()).unwrap_or_default(),
            median_error: median,
            mean_signed_error: arithmetic(rows.map(|row| row.ratio() - 1.0)).unwrap_or_default(),
            r: correlation(&pairs),
            r_log: correlation(&logs),
        }
    }
}

impl Correlation {
    /// Creates a correlation from rows and computes the agreement.
    pub fn new(what: &str, card: &str, gpu: &spec::Gpu, rows: Vec<CorrelationRow>) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for row in &rows {
            if !names.contains(&row.group.as_str()) {
                names.push(&row.group);
            }
        }
        let mut groups = vec![Agreement::of("all", rows.iter())];
        groups.extend(
            names.iter().map(|name| Agreement::of(name, rows.iter().filter(|row| row.group == **name))),
        );
        Self {
            what: what.to_owned(),
            card: card.to_owned(),
            spec: gpu.name.clone(),
            clock_mhz: gpu.core.clock_mhz,
            rows,
            groups,
        }
    }

    /// Returns the `count` kernels with the largest ratio errors.
    pub fn worst(&self, count: usize) -> Vec<&CorrelationRow> {
        let mut rows: Vec<&CorrelationRow> = self.rows.iter().collect();
        rows.sort_by(|a, b| b.ratio().ln().abs().total_cmp(&a.ratio().ln().abs()));
        rows.truncate(count);
        rows
    }
}

/// Simulates every trace of a folder; `done` is called after each.
///
/// # Errors
/// [`buddy_sim::Error`] of the first trace that cannot be read or run.
pub fn compare(
    folder: &Path,
    measured: &[Measured],
    config: &Config,
    done: impl Fn(&CorrelationRow) + Sync,
) -> Result<Vec<CorrelationRow>, buddy_sim::Error> {
    let one = |measured: &Measured| {
        let row = run(folder, measured, config)?;
        done(&row);
        Ok(row)
    };
    measured.par_iter().map(one).collect()
}

fn run(folder: &Path, measured: &Measured, config: &Config) -> Result<CorrelationRow, buddy_sim::Error> {
    let name = Path::new(&measured.trace);
    if !name.components().all(|part| matches!(part, Component::Normal(_))) {
        let (file, problem) = (folder.display().to_string(), Problem::Outside(measured.trace.clone()));
        return Err(buddy_trace::Error { file, line: 0, problem }.into());
    }
    let path = folder.join(name);
    let mut simulator = Simulator::new(config.clone());
    let mut before = 0;
    if measured.warm {
        simulator.run(open_kernel(&path)?.as_mut(), &mut |_| true)?;
        before = simulator.report().dram.read_bytes;
    }
    simulator.run(open_kernel(&path)?.as_mut(), &mut |_| true)?;
    let report = simulator.report();
    let kernel = report.kernels.last().expect("one was run");
    let ns = |cycles: f64| cycles * 1e3 / config.gpu.core.clock_mhz;
    Ok(CorrelationRow {
        name: measured.name(),
        group: measured.group(),
        card_ns: measured.cycles.map_or(measured.ns, ns),
        model_ns: ns(kernel.cycles as f64),
        instructions: kernel.instructions,
        unknown: kernel.unknown_opcodes.values().sum(),
        card_read_bytes: measured.dram_read_bytes,
        model_read_bytes: report.dram.read_bytes - before,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, group: &str, card_ns: f64, model_ns: f64) -> CorrelationRow {
        CorrelationRow {
            name: name.to_owned(),
            group: group.to_owned(),
            card_ns,
            model_ns,
            instructions: 1,
            unknown: 0,
            card_read_bytes: None,
            model_read_bytes: 0,
        }
    }

    #[test]
    fn errors_by_group() {
        let gpu = spec::Gpu::named("h200").unwrap();
        let rows = vec![row("a", "x", 10.0, 11.0), row("b", "x", 100.0, 70.0), row("c", "y", 1000.0, 2000.0)];
        let all = Correlation::new("three", "none", &gpu, rows);
        let found: Vec<(&str, usize)> =
            all.groups.iter().map(|one| (one.group.as_str(), one.kernels)).collect();
        assert_eq!(found, [("all", 3), ("x", 2), ("y", 1)]);
        assert!((all.groups[0].mean_error - 1.4 / 3.0).abs() < 1e-9);
        assert!((all.groups[0].median_error - 0.3).abs() < 1e-9);
        assert!((all.groups[1].median_error - 0.2).abs() < 1e-9);
        assert!((all.groups[1].mean_signed_error + 0.1).abs() < 1e-9);
        assert_eq!(all.worst(2).iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["c", "b"]);
        assert!(all.groups[0].r_log.unwrap() > 0.97 && all.groups[2].r.is_none());
    }
}
