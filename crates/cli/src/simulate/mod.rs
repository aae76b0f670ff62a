//! `buddy simulate`: time and traffic of a workload, a network, a trace or a program on a modelled GPU.

mod grid;
mod output;

use std::{collections::HashSet, path::PathBuf, sync::atomic::Ordering};

use anyhow::{Result, bail};
use buddy_codec::CodecKind;
use buddy_core::TargetTable;
use buddy_dl::Network;
use buddy_profile::{DEFAULT_THRESHOLD, Tried};
use buddy_scenario::{
    Ask, Done, Observed, Point, Scenario, Share, Source, Stage, TargetChoice, observe, parse_mode, typical,
};
use buddy_sim::Mode;
use buddy_snapshot::write_atomic;
use buddy_study::recorded_run;
use buddy_trace::pattern::PROGRAMS;
use buddy_workloads::{ALL, Info};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

use self::grid::{Shares, Sweep};
use crate::{
    FINISHES, INTERRUPTED, machine, output as files,
    progress::Bar,
    say,
    workload::{
        decimal,
        scale::{Scale, parse_scale},
    },
};

/// What is random in a workload is drawn from this seed.
const SEED: u64 = 1;
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

    /// Codec of a workload's or network's memory; files of targets name their own
    #[arg(long, value_name = "NAME", default_value = "bpc")]
    codec: CodecKind,

    /// Batch size of a network
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=4096))]
    batch: u64,

    /// Share of a network's iteration that is simulated, in short runs of blocks of each kernel, above 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0.01", value_parser = grid::sample)]
    sample: f64,

    /// Take the recorded training runs, NAME.json for each network, from here instead of those that are built in
    #[arg(long, value_name = "DIR")]
    recorded: Option<PathBuf>,

    /// With a ratio: shares of zero, b8, s1, s2, s3 and raw entries
    #[arg(long, value_name = "S,S,S,S,S,S", default_value = "0,0,0.3,0.6,0,0.1", value_parser = grid::shares)]
    shares: Shares,

    /// Memory of a generated program, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    size: u64,

    /// With um: the share of memory that does not fit the device, 0 to 0.5
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = Share::parse)]
    oversubscription: Share,

    /// Count the time of the trace's copies from the host
    #[arg(long)]
    timed_copies: bool,

    /// Vary one setting: spec, mode, link, targets, metadata (bytes a slice) or oversubscription
    #[arg(long, value_name = "KEY=V1,V2", value_parser = Sweep::parse)]
    sweep: Vec<Sweep>,

    /// Write the record; the cycle count is its field data.cycles
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,

    /// Write a page with the table and a chart
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
  buddy simulate crates/trace/tests/vectoradd --spec v100
  buddy simulate stream --mode buddy --targets 2x --sweep link=50,100,150,200
  buddy simulate csr --targets 2x --sweep mode=ideal,bandwidth,buddy --json csr.json
  buddy simulate gemm --spec v100 --timeline gemm.json";

impl Simulate {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        let points = grid::points(&self.first_point(), &self.sweep)?;
        self.check_output(&points)?;
        if self.timeline.is_some() && points.len() > 1 {
            bail!("--timeline is for one run; the sweep has {}", points.len());
        }
        let (what, stage) = self.open(&points)?;
        for line in stage.left_out() {
            say(format_args!(
                "{what}: '{}' is neither a copy nor a kernel and takes no time",
                line.escape_debug()
            ));
        }
        // Everything is read and checked before the first run begins.
        let scenarios: Vec<Scenario<'_>> =
            points.iter().map(|point| self.scenario(&stage, point)).collect::<Result<_>>()?;
        let done = simulate(&scenarios)?;
        let runs: Vec<(&Scenario<'_>, &Done)> = scenarios
            .iter()
            .zip(&done)
            .filter_map(|(scenario, done)| Some((scenario, done.as_ref()?)))
            .collect();
        warn_of_unmatched(&runs);
        output::print(&runs)?;
        self.write_files(&what, &runs)?;
        if runs.len() < points.len() {
            bail!("interrupted: {} of {} runs are done", runs.len(), points.len());
        }
        Ok(())
    }

    /// What is simulated, in words and ready to run.
    fn open(&self, points: &[Point]) -> Result<(String, Stage)> {
        let Shares(shares) = self.shares;
        let stage = match Source::find(&self.what)? {
            Source::Workload(info) => self.workload(info, points)?,
            Source::Network(network) => self.iteration(&network, points)?,
            Source::Trace(path) => Stage::trace(&path, shares)?,
            Source::Generated(name) => {
                let stage = Stage::generated(name, self.size << 20, Some(shares));
                return Ok((format!("{name} ({} MiB)", self.size), stage));
            }
        };
        let what = match stage.about() {
            (name, Some(bytes)) => format!("{name} ({})", decimal(bytes)),
            (name, None) => name.to_owned(),
        };
        Ok((what, stage))
    }

