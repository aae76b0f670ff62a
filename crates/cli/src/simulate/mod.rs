//! `buddy simulate`: time and traffic of a program on a modelled GPU.

mod grid;
mod llm;
mod measures;
mod output;
mod page;
mod ranges;
mod refuse;
mod stage;

use std::{collections::HashSet, path::PathBuf, sync::atomic::Ordering};

use anyhow::{Result, bail};
use buddy_codec::CodecKind;
use buddy_dl::Network;
use buddy_scenario::{
    Case, Done, Input, Point, Scale, Scenario, Share, Source, Stage, TargetChoice, baselines, parse_mib,
    parse_mode, parse_sample, parse_scale,
};
use buddy_sim::Mode;
use buddy_snapshot::write_atomic;
use buddy_sweep::{Axis, Plan};
use buddy_trace::pattern::PROGRAMS;
use buddy_workloads::ALL;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

use self::{grid::Shares, stage::open};
use crate::{INTERRUPTED, STOPS_GRACEFULLY, machine, output as files, say};

/// Link of a run without the option.
const LINK: &str = "150";
/// Cycles between two samples of a timeline.
const SAMPLE_CYCLES: u64 = 500;

/// Simulate a workload, a network, a trace or a generated program on a modelled GPU
///
/// Modes: ideal (unlimited device memory), bandwidth (data is compressed only between L2 and device
/// memory), compressible (an H200's own compression, fitted to micro kernels and not validated on
/// programs), buddy (Buddy Compression), pinned (all data in host memory) and um (Unified Memory).
///
/// A workload runs first, and its memory is compressed at ten points in time. The simulation uses
/// the snapshot whose ratio is nearest to the run's mean. Targets follow the policy allocation-16x,
/// or --targets: a ratio, or a file written by `buddy profile`.
///
/// A network is one training iteration, or a sample of it; its tensors compress like those in the
/// record of a real run. Other programs need --targets in the modes that compress: a ratio for all
/// allocations (with --shares), or a TOML file of address ranges.
///
/// A sweep simulates every combination of its values, one simulation per core. An interrupted sweep
/// reports the finished runs.
#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Simulate {
    #[command(subcommand)]
    other: Option<Other>,

    #[arg(required = true, help = program_help())]
    what: Option<String>,

    #[arg(long, value_name = "GPU", default_value = "paper", help = machine::gpu_help("GPU"))]
    spec: String,

    /// Memory mode: ideal, bandwidth, compressible, buddy, pinned or um
    #[arg(long, default_value = "ideal", value_parser = parse_mode)]
    mode: Mode,

    #[arg(long, help = format!("{} [default: 150]", machine::link_help("Link")))]
    link: Option<String>,

    /// Target of all allocations (1x, 4/3x, 2x, 4x, 16x), a TOML file of targets, or a rule:
    /// compressed, capacity:RATIO, imposed:RATIO,OVERFLOW,STORED (docs/guide/sweeps.md)
    #[arg(long, value_name = "RATIO|PATH|RULE")]
    targets: Option<String>,

    /// Footprint of a workload: a share of the paper's (0.25, 1) or a size (16MB, 1GiB), from 1MB
    /// to the paper's [default: 16MB]
    #[arg(long, value_name = "SCALE", value_parser = parse_scale)]
    scale: Option<Scale>,

    /// Snapshot of the workload to simulate, 0 to 9 [default: the one nearest the mean ratio]
    #[arg(long, value_name = "N", value_parser = grid::snapshot)]
    snapshot: Option<usize>,

    /// Codec of a workload's or network's memory [default: bpc]; targets files name their own.
    /// Traces and generated programs have no data: use --shares or a targets file for those
    #[arg(long, value_name = "NAME")]
    codec: Option<CodecKind>,

    /// Batch size of a network [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    batch: Option<u64>,

    /// Share of a network's iteration to simulate, above 0 to 1; samples short runs of blocks of
    /// each kernel [default: 0.01]
    #[arg(long, value_name = "SHARE", value_parser = parse_sample)]
    sample: Option<f64>,

    /// Read the recorded training runs (NAME.json for each network) from this folder instead of the
    /// built-in ones
    #[arg(long, value_name = "DIR")]
    recorded: Option<PathBuf>,

    /// Compressibility of a trace or generated program: shares of zero, b8, s1, s2, s3 and raw
    /// entries [default: 0,0,0.3,0.6,0,0.1]
    #[arg(long, value_name = "S,S,S,S,S,S", value_parser = grid::shares)]
    shares: Option<Shares>,

    /// Memory of a generated program in MiB, or with a unit (64MiB) [default: 64]
    #[arg(long, value_name = "SIZE", value_parser = parse_mib)]
    size: Option<u64>,

    /// Mode um: share of memory that does not fit the device, 0 to 0.5
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = Share::parse)]
    oversubscription: Share,

    /// Include the time of the trace's copies from the host
    #[arg(long)]
    timed_copies: bool,

    /// Threads of each simulation, on as many idle cores; the result is the same for any number. The
    /// runs of a sweep need none: they run beside each other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,

    /// Vary one setting: any key of a plan (`buddy sweep --help`), such as mode, link, spec,
    /// targets, policy, threshold, codec, metadata, or a field of the GPU (l2.bytes); values may be
    /// a range (50..200 step 50)
    #[arg(long, value_name = "KEY=V1,V2", value_parser = Axis::parse)]
    sweep: Vec<Axis>,

    /// Print the address ranges of a trace or generated program as a targets file to edit, without
    /// simulating
    #[arg(long, conflicts_with_all = [
        "sweep", "json", "html", "timeline", "targets", "spec", "mode", "link", "codec", "snapshot",
        "oversubscription", "timed_copies", "threads"
    ])]
    ranges: bool,

    /// Write the record as JSON; the cycle count is data.cycles
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,

    /// Write an HTML page with all metrics; for a sweep, with charts
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,

    /// Write counters over time for Perfetto; one run only
    #[arg(long, value_name = "PATH")]
    timeline: Option<PathBuf>,
}

