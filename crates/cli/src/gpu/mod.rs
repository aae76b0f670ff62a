//! `buddy gpu`: compressed memory on a real GPU. Without a GPU or driver it fails with exit code 1.

mod attention;
mod cg;
mod compressible;
mod correlate;
mod fused;
mod large;
mod soak;

use std::{
    io::{self, Write},
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use anyhow::Result;
use buddy_codec::CodecKind;
use buddy_core::SizeClass;
use buddy_cuda::Gpu;
use buddy_gpu_lab::{BenchReport, BenchRow, CheckCase};
use buddy_record::{Record, RecordKind};
use clap::{Args, Subcommand};

use attention::Attention;
use cg::Cg;
use compressible::Compressible;
use correlate::Correlate;
use fused::{Fused, Headers};
use large::Large;
use soak::Soak;

const GIB: f64 = (1u64 << 30) as f64;

/// Test, benchmark and use compressed memory on a real GPU
#[derive(Args)]
#[command(after_help = "\
Examples:
  buddy gpu info
  buddy gpu test --gib 1
  buddy gpu bench --json bench.json
  buddy gpu large --times 1.6 --html large.html --picture wave.png
  buddy gpu headers include")]
pub(crate) struct GpuVerb {
    #[command(subcommand)]
    action: Action,
    /// Index of the GPU
    #[arg(long, global = true, default_value_t = 0, value_name = "NUMBER")]
    device: usize,
}

#[derive(Subcommand)]
enum Action {
    /// Show the GPU's properties
    Info(Info),
    /// Compare every codec and target on the GPU with the CPU, bit for bit
    Test(Test),
    /// Measure codec and memory speed on the GPU, relative to a copy in the same run
    Bench(Bench),
    /// Measure kernels that read compressed memory, relative to the same kernels on plain memory
    Fused(Fused),
    Correlate(Correlate),
    /// Measure attention over a compressed KV cache, relative to the same kernel on plain memory
    Attention(Attention),
    Large(Large),
    Soak(Soak),
    Cg(Cg),
    Compressible(Compressible),
    /// Write the CUDA headers for custom kernels
    Headers(Headers),
}

#[derive(Args)]
struct Info {
    /// Write the properties as JSON
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

#[derive(Args)]
struct Test {
    /// GiB of data to compare
    #[arg(long, default_value = "10", value_name = "NUMBER", value_parser = between(1e-3..=1e6))]
    gib: f64,
    /// Compare only a few MiB, for use under a memory checker
    #[arg(long, conflicts_with = "gib")]
    small: bool,
    /// Compare only these codecs
    #[arg(long, value_delimiter = ',', value_name = "CODEC", value_parser = with_kernels)]
    only: Vec<CodecKind>,
    /// Write the result as a record
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

#[derive(Args)]
struct Bench {
    /// GiB of data to measure with
    #[arg(long, default_value = "1", value_name = "NUMBER", value_parser = between(1e-3..=1e6))]
    gib: f64,
    /// Measure only these codecs
    #[arg(long, value_delimiter = ',', value_name = "CODEC", value_parser = with_kernels)]
    only: Vec<CodecKind>,
    /// Write the results as a record
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// Parses the name of a codec that has GPU kernels.
fn with_kernels(text: &str) -> Result<CodecKind, String> {
    let known = || buddy_cuda::codecs().map(CodecKind::name).collect::<Vec<_>>().join(", ");
    let found = buddy_cuda::codecs().find(|kind| kind.name() == text);
    found.ok_or_else(|| format!("codec '{text}' has no GPU kernels; codecs with kernels: {}", known()))
}

/// Returns a parser of numbers in `range`.
fn between(range: RangeInclusive<f64>) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync {
    move |text| match text.parse::<f64>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("'{text}' is not a number from {} to {}", range.start(), range.end())),
    }
}

impl GpuVerb {
    pub(crate) fn run(self) -> Result<()> {
        let gpu = || Gpu::open(self.device);
        match self.action {
            Action::Info(info) => info.run(&gpu()?),
            Action::Test(test) => test.run(&gpu()?),
            Action::Bench(bench) => bench.run(&gpu()?),
            Action::Fused(fused) => fused.run(&gpu()?),
            // Needs no GPU with --traces.
            Action::Correlate(correlate) => correlate.run(gpu),
            Action::Attention(attention) => attention.run(&gpu()?),
            // Needs no GPU with --from.
            Action::Large(large) => large.run(gpu),
            Action::Soak(soak) => soak.run(&gpu()?),
            Action::Cg(cg) => cg.run(&gpu()?),
            Action::Compressible(compressible) => compressible.run(gpu),
            // Needs no GPU.
            Action::Headers(headers) => headers.run(),
        }
    }
}

impl Info {
    fn run(self, gpu: &Gpu) -> Result<()> {
        let info = gpu.info()?;
        let mut out = io::stdout().lock();
        writeln!(out, "name              {}", info.name)?;
        writeln!(out, "capability        {}.{}", info.capability.0, info.capability.1)?;
        writeln!(out, "multiprocessors   {}", info.multiprocessors)?;
        writeln!(out, "highest clock     {} MHz", info.clock_khz / 1000)?;
        writeln!(out, "memory            {:.1} GiB", info.memory_bytes as f64 / GIB)?;
        writeln!(out, "free              {:.1} GiB", info.free_bytes as f64 / GIB)?;
        writeln!(out, "L2 cache          {} MiB", info.l2_bytes >> 20)?;
        writeln!(out, "maps host memory {}", if info.maps_host_memory { "yes" } else { "no" })?;
        writeln!(out, "driver            CUDA {}.{}", info.driver / 1000, info.driver % 1000 / 10)?;
        writeln!(out, "compiler          {}", if info.compiler { "NVRTC" } else { "none" })?;
        let cache = buddy_cuda::cache_dir().map_or("none".to_owned(), |dir| dir.display().to_string());
        writeln!(out, "kernel cache      {cache}")?;
        match self.json {
            Some(path) => save(&path, &(serde_json::to_string_pretty(&info)? + "\n")),
            None => Ok(()),
        }
    }
}

impl Test {
    fn run(self, gpu: &Gpu) -> Result<()> {
        let bytes = if self.small { 4 << 20 } else { (self.gib * GIB) as u64 };
        let mut out = io::stdout().lock();
        let classes = SizeClass::ALL.map(|class| format!("{:>6}", class.name())).join("");
        let targets = ["1x", "4/3x", "2x", "4x", "16x", "mixed"].map(|name| format!("{name:>6}")).join("");
        writeln!(
            out,
            "                                 % of entries by class               % that overflow"
        )?;
        writeln!(out, "codec     data     noise  entries {classes}  {targets}")?;
        let mut failed = None;
        let report = buddy_gpu_lab::check(gpu, bytes, &self.only, |case| {
            failed = failed.take().or(print_case(&mut out, case).err());
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        writeln!(out, "all bit-identical: {:.2} GiB on {}", report.bytes as f64 / GIB, report.gpu)?;
        record(self.json.as_deref(), report)
    }
}

fn print_case(out: &mut impl Write, case: &CheckCase) -> Result<()> {
    let percent = |share: f64| format!("{:>6.1}", 100.0 * share);
    let classes = case.classes.map(|count| percent(count as f64 / case.entries as f64)).join("");
    let overflow: String = case.overflow.iter().map(|&share| percent(share)).collect();
    let data = format!("{:?}", case.fill).to_lowercase();
    let line =
        format!("{:<9} {data:<8} {:>5} {:>8} {classes}  {overflow}", case.codec, case.noise, case.entries);
    Ok(writeln!(out, "{line}")?)
}

impl Bench {
    fn run(self, gpu: &Gpu) -> Result<()> {
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{:<48} {:<8} {:>8} {:>8} {:>7} {:>9}",
            "case", "data", "GB/s", "bound", "% bound", "overflow"
        )?;
        let mut failed = None;
        let bytes = (self.gib * GIB) as u64 / 8192 * 8192;
        let report = buddy_gpu_lab::bench(gpu, bytes, &self.only, |row| {
            failed = failed.take().or(print_row(&mut out, row).err());
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        record::<BenchReport>(self.json.as_deref(), report)
    }
}

fn print_row(out: &mut impl Write, row: &BenchRow) -> Result<()> {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
    let share = |value: Option<f64>, digits| {
        value.map_or("-".to_owned(), |value| format!("{:.digits$}%", 100.0 * value))
    };
    let of_bound = row.bound_gb_per_s.map(|bound| row.gb_per_s / bound);
    writeln!(
        out,
        "{:<48} {:<8} {:>8.0} {:>8} {:>7} {:>9}",
        row.what,
        row.data,
        row.gb_per_s,
        number(row.bound_gb_per_s),
        share(of_bound, 0),
        share(row.overflow, 3),
    )?;
    Ok(())
}

fn record<T: RecordKind>(path: Option<&Path>, data: T) -> Result<()> {
    path.map_or(Ok(()), |path| save(path, &Record::new(data).to_json()))
}

fn save(path: &Path, text: &str) -> Result<()> {
    crate::output::write(path, text)
}
