//! `buddy gpu fused` and `buddy gpu headers`: compressed memory in custom kernels.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Context, Result, ensure};
use buddy_cuda::{Gpu, Source};
use buddy_gpu_lab::{Example, FusedReport, FusedRow};
use clap::{Args, ValueEnum};

#[derive(Args)]
pub(super) struct Fused {
    /// Run only these examples
    #[arg(long, value_enum, value_name = "NAME", num_args = 1..)]
    only: Vec<Name>,
    /// Write the results as a record
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// The examples by name.
#[derive(Clone, Copy, ValueEnum)]
enum Name {
    Stencil,
    Spmv,
    Linear,
}

#[derive(Args)]
pub(super) struct Headers {
    /// Folder to write to; created if missing
    dir: PathBuf,
}

impl Fused {
    pub(super) fn run(self, gpu: &Gpu) -> Result<()> {
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{:<58} {:>9} {:>9} {:>9} {:>6} {:>9} {:>7} {:>7}  {:<15} against",
            "case", "fused us", "overlap", "plain us", "ratio", "twin us", "saved", "memory", "limiter"
        )?;
        let mut failed = None;
        let examples: Vec<Example> = match self.only.as_slice() {
            [] => vec![Example::Stencil, Example::Spmv, Example::Linear],
            only => only.iter().map(|&name| name.into()).collect(),
        };
        // The record is saved after every row, because a later kernel may end the run.
        let mut printed = 0;
        let report = buddy_gpu_lab::fused(gpu, &examples, |report| {
            let print = match report.rows.get(printed) {
                Some(row) => print_row(&mut out, row),
                None => print_wrong(&mut out, report),
            };
            printed = report.rows.len();
            let done = print.and_then(|()| super::record(self.json.as_deref(), report.clone()));
            failed = failed.take().or(done.err());
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        print_summaries(&mut out, &report)?;
        writeln!(
            out,
            "{} rows verified on {} in {:.0} s; memory reads at {:.0} GB/s, a copy moves {:.0} GB/s",
            report.rows.len(),
            report.gpu,
            report.seconds,
            report.read_gb_per_s,
            report.copy_gb_per_s
        )?;
        let wrong = report.wrong.len();
        super::record(self.json.as_deref(), report)?;
        ensure!(wrong == 0, "{wrong} kernels gave wrong results or none; see the lines marked WRONG");
        Ok(())
    }
}

/// Prints the newest failure.
fn print_wrong(out: &mut impl Write, report: &FusedReport) -> Result<()> {
    let Some(wrong) = report.wrong.last() else { return Ok(()) };
    Ok(writeln!(out, "{:<58} WRONG: {}", wrong.what, wrong.why)?)
}

/// Prints the summary of linear layers over all matrices.
fn print_summaries(out: &mut impl Write, report: &FusedReport) -> Result<()> {
    let summaries = report.summaries();
    if !summaries.is_empty() {
        writeln!(out, "linear layers, geomean over matrices, speedup over each baseline")?;
        writeln!(
            out,
            "{:>8} {:>8} {:>8} {:>16} {:>8} {:>12}",
            "tokens", "matrices", "chain", "least, most", "alone", "over twin"
        )?;
    }
    let mut memory = String::new();
    for summary in summaries {
        if memory != summary.memory {
            writeln!(out, "{}", summary.memory)?;
            memory.clone_from(&summary.memory);
        }
        let range = format!("{:.2}, {:.2}", summary.range.0, summary.range.1);
        let twin = summary.twin.map_or("-".to_owned(), |twin| format!("{twin:.3}"));
        let (tokens, matrices) = (summary.tokens, summary.matrices);
        writeln!(
            out,
            "{tokens:>8} {matrices:>8} {:>8.3} {range:>16} {:>8.3} {twin:>12}",
            summary.chain, summary.alone
        )?;
    }
    Ok(())
}

impl From<Name> for Example {
    fn from(name: Name) -> Self {
        match name {
            Name::Stencil => Self::Stencil,
            Name::Spmv => Self::Spmv,
            Name::Linear => Self::Linear,
        }
    }
}

fn print_row(out: &mut impl Write, row: &FusedRow) -> Result<()> {
    let percent = |share: f64| format!("{:.0}%", 100.0 * share);
    let overlapped = row.overlapped_us.map_or("-".to_owned(), |us| format!("{us:.1}"));
    Ok(writeln!(
        out,
        "{:<58} {:>9.1} {overlapped:>9} {:>9.1} {:>6.2} {:>9.1} {:>7} {:>7}  {:<15} {}",
        row.what,
        row.fused_us,
        row.against_us,
        row.ratio(),
        row.twin_us,
        percent(row.saved()),
        percent(row.of_memory),
        row.limiter,
        row.against,
    )?)
}

impl Headers {
    pub(super) fn run(self) -> Result<()> {
        fs::create_dir_all(&self.dir).with_context(|| format!("cannot create {}", self.dir.display()))?;
        let constants = buddy_cuda::constants_header();
        let headers = Source::headers().iter().copied().chain([("buddy_constants.cuh", constants.as_str())]);
        for (name, text) in headers {
            super::save(&self.dir.join(name), text)?;
        }
        Ok(())
    }
}