/// Other things to simulate.
#[derive(Subcommand)]
enum Other {
    Llm(llm::Llm),
}

const EXAMPLES: &str = "\
Examples:
  buddy simulate cg --scale 16MB --mode buddy --link 150
  buddy simulate lulesh --sweep mode=ideal,bandwidth,buddy --sweep link=50,100,150,200
  buddy simulate resnet50 --batch 64 --sweep mode=ideal,bandwidth,buddy
  buddy simulate stream --ranges > targets.toml
  buddy simulate stream --mode buddy --targets 2x --sweep link=50,100,150,200
  buddy simulate csr --targets 2x --sweep mode=ideal,bandwidth,buddy --json csr.json
  buddy simulate gemm --spec v100 --timeline gemm.json
  buddy simulate llm --shape llama-8b --batch 8 --context 4096";

impl Simulate {
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<()> {
        if let Some(Other::Llm(verb)) = &self.other {
            return verb.run();
        }
        if self.ranges {
            let case = self.case();
            refuse::by_source(&self, std::slice::from_ref(&case))?;
            return ranges::print(&case.input);
        }
        let plan = Plan::of(self.case(), self.sweep.clone()).map_err(anyhow::Error::msg)?;
        let all: Vec<Case> = plan.cases().collect();
        refuse::ignored(&self, &all)?;
        let (numbers, cases) = distinct(all, self.timed_copies);
        let bases = baselines(&cases);
        self.check_output(&cases)?;
        if self.timeline.is_some() && cases.len() > 1 {
            bail!("--timeline is for one run; the sweep has {}", cases.len());
        }
        cases.iter().try_for_each(Case::check)?;
        let (what, stages) = self.stages(&cases)?;
        // Everything is read and checked before the first run.
        let scenario = |case: &Case| {
            let stage = stages.iter().find(|(input, _)| *input == case.input);
            self.scenario(&stage.expect("every input has its stage").1, &case.point)
        };
        let scenarios: Vec<Scenario<'_>> = cases.iter().map(scenario).collect::<Result<_>>()?;
        self.warn_of_assumptions(&cases)?;
        let done = simulate(&scenarios)?;
        let settings: Vec<String> = cases.iter().map(|case| grid::settings(case, &self.sweep)).collect();
        let mut runs: Vec<Run<'_>> = Vec::new();
        for (index, ((scenario, found), settings)) in scenarios.iter().zip(&done).zip(&settings).enumerate() {
            let (number, base) = (numbers[index], base(index, bases.as_deref(), &done));
            runs.extend(found.as_ref().map(|done| Run { scenario, done, settings, number, base }));
        }
        warn_of_unmatched(&runs);
        output::print(&what, &runs)?;
        self.write_files(&what, &runs, plan.axes(), cases.len())?;
        if runs.len() < cases.len() {
            bail!("interrupted: {} of {} runs are done", runs.len(), cases.len());
        }
        Ok(())
    }

