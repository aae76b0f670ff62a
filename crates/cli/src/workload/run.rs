//! `buddy workload run`.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Context, Result, bail};
use buddy_codec::CodecKind;
use buddy_profile::{
    DEFAULT_THRESHOLD, Measured, Observer, Place, Rows, Tried, candidates, drop_beaten, train,
};
use buddy_record::{Record, RunInfo, SnapshotInfo};
use buddy_report::{bytes, run_picture};
use buddy_scenario::{Scale, parse_scale};
use buddy_snapshot::{RunWriter, write_atomic};
use buddy_workloads::{ALL, Check, Info, SNAPSHOTS, Workload, describe, run};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use crate::{output, progress::Bar};

/// Run a workload and save its memory at ten evenly spaced points in time
///
/// The snapshots form a run directory (docs/reference/snapshots.md): run.json and one .safetensors
/// file per snapshot. Free disk space for all ten is checked first. An interrupted run keeps the
/// complete snapshots and no partial one.
///
/// The program checks its own answer; the exit code is 1 if it is wrong.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    /// Name of the workload, or all to run them in sequence
    #[arg(value_parser = name_parser())]
    name: String,

    /// Footprint: a share of the paper's (0.25, 1) or a size (16MB, 1GiB), from 1MB to the paper's
    #[arg(long, value_name = "SCALE", value_parser = parse_scale)]
    scale: Scale,

    /// Directory to write to, new or empty; all writes one directory NAME per workload into it
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Write only the record of the run, DIR/NAME.json: sizes and sampled pages, measured in place
    #[arg(long)]
    record: bool,

    /// With --record: draw three snapshots as heat maps, DIR/NAME.svg
    #[arg(long, value_name = "DIR", requires = "record")]
    maps: Option<PathBuf>,

    /// Seed of the program's random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const EXAMPLES: &str = "\
Examples:
  Snapshots of a small run, and the compressibility of the last one:
    buddy workload run cg --scale 16MB --out cg
    buddy analyze cg/snapshot-9.safetensors

  Records of all workloads at a quarter of the paper's footprint:
    buddy workload run all --scale 0.25 --record --out records";

/// Returns a parser of workload names and `all`.
fn name_parser() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(ALL.iter().map(|info| info.name).chain(["all"]))
}

impl Run {
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<()> {
        let chosen: Vec<&Info> =
            ALL.iter().filter(|info| self.name == "all" || self.name == info.name).collect();
        for info in &chosen {
            self.scale.bytes(info)?;
            self.check_output(info)?;
        }
        let mut wrong = Vec::new();
        for info in chosen {
            if !self.run_one(info).with_context(|| format!("workload {}", info.name))? {
                wrong.push(info.name);
            }
        }
        if !wrong.is_empty() {
            bail!("wrong answers: {}", wrong.join(", "));
        }
        Ok(())
    }

    /// Returns the path of a workload's run or record.
    fn path(&self, info: &Info) -> PathBuf {
        match (self.record, self.name.as_str()) {
            (true, _) => self.out.join(format!("{}.json", info.name)),
            (false, "all") => self.out.join(info.name),
            (false, _) => self.out.clone(),
        }
    }

    /// Checks the output before the program runs.
    fn check_output(&self, info: &Info) -> Result<()> {
        let path = self.path(info);
        if self.record && path.exists() {
            bail!("{}: exists already; give another directory", path.display());
        }
        if !self.record && fs::read_dir(&path).is_ok_and(|mut files| files.next().is_some()) {
            bail!("{}: is not empty; give a new directory", path.display());
        }
        if self.out.exists() && !self.out.is_dir() {
            bail!("{}: is not a directory", self.out.display());
        }
        Ok(())
    }

    /// Runs one workload to its end; returns whether its answer is right.
    fn run_one(&self, info: &Info) -> Result<bool> {
        let mut workload = (info.build)(self.scale.bytes(info)?, self.seed);
        let described = describe(info, workload.as_ref(), self.seed);
        let start = format!(
            "{}: {} in {} arrays, {} steps, seed {}",
            info.name,
            bytes(described.bytes()),
            described.allocations.len(),
            workload.steps(),
            self.seed,
        );
        let path = self.path(info);
        let checks = if self.record {
            print(start)?;
            self.record(info, workload.as_mut(), &described)?
        } else {
            let writer = RunWriter::create(&path, described, SNAPSHOTS as usize)?;
            print(start)?;
            snapshots(workload.as_mut(), writer)?
        };
        for check in &checks {
            print(line(check))?;
        }
        print(format_args!("  wrote {}", path.display()))?;
        Ok(checks.iter().all(Check::passed))
    }

