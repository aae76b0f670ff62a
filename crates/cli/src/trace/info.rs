//! `buddy trace info`.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use buddy_report::count;
use buddy_trace::{At, Code, Kernel, open_kernel};
use clap::Args;

/// Summarise a kernel's trace: launch, size and opcodes
#[derive(Args)]
#[command(after_help = "Examples:
  buddy trace info traces/kernel-1.traceg")]
pub(super) struct Info {
    /// A kernel's trace (.traceg, .traceg.xz, .tracez, .warps)
    file: PathBuf,
}

/// Counts over a trace.
#[derive(Default)]
struct Counts {
    instructions: u64,
    lanes: u64,
    /// By opcode, or by class if the trace has no opcodes.
    opcodes: BTreeMap<String, u64>,
}

impl Info {
    pub(super) fn run(self) -> Result<()> {
        let mut kernel = open_kernel(&self.file)?;
        let counts = Counts::of(kernel.as_mut())?;
        print(&self.file, kernel.as_ref(), &counts).context("cannot write to stdout")
    }
}

impl Counts {
    fn of(kernel: &mut dyn Kernel) -> Result<Self> {
        let (mut counts, mut code) = (Self::default(), Code::default());
        let (blocks, warps) = (kernel.launch().blocks(), kernel.launch().warps());
        let mut numbers = Vec::new();
        for (block, warp) in (0..blocks).flat_map(|block| (0..warps).map(move |warp| (block, warp))) {
            kernel.fill(At { block, warp, step: 0 }, &mut code)?;
            counts.instructions += code.insts().len() as u64;
            counts.lanes += code.insts().iter().map(|inst| u64::from(inst.lanes())).sum::<u64>();
            for opcode in (0..code.insts().len()).filter_map(|index| code.opcode(index)).map(usize::from) {
                numbers.resize(numbers.len().max(opcode + 1), 0);
                numbers[opcode] += 1;
            }
            code.clear();
        }
        for (name, times) in kernel.opcodes().iter().zip(numbers) {
            *counts.opcodes.entry(name.clone()).or_default() += times;
        }
        Ok(counts)
    }
}

fn print(file: &Path, kernel: &dyn Kernel, counts: &Counts) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let launch = kernel.launch();
    let size = |[x, y, z]: [u32; 3]| format!("{x} x {y} x {z}");
    let bytes = std::fs::metadata(file).map_or(0, |file| file.len());
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    writeln!(out, "kernel             {}", launch.name.escape_debug())?;
    writeln!(out, "grid               {} blocks of {} threads", size(launch.grid), size(launch.block))?;
    writeln!(out, "registers          {}", launch.registers)?;
    writeln!(out, "shared memory      {} bytes", count(launch.shared_bytes.into()))?;
    writeln!(out, "warp instructions  {}", count(counts.instructions))?;
    writeln!(out, "active lanes       {:.1}", share(counts.lanes, counts.instructions))?;
    writeln!(out, "bytes              {} ({:.3} each)", count(bytes), share(bytes, counts.instructions))?;
    let mut opcodes: Vec<_> = counts.opcodes.iter().collect();
    opcodes.sort_by_key(|(name, times)| (std::cmp::Reverse(**times), *name));
    for (name, times) in opcodes.into_iter().take(20) {
        writeln!(out, "  {:<28} {:>15}", name.escape_debug().to_string(), count(*times))?;
    }
    for (name, times) in kernel.unknown() {
        writeln!(out, "unknown: {} {}", name.escape_debug(), count(times))?;
    }
    Ok(())
}