    /// Prints the assumed compressibility of programs without data, and warns that a codec has no
    /// effect on them.
    fn warn_of_assumptions(&self, cases: &[Case]) -> Result<()> {
        let ratio = |point: &Point| matches!(point.target_choice(), TargetChoice::All(_));
        let compressed = |point: &Point| point.mode.compresses();
        let swept = |key: &str| self.sweep.iter().any(|axis| axis.keys.iter().any(|one| one == key));
        for Case { input, point } in cases {
            if !matches!(Source::find(&input.program)?, Source::Generated(_) | Source::Trace(_)) {
                continue;
            }
            let name = &input.program;
            if self.codec.is_some() || swept("codec") {
                say(format_args!(
                    "warning: {name} has no data, so a codec has no effect; use --shares to set its compressibility"
                ));
            } else if compressed(point) && ratio(point) && self.shares.is_none() && !swept("shares") {
                let shares = input.shares.map(|share| format!("{:.0}%", 100.0 * share));
                say(format_args!(
                    "note: the compressibility of {name} is unknown; assuming {} zero, {} b8, {} s1, {} s2, {} s3 \
                     and {} raw entries (--shares)",
                    shares[0], shares[1], shares[2], shares[3], shares[4], shares[5]
                ));
            } else {
                continue;
            }
            return Ok(());
        }
        Ok(())
    }

    /// Opens every program of the cases; returns their descriptions, joined, and a stage for each
    /// input.
    fn stages(&self, cases: &[Case]) -> Result<(String, Vec<(Input, Stage)>)> {
        let (mut names, mut stages): (Vec<String>, Vec<(Input, Stage)>) = (Vec::new(), Vec::new());
        for case in cases {
            if stages.iter().any(|(input, _)| *input == case.input) {
                continue;
            }
            let same = cases.iter().filter(|other| other.input == case.input);
            let points: Vec<Point> = same.map(|case| case.point.clone()).collect();
            let (what, stage) = open(&case.input, &points)?;
            for line in stage.left_out() {
                let line = line.escape_debug();
                say(format_args!("{what}: '{line}' is neither a copy nor a kernel and is ignored"));
            }
            if !names.contains(&what) {
                names.push(what);
            }
            stages.push((case.input.clone(), stage));
        }
        Ok((names.join(", "), stages))
    }

    /// Checks the outputs before the work.
    fn check_output(&self, cases: &[Case]) -> Result<()> {
        let outputs = [
            ("--json", self.json.as_ref()),
            ("--html", self.html.as_ref()),
            ("--timeline", self.timeline.as_ref()),
        ];
        let inputs: Vec<PathBuf> =
            cases.iter().filter_map(|case| case.point.targets.as_ref()).map(PathBuf::from).collect();
        files::check(&outputs, &inputs)
    }

    /// Returns the options as a case, before any sweep.
    fn case(&self) -> Case {
        let what = self.what.clone().unwrap_or_default();
        let point = Point {
            gpu: self.spec.clone(),
            link: self.link.clone().unwrap_or_else(|| LINK.to_owned()),
            targets: self.targets.clone(),
            oversubscription: self.oversubscription,
            ..Point::new(&what, self.mode)
        };
        let input = Input {
            program: what,
            scale: self.scale.unwrap_or(Input::default().scale),
            snapshot: self.snapshot,
            codec: self.codec.unwrap_or(CodecKind::Bpc),
            batch: self.batch.unwrap_or(Input::default().batch),
            sample: self.sample.unwrap_or(Input::default().sample),
            size: self.size.unwrap_or(Input::default().size),
            shares: self.shares.map_or(Input::default().shares, |shares| shares.0),
            recorded: self.recorded.clone(),
            ..Input::default()
        };
        Case { input, point }
    }

    fn scenario<'a>(&self, stage: &'a Stage, point: &Point) -> Result<Scenario<'a>> {
        let mut scenario = Scenario::new(stage, point.clone(), &point.target_choice())?;
        scenario.config.timed_copies = self.timed_copies;
        scenario.config.threads = usize::from(self.threads);
        scenario.config.sample_cycles = self.timeline.is_some().then_some(SAMPLE_CYCLES);
        Ok(scenario)
    }

    fn write_files(&self, what: &str, runs: &[Run<'_>], axes: &[Axis], planned: usize) -> Result<()> {
        let Some(Run { done: first, .. }) = runs.first() else { return Ok(()) };
        if let Some(path) = &self.json {
            files::write(path, &output::record(what, runs, self.sweep.is_empty()))?;
        }
        if let Some(path) = &self.html {
            files::write(path, &page::page(what, runs, axes, planned))?;
        }
        if let (Some(path), Some(timeline)) = (&self.timeline, &first.timeline) {
            write_atomic(path, |out| timeline.write(&first.report, out))?;
            say(format_args!("{} opens in ui.perfetto.dev", path.display()));
        }
        Ok(())
    }
}

