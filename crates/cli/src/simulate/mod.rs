//! `buddy simulate`: time and traffic of a workload, a network, a trace or a program on a modelled GPU.

mod grid;
mod measures;
mod output;
mod ranges;
mod stage;

use std::{collections::HashSet, path::PathBuf, sync::atomic::Ordering};

use anyhow::{Result, bail};
use buddy_codec::CodecKind;
use buddy_dl::Network;
use buddy_scenario::{
    Case, Done, Input, Point, Scale, Scenario, Share, Source, Stage, TargetChoice, parse_mode, parse_sample,
    parse_scale,
};
use buddy_sim::Mode;
use buddy_snapshot::write_atomic;
use buddy_sweep::{Axis, Plan};
use buddy_trace::pattern::PROGRAMS;
use buddy_workloads::ALL;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

use self::{grid::Shares, stage::open};
use crate::{FINISHES, INTERRUPTED, machine, output as files, say};

/// Cycles between two samples of a timeline.
const SAMPLE_CYCLES: u64 = 500;

/// Run a workload, a network, a trace or a generated program on a modelled GPU
///
/// The modes are ideal (device memory without limit), bandwidth (compressed between L2 and device memory only), buddy,
/// pinned (everything in host memory) and um (Unified Memory).
///
/// A workload is run first, and its memory compressed at ten times; simulated is the snapshot whose ratio is nearest the
/// mean of the run, with the targets of the policy allocation-16x, or with --targets: a ratio, or a file that
/// `buddy profile` wrote.
///
/// A network is one training iteration, or a sample of it. Its tensors compress as in the record of a real run. For other
/// programs the modes bandwidth and buddy need --targets: a ratio for all allocations, with --shares, or a TOML file that
/// lists them by address.
///
/// A sweep runs every combination of its values, one simulation to a core. An interruption ends it with what is done.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Simulate {
    #[arg(help = what_help())]
    what: String,

    #[arg(long, value_name = "GPU", default_value = "paper", help = machine::gpu_help("GPU"))]
    spec: String,

    /// How memory works: ideal, bandwidth, buddy, pinned or um
    #[arg(long, default_value = "ideal", value_parser = parse_mode)]
    mode: Mode,

    #[arg(long, default_value = "150", help = machine::link_help("Link"))]
    link: String,

    /// Target of all allocations (1x, 4/3x, 2x, 4x, 16x), or a TOML file
    #[arg(long, value_name = "RATIO|PATH")]
    targets: Option<String>,

    /// Footprint of a workload: a share of the paper's (0.25, 1) or a size (16MB, 1GiB), from 1MB to the paper's
    #[arg(long, value_name = "SCALE", default_value = "16MB", value_parser = parse_scale)]
    scale: Scale,

    /// Snapshot of a workload's run that is simulated, 0 to 9
    #[arg(long, value_name = "N", value_parser = grid::snapshot)]
    snapshot: Option<usize>,

    /// Codec of a workload's or network's memory, bpc unless given; files of targets name their own. A trace or a generated
    /// program has no data to compress: say how it compresses with --shares or a file of targets
    #[arg(long, value_name = "NAME")]
    codec: Option<CodecKind>,

    /// Batch size of a network
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=4096))]
    batch: u64,

    /// Share of a network's iteration that is simulated, in short runs of blocks of each kernel, above 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0.01", value_parser = parse_sample)]
    sample: f64,

    /// Take the recorded training runs, NAME.json for each network, from here instead of those that are built in
    #[arg(long, value_name = "DIR")]
    recorded: Option<PathBuf>,

    /// How a trace or a generated program compresses, with a ratio as target: shares of zero, b8, s1, s2, s3 and raw entries,
    /// 0,0,0.3,0.6,0,0.1 unless given
    #[arg(long, value_name = "S,S,S,S,S,S", value_parser = grid::shares)]
    shares: Option<Shares>,

    /// Memory of a generated program, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    size: u64,

    /// With um: the share of memory that does not fit the device, 0 to 0.5
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = Share::parse)]
    oversubscription: Share,

    /// Count the time of the trace's copies from the host
    #[arg(long)]
    timed_copies: bool,

    /// Vary one setting: any key of a plan (`buddy sweep --help`), such as mode, link, spec, targets, policy, threshold, codec,
    /// metadata, or a field of the GPU (l2.bytes); a value may be a range (50..200 step 50)
    #[arg(long, value_name = "KEY=V1,V2", value_parser = Axis::parse)]
    sweep: Vec<Axis>,

    /// List the address ranges of a trace or a generated program as a file of targets to edit, and simulate nothing
    #[arg(long, conflicts_with_all = ["sweep", "json", "html", "timeline", "targets"])]
    ranges: bool,

    /// Write the record; the cycle count is its field data.cycles
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,

    /// Write a page with every figure; of a sweep, with charts of what was swept
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,

    /// Write counters over time for Perfetto; for one run only
    #[arg(long, value_name = "PATH")]
    timeline: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  buddy simulate cg --scale 16MB --mode buddy --link 150
  buddy simulate lulesh --sweep mode=ideal,bandwidth,buddy --sweep link=50,100,150,200
  buddy simulate resnet50 --batch 64 --sweep mode=ideal,bandwidth,buddy
  buddy simulate stream --ranges > targets.toml
  buddy simulate stream --mode buddy --targets 2x --sweep link=50,100,150,200
  buddy simulate csr --targets 2x --sweep mode=ideal,bandwidth,buddy --json csr.json
  buddy simulate gemm --spec v100 --timeline gemm.json";

