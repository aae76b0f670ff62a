//! `buddy simulate`: time and traffic of a workload, a network, a trace or a program on a modelled GPU.

mod bound;
mod grid;
mod network;
mod output;
mod source;
mod workload;

use std::{io::Write, path::PathBuf, sync::atomic::Ordering};

use anyhow::{Context, Result, bail};
use buddy_codec::CodecKind;
use buddy_core::{
    Target,
    spec::{Gpu, Link},
};
use buddy_dl::Network;
use buddy_sim::{ClassMap, Config, Mode, Report, Simulator, TargetsAll, TargetsFile, Timeline};
use buddy_snapshot::write_atomic;
use buddy_study::recorded_run;
use buddy_workloads::ALL;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

use self::{
    bound::Bound,
    grid::{Point, Shares, Sweep},
    network::Iteration,
    source::Source,
};
use crate::{
    FINISHES, INTERRUPTED, machine, output as files, say,
    workload::scale::{Scale, parse_scale},
};

/// Reads a file.
fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// Run a workload, a network, a trace or a generated program on a modelled GPU
///
/// WHAT is the name of a workload (`buddy workload list`) or of a network, a folder with an Accel-Sim trace, its kernelslist.g, one
/// kernel's .traceg or .traceg.xz, or the name of a generated program: arithmetic, stream, stencil, csr, lattice, gemm or
/// random.
///
/// The modes are ideal (device memory without limit), bandwidth (compressed between L2 and device memory only), buddy,
/// pinned (everything in host memory) and um (Unified Memory).
///
/// A workload is run first, and its memory compressed at ten times; simulated is the snapshot whose ratio is nearest the
/// mean of the run, with the targets of the policy allocation-16x, or with --targets: a ratio, or a file that
/// `buddy profile` wrote.
///
/// A network (biglstm, alexnet, inception_v2, squeezenet, vgg16, resnet50) is one training iteration, or a sample of it.
/// Its tensors compress as in the record of a real run. For other programs the modes bandwidth and buddy need --targets: a ratio for all allocations,
/// with --shares, or a TOML file that lists them by address.
///
/// A sweep runs every combination of its values, one simulation to a core. An interruption ends it with what is done.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Simulate {
    /// Workload, network, trace folder, kernelslist.g, kernel file, or generated program
    what: String,

    #[arg(long, value_name = "GPU", default_value = "paper", help = machine::gpu_help("GPU"))]
    spec: String,

    /// How memory works: ideal, bandwidth, buddy, pinned or um
    #[arg(long, default_value = "ideal", value_parser = grid::mode)]
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
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = grid::oversubscription)]
    oversubscription: f64,

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
        let source = self.open(&points)?;
        if self.timeline.is_some() && points.len() > 1 {
            bail!("--timeline is for one run; the sweep has {}", points.len());
        }
        // Everything is read and checked before the first run begins.
        let configs = points.iter().map(|point| self.config(point, &source)).collect::<Result<Vec<_>>>()?;
        let (done, timeline) = self.simulate(&source, &configs)?;
        let runs: Vec<(&Point, &Report)> =
            points.iter().zip(&done).filter_map(|(point, run)| Some((point, run.as_ref()?))).collect();
        output::print(&runs)?;
        self.write_files(&source, &runs, timeline)?;
        if runs.len() < points.len() {
            bail!("interrupted: {} of {} runs are done", runs.len(), points.len());
        }
        Ok(())
    }

    fn open(&self, points: &[Point]) -> Result<Source> {
        if Network::ALL.contains(&self.what.as_str()) {
            return Ok(Source::network(self.iteration(points)?));
        }
        let Some(info) = ALL.iter().find(|info| info.name == self.what) else {
            return Source::open(&self.what, self.size);
        };
        // Whatever else may be wrong is found before the workload runs.
        for point in points {
            Gpu::named(&point.spec)?;
            Link::named(&point.link)?;
        }
        let bytes = self.scale.bytes(info)?;
        Ok(Source::workload(Bound::new(info, bytes, self.codec, self.snapshot, points)?))
    }

    /// A training iteration, with the record of a real run, which must be there if the data matters.
    fn iteration(&self, points: &[Point]) -> Result<Iteration> {
        let network = Network::named(&self.what)?;
        let record = recorded_run(self.recorded.as_deref(), &self.what)?;
        let compressed = points.iter().any(|point| matches!(point.mode, Mode::Bandwidth | Mode::Buddy));
        if record.is_none() && compressed {
            bail!("--recorded has no {}.json, so nothing is known of how its tensors compress", self.what);
        }
        let record = record.filter(|_| compressed);
        Iteration::new(&network, self.batch, self.sample, self.codec, record.as_ref())
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
            spec: self.spec.clone(),
            mode: self.mode,
            link: self.link.clone(),
            targets: self.targets.clone(),
            metadata: None,
            oversubscription: self.oversubscription,
        }
    }

    fn config(&self, point: &Point, source: &Source) -> Result<Config> {
        let mut config = Config::new(Gpu::named(&point.spec)?, Link::named(&point.link)?);
        if let Some(bytes) = point.metadata {
            config.gpu.buddy.metadata_bytes = bytes;
            config.gpu.check().map_err(anyhow::Error::msg)?;
        }
        config.map = self.map(point, source)?;
        config.mode = point.mode;
        config.oversubscription = point.oversubscription;
        config.timed_copies = self.timed_copies;
        config.sample_cycles = self.timeline.is_some().then_some(500);
        Ok(config)
    }

    fn map(&self, point: &Point, source: &Source) -> Result<ClassMap> {
        if let Some(map) = source.map(point.targets.as_deref()) {
            return map;
        }
        let Shares(shares) = self.shares;
        Ok(match &point.targets {
            Some(name) => match name.parse::<Target>() {
                Ok(target) => TargetsAll { target, shares }.map(&source.allocations)?,
                Err(_) => {
                    match TargetsFile::parse(name, &read(name).context("--targets is no ratio and no file")?)?
                    {
                        TargetsFile::Addressed(allocations) => ClassMap::new(allocations)?,
                        TargetsFile::Named(_) => {
                            bail!("{name}: {} has no names; its targets go by address", source.name)
                        }
                    }
                }
            },
            None if matches!(point.mode, Mode::Bandwidth | Mode::Buddy) => {
                bail!("mode {} needs --targets: a ratio such as 2x, or a file", point.mode.name())
            }
            None => TargetsAll { target: Target::X1, shares }.map(&source.allocations)?,
        })
    }

    /// Runs every configuration, some at a time; those that an interruption leaves undone are `None`.
    fn simulate(
        &self,
        source: &Source,
        configs: &[Config],
    ) -> Result<(Vec<Option<Report>>, Option<Timeline>)> {
        FINISHES.store(true, Ordering::Relaxed);
        let bar = ProgressBar::new(configs.len() as u64);
        bar.set_style(ProgressStyle::with_template("{bar:32} {pos} of {len} runs, {msg}, {elapsed}")?);
        let run = |config: &Config| {
            let mut simulator = Simulator::new(config.clone());
            let whole = source.run(&mut simulator, &mut |simulator| {
                bar.set_message(format!("{} M instructions", simulator.instructions() / 1_000_000));
                !INTERRUPTED.load(Ordering::Relaxed)
            })?;
            bar.inc(1);
            Ok(whole.then(|| (simulator.report(), simulator.timeline().cloned())))
        };
        let mut done: Vec<_> = configs.par_iter().map(run).collect::<Result<_>>()?;
        bar.finish_and_clear();
        let timeline = done.first_mut().and_then(|run| run.as_mut()?.1.take());
        Ok((done.into_iter().map(|run| Some(run?.0)).collect(), timeline))
    }

    fn write_files(
        &self,
        source: &Source,
        runs: &[(&Point, &Report)],
        timeline: Option<Timeline>,
    ) -> Result<()> {
        if let (Some(path), false) = (&self.json, runs.is_empty()) {
            let record = output::record(&source.name, runs, self.sweep.is_empty(), |point| {
                self.config(point, source)
            })?;
            write_atomic(path, |out| out.write_all(record.as_bytes()))?;
        }
        if let (Some(path), false) = (&self.html, runs.is_empty()) {
            let page = output::page(&source.name, runs);
            write_atomic(path, |out| out.write_all(page.as_bytes()))?;
        }
        if let (Some(path), Some(timeline), Some((_, report))) = (&self.timeline, timeline, runs.first()) {
            write_atomic(path, |out| timeline.write(report, out))?;
            say(format_args!("{} opens in ui.perfetto.dev", path.display()));
        }
        Ok(())
    }
}
