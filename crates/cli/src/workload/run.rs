//! `buddy workload run`.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Context, Result, bail};
use buddy_codec::CodecKind;
use buddy_core::{Record, RunInfo, SnapshotInfo};
use buddy_profile::{DEFAULT_THRESHOLD, Measured, Observer, Rows, Tried, candidates, drop_beaten, train};
use buddy_report::{bytes, run_picture};
use buddy_scenario::{Scale, parse_scale};
use buddy_snapshot::{RunWriter, write_atomic};
use buddy_workloads::{ALL, Check, Info, SNAPSHOTS, Workload, describe, run};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use crate::{output, progress::Bar};

/// Run a workload and write what its memory holds at ten evenly spaced times
///
/// The snapshots are a run directory (docs/reference/snapshots.md): run.json and a .safetensors file each. The disk must
/// have room for all ten, which is looked at first. An interrupted run leaves the snapshots that are complete, and
/// no half one.
///
/// The program checks its own answer; the exit code is 1 if it is wrong.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    /// Which one, or all of them one after the other
    #[arg(value_parser = name_parser())]
    name: String,

    /// Footprint: a share of the paper's (0.25, 1) or a size (16MB, 1GiB), from 1MB to the paper's
    #[arg(long, value_name = "SCALE", value_parser = parse_scale)]
    scale: Scale,

    /// Directory to write to: new or empty, for a run; all runs go to directories in it, NAME for each
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Write only the record of the run, DIR/NAME.json: sizes and sampled pages, measured in place
    #[arg(long)]
    record: bool,

    /// With --record: draw three of the snapshots as heat maps, DIR/NAME.svg
    #[arg(long, value_name = "DIR", requires = "record")]
    maps: Option<PathBuf>,

    /// Seed of whatever is random in the program
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const EXAMPLES: &str = "\
Examples:
  Snapshots of a small run, and how compressible the last one is:
    buddy workload run cg --scale 16MB --out cg
    buddy analyze cg/snapshot-9.safetensors

  All of them at a quarter of the paper's footprint, without their bytes:
    buddy workload run all --scale 0.25 --record --out records";

/// Takes the name of any workload, or `all`.
fn name_parser() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(ALL.iter().map(|info| info.name).chain(["all"]))
}

impl Run {
    /// Does the verb's job.
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

    /// Where the run or the record of one workload goes.
    fn path(&self, info: &Info) -> PathBuf {
        match (self.record, self.name.as_str()) {
            (true, _) => self.out.join(format!("{}.json", info.name)),
            (false, "all") => self.out.join(info.name),
            (false, _) => self.out.clone(),
        }
    }

    /// Looks for what cannot be written before the program runs, not after.
    fn check_output(&self, info: &Info) -> Result<()> {
        let path = self.path(info);
        if self.record && path.exists() {
            bail!("{}: there is a file of this name; give another directory", path.display());
        }
        if !self.record && fs::read_dir(&path).is_ok_and(|mut files| files.next().is_some()) {
            bail!("{}: this directory is not empty; give a new one for a new run", path.display());
        }
        if self.out.exists() && !self.out.is_dir() {
            bail!("{}: this is not a directory", self.out.display());
        }
        Ok(())
    }

    /// Runs one to its end; says whether its answer is right.
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

    /// Runs with every tenth measured in place, and writes the record at the end: with the paper's codec and every other
    /// one that is the best choice for something.
    fn record(&self, info: &Info, workload: &mut dyn Workload, described: &RunInfo) -> Result<Vec<Check>> {
        for dir in [Some(&self.out), self.maps.as_ref()].into_iter().flatten() {
            output::make_folder(dir)?;
        }
        let kinds = candidates();
        let (observer, checks) = observe(workload, described, &kinds, |_| Rows::RECORD)?;
        let mut seen = observer.finish(DEFAULT_THRESHOLD, true).to_record();
        drop_beaten(&mut seen, kinds[0].name());
        let mut record = Record::new(seen);
        record.seed = Some(self.seed);
        // Without line breaks: a record has thousands of small numbers, and programs read it.
        let json = serde_json::to_string(&record).context("the record is no JSON")?;
        write_atomic(&self.path(info), |out| writeln!(out, "{json}"))?;
        if let Some(dir) = &self.maps {
            output::write(&dir.join(info.name).with_extension("svg"), &run_picture(&record.data))?;
        }
        Ok(checks)
    }
}

/// Runs a workload of so many bytes with its memory measured in place after each tenth, which no disk needs to hold.
pub(crate) fn measure(info: &Info, bytes: u64, tried: &Tried) -> Result<Measured> {
    let mut workload = (info.build)(bytes, 1);
    let described = describe(info, workload.as_ref(), 1);
    // Pictures are of the last look.
    let rows = |look| if look + 1 == SNAPSHOTS { Rows::PROFILE } else { Rows::NONE };
    let (observer, checks) = observe(workload.as_mut(), &described, &tried.all_kinds(), rows)?;
    if let Some(wrong) = checks.iter().find(|check| !check.passed()) {
        bail!("workload {}: a wrong answer:{}", info.name, line(wrong));
    }
    Ok(observer.finish(tried.threshold, tried.auto))
}

/// Runs with every tenth measured in place; `rows` says what is kept of each look, from 0.
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
    Ok((observer.context("the run was never looked at")?, checks))
}

/// Runs with every tenth written to disk.
fn snapshots(workload: &mut dyn Workload, mut writer: RunWriter) -> Result<Vec<Check>> {
    watched(workload, |step, arrays| Ok(writer.write(step, arrays)?))
}

/// Runs under a progress bar; `look` gets the arrays after each tenth.
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

/// A number as short as its twelve leading digits allow.
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
    fn numbers_are_short_and_exact_enough() {
        let shown = [0.0, 1.0, 8.597_177_507_864_8, 202_507.5, -0.25, 1e-10, 2.7e-17, f64::NAN].map(number);
        assert_eq!(shown, ["0", "1", "8.59717750786", "202507.5", "-0.25", "1e-10", "2.7e-17", "NaN"]);
    }
}