impl Simulate {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        if self.ranges {
            return ranges::print(&self.case().input);
        }
        let plan = Plan::of(self.case(), self.sweep.clone()).map_err(anyhow::Error::msg)?;
        let cases: Vec<Case> = plan.cases().collect();
        self.check_output(&cases)?;
        if self.timeline.is_some() && cases.len() > 1 {
            bail!("--timeline is for one run; the sweep has {}", cases.len());
        }
        cases.iter().try_for_each(Case::check)?;
        let (what, stages) = self.stages(&cases)?;
        // Everything is read and checked before the first run begins.
        let scenario = |case: &Case| {
            let stage = stages.iter().find(|(input, _)| *input == case.input);
            self.scenario(&stage.expect("every input has its stage").1, &case.point)
        };
        let scenarios: Vec<Scenario<'_>> = cases.iter().map(scenario).collect::<Result<_>>()?;
        self.say_what_is_assumed(&cases)?;
        let done = simulate(&scenarios)?;
        let settings: Vec<String> = cases.iter().map(|case| grid::settings(case, &self.sweep)).collect();
        let mut runs: Vec<Run<'_>> = Vec::new();
        for (number, ((scenario, done), settings)) in scenarios.iter().zip(&done).zip(&settings).enumerate() {
            runs.extend(done.as_ref().map(|done| Run { scenario, done, settings, number }));
        }
        warn_of_unmatched(&runs);
        output::print(&what, &runs)?;
        self.write_files(&what, &runs)?;
        if runs.len() < cases.len() {
            bail!("interrupted: {} of {} runs are done", runs.len(), cases.len());
        }
        Ok(())
    }

    /// Says how memory is taken to compress of which nothing is known, and that a codec has nothing to do there.
    fn say_what_is_assumed(&self, cases: &[Case]) -> Result<()> {
        let ratio = |point: &Point| matches!(point.target_choice(), TargetChoice::All(_));
        let compressed = |point: &Point| matches!(point.mode, Mode::Bandwidth | Mode::Buddy);
        let swept = |key: &str| self.sweep.iter().any(|axis| axis.keys.iter().any(|one| one == key));
        for Case { input, point } in cases {
            if !matches!(Source::find(&input.program)?, Source::Generated(_) | Source::Trace(_)) {
                continue;
            }
            let name = &input.program;
            if self.codec.is_some() || swept("codec") {
                say(format_args!(
                    "warning: {name} has no data, so a codec changes nothing; --shares says how it compresses"
                ));
            } else if compressed(point) && ratio(point) && self.shares.is_none() && !swept("shares") {
                let shares = input.shares.map(|share| format!("{:.0}%", 100.0 * share));
                say(format_args!(
                    "note: how the memory of {name} compresses is not known; assumed are {} zero, {} b8, {} s1, {} s2, {} s3 \
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

    /// Every program that is swept over, ready to run, and all of them in words.
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
                say(format_args!("{what}: '{line}' is neither a copy nor a kernel and takes no time"));
            }
            if !names.contains(&what) {
                names.push(what);
            }
            stages.push((case.input.clone(), stage));
        }
        Ok((names.join(", "), stages))
    }

    /// Looks for what cannot be written before the work, not after.
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

    /// What the options say, before any sweep.
    fn case(&self) -> Case {
        let point = Point {
            gpu: self.spec.clone(),
            link: self.link.clone(),
            targets: self.targets.clone(),
            oversubscription: self.oversubscription,
            ..Point::new(&self.what, self.mode)
        };
        let input = Input {
            program: self.what.clone(),
            scale: self.scale,
            snapshot: self.snapshot,
            codec: self.codec.unwrap_or(CodecKind::Bpc),
            batch: self.batch,
            sample: self.sample,
            size: self.size,
            shares: self.shares.map_or(Input::default().shares, |shares| shares.0),
            recorded: self.recorded.clone(),
            ..Input::default()
        };
        Case { input, point }
    }

    fn scenario<'a>(&self, stage: &'a Stage, point: &Point) -> Result<Scenario<'a>> {
        let mut scenario = Scenario::new(stage, point.clone(), &point.target_choice())?;
        scenario.config.timed_copies = self.timed_copies;
        scenario.config.sample_cycles = self.timeline.is_some().then_some(SAMPLE_CYCLES);
        Ok(scenario)
    }

    fn write_files(&self, what: &str, runs: &[Run<'_>]) -> Result<()> {
        let Some(Run { done: first, .. }) = runs.first() else { return Ok(()) };
        if let Some(path) = &self.json {
            files::write(path, &output::record(what, runs, self.sweep.is_empty()))?;
        }
        if let Some(path) = &self.html {
            files::write(path, &output::page(what, runs, &self.sweep))?;
        }
        if let (Some(path), Some(timeline)) = (&self.timeline, &first.timeline) {
            write_atomic(path, |out| timeline.write(&first.report, out))?;
            say(format_args!("{} opens in ui.perfetto.dev", path.display()));
        }
        Ok(())
    }
}

