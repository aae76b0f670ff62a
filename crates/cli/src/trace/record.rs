//! `buddy trace -- PROGRAM`: traces of an unmodified CUDA program.

use std::{ffi::OsString, path::PathBuf};

use anyhow::{Context, Result, bail};
use buddy_cuda::{Gpu, Source};
use buddy_tracer::{PATCHES, Request, Traced, trace};
use clap::Args;

use crate::{output, say};

/// Options for recording a trace.
#[derive(Args)]
pub(crate) struct Record {
    /// Folder for the traces and their list, kernelslist.g
    #[arg(long, value_name = "DIR", default_value = "traces")]
    out: PathBuf,
    /// Trace only launches of kernels whose mangled name contains NAME
    #[arg(long, value_name = "NAME", default_value = "")]
    kernel: String,
    /// Skip the first N matching launches
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// Trace N matching launches
    #[arg(long, value_name = "N", default_value_t = 10)]
    count: u64,
    /// Trace only the first N blocks of each launch
    #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true)]
    blocks: u32,
    /// MiB of device memory for the events of one launch
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    room: u64,
    /// Skip the second run under ncu, which counts instructions
    #[arg(long)]
    no_counts: bool,
    /// Program and its arguments, after `--`
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl Record {
    /// Runs and traces the program.
    pub(crate) fn run(self) -> Result<()> {
        if self.command.is_empty() {
            bail!(
                "nothing to trace: give a program ('buddy trace -- ./program') or a subcommand ('buddy trace convert')"
            );
        }
        let gpu = Gpu::open(0).context("tracing needs a GPU to run the program on")?;
        let (major, minor) = gpu.info()?.capability;
        let extra = &["--ptxas-options=--compile-as-tools-patch"];
        let source = Source { extra, least: 70, ..Source::new("patches.cu", PATCHES, &[]) };
        let request = Request {
            patches: gpu.image(&source)?,
            architecture: major * 10 + minor,
            command: self.command,
            kernel: self.kernel,
            skip: self.skip,
            count: self.count,
            blocks: self.blocks,
            room: self.room << 20,
            counts: !self.no_counts,
            out: self.out,
        };
        drop(gpu);
        let (status, traced) = trace(&request, &mut |line| say(format_args!("{line}")))?;
        if !status.success() {
            say(format_args!("note: the program ended with {status}"));
        }
        if traced.is_empty() {
            bail!(
                "no launch matches; --kernel takes part of a mangled name, --skip and --count select launches"
            );
        }
        traced.iter().try_for_each(|one| output::print(&line(one)))?;
        say(format_args!("{} traces in {}", traced.len(), request.out.join("kernelslist.g").display()));
        Ok(())
    }
}

/// Returns a line with the contents of a trace, compared with the hardware's instruction count.
fn line(traced: &Traced) -> String {
    let written = &traced.written;
    let counted = match written.counted {
        Some(counted) if counted > 0 => {
            format!(", {:.2}% of the hardware's count", 100.0 * written.instructions as f64 / counted as f64)
        }
        _ => String::new(),
    };
    format!(
        "{}  {}  {} blocks, {} warp instructions{counted}, {} branches guessed\n",
        traced.file.display(),
        traced.kernel,
        written.blocks,
        written.instructions,
        written.choices
    )
}