    /// A workload, run and looked at unless nothing that is asked for depends on its data.
    fn workload(&self, info: &Info, points: &[Point]) -> Result<Stage> {
        // Whatever else may be wrong is found before the workload runs.
        let mut tables: Vec<TargetTable> = Vec::new();
        for point in points {
            point.config()?;
            tables.extend(TargetChoice::named(point.targets.as_deref()).table(info.name)?);
        }
        let bytes = self.scale.bytes(info)?;
        let application = (info.build)(bytes, SEED).application();
        if !is_compressed(points) {
            return Ok(Stage::unseen(application));
        }
        let tried = Tried { kinds: vec![self.codec], auto: false, threshold: DEFAULT_THRESHOLD };
        let ask = Ask { info, bytes, seed: SEED, tried, tables: &tables, snapshot: self.snapshot };
        let mut bar = None;
        let observed = observe(&ask, |step| {
            bar.get_or_insert_with(|| Bar::steps(step.of)).add(1);
            true
        })?;
        bar.iter().for_each(Bar::finish);
        let snapshot = self.snapshot.unwrap_or_else(|| typical(&observed.profile));
        let stage = Stage::observed(application, &observed, snapshot);
        describe(&stage, &observed, snapshot)?;
        Ok(stage)
    }

    /// A training iteration, with the record of a real run, which must be there if the data matters.
    fn iteration(&self, network: &Network, points: &[Point]) -> Result<Stage> {
        let record = recorded_run(self.recorded.as_deref(), &self.what)?;
        let compressed = is_compressed(points);
        if record.is_none() && compressed {
            bail!("--recorded has no {}.json, so nothing is known of how its tensors compress", self.what);
        }
        let record = record.filter(|_| compressed);
        Ok(Stage::iteration(network, self.batch, self.sample, self.codec, record.as_ref())?)
    }

    /// Looks for what cannot be written before the work, not after.
    fn check_output(&self, points: &[Point]) -> Result<()> {
        let outputs = [
            ("--json", self.json.as_ref()),
            ("--html", self.html.as_ref()),
            ("--timeline", self.timeline.as_ref()),
        ];
        let inputs: Vec<PathBuf> =
            points.iter().filter_map(|point| point.targets.as_ref()).map(PathBuf::from).collect();
        files::check(&outputs, &inputs)
    }

    /// What the options say, before any sweep.
    fn first_point(&self) -> Point {
        Point {
            gpu: self.spec.clone(),
            link: self.link.clone(),
            targets: self.targets.clone(),
            oversubscription: self.oversubscription,
            ..Point::new(&self.what, self.mode)
        }
    }

    fn scenario<'a>(&self, stage: &'a Stage, point: &Point) -> Result<Scenario<'a>> {
        let mut scenario =
            Scenario::new(stage, point.clone(), &TargetChoice::named(point.targets.as_deref()))?;
        scenario.config.timed_copies = self.timed_copies;
        scenario.config.sample_cycles = self.timeline.is_some().then_some(SAMPLE_CYCLES);
        Ok(scenario)
    }

    fn write_files(&self, what: &str, runs: &[(&Scenario<'_>, &Done)]) -> Result<()> {
        let Some((_, first)) = runs.first() else { return Ok(()) };
        if let Some(path) = &self.json {
            files::write(path, &output::record(what, runs, self.sweep.is_empty()))?;
        }
        if let Some(path) = &self.html {
            files::write(path, &output::page(what, runs))?;
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

/// Whether a mode is asked for in which the data matters.
fn is_compressed(points: &[Point]) -> bool {
    points.iter().any(|point| matches!(point.mode, Mode::Bandwidth | Mode::Buddy))
}

/// Says which snapshot of a workload is simulated, and what the policy's targets make of it.
fn describe(stage: &Stage, observed: &Observed, snapshot: usize) -> Result<()> {
    let profile = &observed.profile;
    say(format_args!(
        "{}: snapshot {snapshot} of {}, optimistic ratio {}; with the policy's targets {:.2}% of its entries overflow",
        profile.run.program,
        profile.run.snapshots.len(),
        profile.optimistic[snapshot].map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
        100.0 * stage.map(&TargetChoice::Policy, Mode::Buddy)?.overflow_share(),
    ));
    Ok(())
}

/// Says which rows of a file of targets are for nothing in the program, once for each file.
fn warn_of_unmatched(runs: &[(&Scenario<'_>, &Done)]) {
    let mut said = HashSet::new();
    for (scenario, done) in runs.iter().filter(|(_, done)| !done.unmatched.is_empty()) {
        let path = scenario.point.targets.as_deref().unwrap_or_default();
        if said.insert(path) {
            say(format_args!(
                "warning: {path}: the program has nothing at {}; is the file for another run?",
                done.unmatched.join(", ")
            ));
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