/// Returns the help of the program to simulate, with names from the data.
fn program_help() -> String {
    let workloads: Vec<&str> = ALL.iter().map(|info| info.name).collect();
    format!(
        "A workload ({}), a network ({}), a generated program ({}), or a trace: an Accel-Sim folder, its \
         kernelslist.g, or one kernel's .traceg, .traceg.xz, .tracez or .warps",
        workloads.join(", "),
        Network::names().join(", "),
        PROGRAMS.join(", ")
    )
}

/// A finished simulation.
pub(crate) struct Run<'a> {
    scenario: &'a Scenario<'a>,
    done: &'a Done,
    /// Swept settings without a column of their own.
    settings: &'a str,
    /// Index in the sweep.
    number: usize,
    base: Base,
}

/// The run that speeds are relative to.
#[derive(Clone, Copy)]
pub(crate) struct Base {
    /// Its seconds; `None` if it was interrupted.
    seconds: Option<f64>,
    about: &'static str,
}

/// Returns the baseline of a run: ideal memory of the same GPU if every run has one, else the first.
fn base(index: usize, ideal: Option<&[usize]>, done: &[Option<Done>]) -> Base {
    let seconds = |index: usize| done[index].as_ref().map(|done| done.report.seconds);
    match ideal {
        Some(ideal) => Base { seconds: seconds(ideal[index]), about: "ideal memory on the same GPU" },
        None => Base { seconds: seconds(0), about: "the first run" },
    }
}

/// Leaves out cases that differ only in settings that their mode ignores; returns the others with
/// their numbers. Timed copies use the link in every mode.
fn distinct(cases: Vec<Case>, timed_copies: bool) -> (Vec<usize>, Vec<Case>) {
    let mut seen = HashSet::new();
    let key = |case: &Case| (case.effective_key(), timed_copies.then(|| case.point.link.clone()));
    cases.into_iter().enumerate().filter(|(_, case)| seen.insert(key(case))).unzip()
}

impl Run<'_> {
    /// Returns whether the unmatched targets are address ranges.
    fn is_by_address(&self) -> bool {
        self.done.unmatched.iter().all(|row| row.starts_with("0x"))
    }

    /// Returns whether no row of the targets file matches memory that is accessed.
    pub(crate) fn matches_nothing(&self) -> bool {
        let (rows, unmatched) = (self.scenario.config.map.ranges().count(), &self.done.unmatched);
        !unmatched.is_empty() && self.is_by_address() && unmatched.len() == rows
    }
}

/// Warns once per targets file of rows that match nothing.
fn warn_of_unmatched(runs: &[Run<'_>]) {
    let mut warned = HashSet::new();
    for run in runs.iter().filter(|run| !run.done.unmatched.is_empty()) {
        let (point, done) = (&run.scenario.point, run.done);
        let path = point.targets.as_deref().unwrap_or_default();
        if warned.insert(path) {
            let (rows, program) = (done.unmatched.join(", "), &point.program);
            let none = if run.matches_nothing() { "no row matches, so the file has no effect: " } else { "" };
            match run.is_by_address() {
                true => say(format_args!(
                    "warning: {path}: {none}no access reaches memory at {rows}; data that is only written may stay in L2, or the \
                     file is for another run (`buddy simulate {program} --ranges` lists the addresses)"
                )),
                false => say(format_args!(
                    "warning: {path}: {program} has no allocation {rows}; the file may be for another run"
                )),
            }
        }
    }
}

/// Runs every scenario, one per core; runs cut off by an interruption are `None`.
fn simulate(scenarios: &[Scenario<'_>]) -> Result<Vec<Option<Done>>> {
    STOPS_GRACEFULLY.store(true, Ordering::Relaxed);
    let bar = ProgressBar::new(scenarios.len() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:32} {pos} of {len} runs, {msg}, {elapsed}")?);
    let run = |scenario: &Scenario<'_>| {
        let done = scenario.run(&mut |simulator| {
            bar.set_message(format!("{} M instructions", simulator.instructions() / 1_000_000));
            !INTERRUPTED.load(Ordering::Relaxed)
        })?;
        bar.inc(1);
        Ok(done)
    };
    let done = scenarios.par_iter().map(run).collect();
    bar.finish_and_clear();
    done
}