    /// Runs a workload, measures it in place ten times, and writes the record: the paper's codec,
    /// and every other codec that is the best choice for some allocation.
    fn record(&self, info: &Info, workload: &mut dyn Workload, described: &RunInfo) -> Result<Vec<Check>> {
        for dir in [Some(&self.out), self.maps.as_ref()].into_iter().flatten() {
            output::make_folder(dir)?;
        }
        let kinds = candidates(Place::Memory);
        let (observer, checks) = observe(workload, described, &kinds, |_| Rows::RECORD)?;
        let mut seen = observer.finish(DEFAULT_THRESHOLD, true).to_record();
        drop_beaten(&mut seen, kinds[0].name());
        let mut record = Record::new(seen);
        record.seed = Some(self.seed);
        // Without line breaks: a record has thousands of small numbers and is read by programs.
        let json = serde_json::to_string(&record).context("cannot serialise the record")?;
        write_atomic(&self.path(info), |out| writeln!(out, "{json}"))?;
        if let Some(dir) = &self.maps {
            output::write(&dir.join(info.name).with_extension("svg"), &run_picture(&record.data))?;
        }
        Ok(checks)
    }
}

/// Runs a workload of `bytes` bytes and measures its memory in place ten times, without using the
/// disk.
pub(crate) fn measure(info: &Info, bytes: u64, tried: &Tried) -> Result<Measured> {
    let mut workload = (info.build)(bytes, 1);
    let described = describe(info, workload.as_ref(), 1);
    // Only the last snapshot is drawn.
    let rows = |look| if look + 1 == SNAPSHOTS { Rows::PROFILE } else { Rows::NONE };
    let (observer, checks) = observe(workload.as_mut(), &described, &tried.all_kinds(), rows)?;
    if let Some(wrong) = checks.iter().find(|check| !check.passed()) {
        bail!("workload {}: wrong answer:{}", info.name, line(wrong));
    }
    Ok(observer.finish(tried.threshold, tried.auto))
}

/// Runs a workload and measures it in place ten times; `rows` selects what is kept of snapshot i,
/// from 0.
fn observe(
    workload: &mut dyn Workload,
    described: &RunInfo,
    kinds: &[CodecKind],
    rows: impl Fn(u64) -> Rows,
) -> Result<(Observer, Vec<Check>)> {
    let mut observer: Option<Observer> = None;
    let mut looks = 0;
    let checks = watched(workload, |step, arrays| {
        let begin = || Observer::new(described.clone(), train(arrays, kinds));
        let snapshot = SnapshotInfo { step, label: String::new(), file: None };
        observer.get_or_insert_with(begin).add(snapshot, arrays, rows(looks), &|_| ());
        looks += 1;
        Ok(())
    })?;
    Ok((observer.context("the run has no snapshot")?, checks))
}

/// Runs a workload and writes ten snapshots to disk.
fn snapshots(workload: &mut dyn Workload, mut writer: RunWriter) -> Result<Vec<Check>> {
    watched(workload, |step, arrays| Ok(writer.write(step, arrays)?))
}

/// Runs a workload with a progress bar; `look` gets the arrays of each of the ten snapshots.
fn watched(
    workload: &mut dyn Workload,
    mut look: impl FnMut(u64, &[&[u8]]) -> Result<()>,
) -> Result<Vec<Check>> {
    let bar = Bar::steps(workload.steps());
    let checks = run(workload, |step, workload| {
        if step.look {
            let arrays: Vec<&[u8]> =
                workload.allocations().iter().map(|allocation| allocation.bytes).collect();
            look(step.done, &arrays)?;
        }
        bar.add(1);
        Ok(())
    });
    bar.finish();
    checks
}

fn line(check: &Check) -> String {
    let verdict = if check.passed() { "pass" } else { "FAIL" };
    let [measured, expected, tolerance] = [check.measured, check.expected, check.tolerance].map(number);
    format!("  {verdict}  {}: {measured}, expected {expected} within {tolerance}", check.what)
}

/// Formats a number with at most twelve significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if (1e-4..1e9).contains(&size) => {
            let decimals = (11 - size.log10().floor() as i32).clamp(0, 15) as usize;
            format!("{value:.decimals$}").trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        0.0 => "0".to_owned(),
        _ => format!("{:e}", format!("{value:.3e}").parse().unwrap_or(value)),
    }
}

fn print(line: impl std::fmt::Display) -> Result<()> {
    writeln!(io::stdout(), "{line}").context("cannot write to stdout")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_at_most_twelve_digits() {
        let shown = [0.0, 1.0, 8.597_177_507_864_8, 202_507.5, -0.25, 1e-10, 2.7e-17, f64::NAN].map(number);
        assert_eq!(shown, ["0", "1", "8.59717750786", "202507.5", "-0.25", "1e-10", "2.7e-17", "NaN"]);
    }
}