/// Help of what is simulated: the names come from the data.
fn what_help() -> String {
    let workloads: Vec<&str> = ALL.iter().map(|info| info.name).collect();
    format!(
        "A workload ({}), a network ({}), a generated program ({}), or a trace: a folder of Accel-Sim's, its \
         kernelslist.g, or one kernel's .traceg, .traceg.xz or .warps",
        workloads.join(", "),
        Network::names().join(", "),
        PROGRAMS.join(", ")
    )
}

/// One simulation that is done.
pub(crate) struct Run<'a> {
    scenario: &'a Scenario<'a>,
    done: &'a Done,
    /// What is swept and has no column of its own.
    settings: &'a str,
    /// The how-manieth of the sweep.
    number: usize,
}

impl Run<'_> {
    /// Whether what matches nothing in its file of targets goes by address.
    fn is_by_address(&self) -> bool {
        self.done.unmatched.iter().all(|row| row.starts_with("0x"))
    }

    /// Whether no row of its file of targets is for anything that it accesses.
    pub(crate) fn matches_nothing(&self) -> bool {
        let (rows, unmatched) = (self.scenario.config.map.ranges().count(), &self.done.unmatched);
        !unmatched.is_empty() && self.is_by_address() && unmatched.len() == rows
    }
}

/// Says which rows of a file of targets are for nothing in the program, once for each file.
fn warn_of_unmatched(runs: &[Run<'_>]) {
    let mut said = HashSet::new();
    for run in runs.iter().filter(|run| !run.done.unmatched.is_empty()) {
        let (point, done) = (&run.scenario.point, run.done);
        let path = point.targets.as_deref().unwrap_or_default();
        if said.insert(path) {
            let (rows, program) = (done.unmatched.join(", "), &point.program);
            let none = if run.matches_nothing() { "no row matches, so it changes nothing: " } else { "" };
            match run.is_by_address() {
                true => say(format_args!(
                    "warning: {path}: {none}no access reaches memory at {rows}; what is only written may stay in L2, else the \
                     file is for another run (`buddy simulate {program} --ranges` lists the addresses)"
                )),
                false => say(format_args!(
                    "warning: {path}: {program} has no allocation {rows}; is the file for another run?"
                )),
            }
        }
    }
}

/// Runs every scenario, one to a core; those that an interruption leaves undone are `None`.
fn simulate(scenarios: &[Scenario<'_>]) -> Result<Vec<Option<Done>>> {
    FINISHES.store(true, Ordering::Relaxed);
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
