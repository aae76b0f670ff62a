//! `buddy trace -- PROGRAM`: traces of an unmodified CUDA program.

use std::{ffi::OsString, path::PathBuf};

use anyhow::{Context, Result, bail};
use buddy_cuda::{Gpu, Source};
use buddy_tracer::{PATCHES, Request, Traced, trace};
use clap::Args;

use crate::{output, say};

/// Options of a run that is traced.
#[derive(Args)]
pub(crate) struct Record {
    /// Folder for the traces and their list, kernelslist.g
    #[arg(long, value_name = "DIR", default_value = "traces")]
    out: PathBuf,
    /// Trace launches whose mangled kernel name holds this
    #[arg(long, value_name = "NAME", default_value = "")]
    kernel: String,
    /// Pass over this many of them first
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// Trace this many of them
    #[arg(long, value_name = "N", default_value_t = 10)]
    count: u64,
    /// Trace only the first blocks of each launch
    #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true)]
    blocks: u32,
    /// MiB of device memory for the events of a launch
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    room: u64,
    /// Do not run the program again under ncu to count its instructions
    #[arg(long)]
    no_counts: bool,
    /// The program and its arguments, after `--`
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl Record {
    /// Runs the program, traced.
    pub(crate) fn run(self) -> Result<()> {
        if self.command.is_empty() {
            bail!(
                "nothing to trace: name a program, as in 'buddy trace -- ./program', or a command, as in 'buddy trace convert'"
            );
        }
        let gpu = Gpu::open(0).context("a program is traced on the GPU that it runs on")?;
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
                "no kernel was launched that matches; --kernel takes a part of a mangled name, --skip and --count choose among them"
            );
        }
        traced.iter().try_for_each(|one| output::print(&line(one)))?;
        say(format_args!("{} traces in {}", traced.len(), request.out.join("kernelslist.g").display()));
        Ok(())
    }
}

/// A line for a trace: what it holds, and how that compares with what the hardware counted.
fn line(traced: &Traced) -> String {
    let written = &traced.written;
    let counted = match written.counted {
        Some(counted) if counted > 0 => {
            format!(", {:.2}% of the hardware's count", 100.0 * written.instructions as f64 / counted as f64)
        }
        _ => String::new(),
    };
    format!(
        "{}  {}  {} blocks, {} warp instructions{counted}, {} branches chosen\n",
        traced.file.display(),
        traced.kernel,
        written.blocks,
        written.instructions,
        written.choices
    )
}
