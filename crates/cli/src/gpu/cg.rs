//! `buddy gpu cg`: a sparse solver whose matrix may be larger than the GPU's memory.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Result;
use buddy_cuda::Gpu;
use buddy_gpu_lab::{CG_CELLS, CgAsk, CgReport, CgRun, cg};
use clap::Args;

use crate::progress::Bar;

/// Solve a sparse system by conjugate gradients, its matrix packed; beside it with the plain matrix, where that fits
///
/// One implicit step of heat conduction in a cube of n x n x n cells with cold walls: 27 elements to a row, of three different values.
/// The matrix is stored, at 4.1 bytes an element where plain ones take 12, so that it may be larger than the GPU's memory: --n 896 needs
/// 256 GB plain and 103 GB here. The solution is that of the plain matrix to the bit, and its true residual is computed from the
/// definition of the system.
#[derive(Args)]
pub(super) struct Cg {
    /// Cells of the cube's side
    #[arg(long, default_value_t = 384, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(i64::from(*CG_CELLS.start())..=i64::from(*CG_CELLS.end())))]
    n: u32,
    /// End at this residual, as a share of the right-hand side's norm
    #[arg(long, default_value_t = 1e-8, value_name = "NUMBER", value_parser = super::between(LEAST..=1.0))]
    tolerance: f64,
    /// Give up after so many iterations
    #[arg(long, default_value_t = 1000, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Write the result as a record
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// Doubles cannot show that a residual is smaller than this.
const LEAST: f64 = 1e-12;
/// Parts of the bar to a tenfold smaller residual.
const PARTS: f64 = 16.0;

impl Cg {
    pub(super) fn run(self, gpu: &Gpu) -> Result<()> {
        let ask = CgAsk { n: self.n, tolerance: self.tolerance, iterations: self.iterations };
        let bar = Bar::parts((-self.tolerance.log10() * PARTS) as u64);
        let report = cg(gpu, ask, |iteration, residual| {
            let done = (-residual.log10() * PARTS).max(0.0) as u64;
            bar.set(done, format!("iteration {iteration}, residual {residual:.1e}"));
        });
        bar.finish();
        let report = report?;
        print(&mut io::stdout().lock(), &report)?;
        super::record(self.json.as_deref(), report)
    }
}

fn print(out: &mut impl Write, report: &CgReport) -> Result<()> {
    let gb = |bytes: u64| bytes as f64 / 1e9;
    writeln!(
        out,
        "{}: {}^3 cells, {} elements; matrix and vectors {:.1} GB plain, {:.1} GB here; plain is {:.2} times the {:.1} GB of the GPU",
        report.gpu,
        report.n,
        report.elements,
        gb(report.plain_bytes),
        gb(report.packed_bytes),
        report.plain_bytes as f64 / report.memory_bytes as f64,
        gb(report.memory_bytes),
    )?;
    writeln!(
        out,
        "{:<8} {:>10} {:>13} {:>8} {:>10} {:>14}",
        "matrix", "iterations", "ms/iteration", "GB/s", "residual", "true residual"
    )?;
    print_run(out, "packed", &report.packed)?;
    match (&report.plain, report.ratio()) {
        (Some(plain), Some(ratio)) => {
            print_run(out, "plain", plain)?;
            writeln!(out, "{ratio:.2} times as fast as plain; the solution is the same to the bit")?;
        }
        _ => writeln!(out, "plain    does not fit")?,
    }
    Ok(())
}

fn print_run(out: &mut impl Write, name: &str, run: &CgRun) -> Result<()> {
    Ok(writeln!(
        out,
        "{name:<8} {:>10} {:>13.3} {:>8.0} {:>10.1e} {:>14.1e}",
        run.iterations, run.ms_per_iteration, run.gb_per_s, run.residual, run.true_residual
    )?)
}
