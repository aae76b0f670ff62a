//! `buddy gpu cg`: a sparse solver whose matrix may be larger than GPU memory.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Result;
use buddy_cuda::Gpu;
use buddy_gpu_lab::{CG_CELLS, CgAsk, CgReport, CgRun, cg};
use clap::Args;

use crate::progress::Bar;

/// Solve a sparse system by conjugate gradients with a packed matrix, and with the plain one if it
/// fits
///
/// Solves one implicit step of heat conduction in a cube of n x n x n cells with cold walls. Each
/// row has 27 elements with three different values. The packed matrix takes 4.1 bytes per element
/// instead of 12, so the plain one may exceed GPU memory: --n 896 needs 256 GB plain and 103 GB
/// packed. The solution equals that of the plain matrix bit for bit. The true residual is computed
/// from the definition of the system.
#[derive(Args)]
pub(super) struct Cg {
    /// Cells per side of the cube
    #[arg(long, default_value_t = 384, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(i64::from(*CG_CELLS.start())..=i64::from(*CG_CELLS.end())))]
    n: u32,
    /// Stop at this residual relative to the norm of the right-hand side
    #[arg(long, default_value_t = 1e-8, value_name = "NUMBER", value_parser = super::between(LEAST..=1.0))]
    tolerance: f64,
    /// Maximum number of iterations
    #[arg(long, default_value_t = 1000, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Write the result as a record
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// Smallest relative residual that double precision can confirm.
const LEAST: f64 = 1e-12;
/// Progress-bar steps per decade of the residual.
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
        "{}: {}^3 cells, {} elements; matrix and vectors {:.1} GB plain, {:.1} GB packed; plain is {:.2} times the {:.1} GB of the GPU",
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
            writeln!(out, "{ratio:.2} times as fast as plain; the solutions are bit-identical")?;
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
