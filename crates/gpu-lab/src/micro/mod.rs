//! Small kernels with one behaviour each: timed on this GPU, and traced from their machine code, so
//! that the model of a GPU can be compared with it.
//!
//! A kernel's time is the median of twenty runs in one CUDA graph each, between two events, minus
//! that of the same graph without the kernel. Before each run L2 is filled with other, clean data;
//! cases called warm run directly after themselves instead. `buddy_trace::sass` makes the trace
//! from the machine code for this GPU, with the arguments and addresses of the run.

mod cases;
mod content;
mod disassemble;
mod measure;
#[cfg(test)]
mod tests;

use std::{fs, path::Path, sync::Arc};

use buddy_cuda::{DeviceBytes, Gpu, Header, Source};
use buddy_trace::{
    Launch,
    packed::{self, Written},
    sass::{Argument, Array, Content, Program, SassKernel},
};
use cudarc::driver::CudaFunction;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use self::{
    cases::{Card, Case, Given},
    content::content,
    measure::{Clock, Times},
};
use crate::Error;

/// The sources, by file.
const FILES: [Header; 8] = [
    ("atomics.cu", include_str!("../../kernels/micro/atomics.cu")),
    ("block.cu", include_str!("../../kernels/micro/block.cu")),
    ("kernels.cu", include_str!("../../kernels/micro/kernels.cu")),
    ("latency.cu", include_str!("../../kernels/micro/latency.cu")),
    ("launch.cu", include_str!("../../kernels/micro/launch.cu")),
    ("pipes.cu", include_str!("../../kernels/micro/pipes.cu")),
    ("scatter.cu", include_str!("../../kernels/micro/scatter.cu")),
    ("stream.cu", include_str!("../../kernels/micro/stream.cu")),
];

/// One small kernel, measured. The fields are those of a `measured.json` that `buddy gpu correlate
/// --traces` reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MicroRow {
    /// The file of its trace.
    pub trace: String,
    /// The kind of behaviour.
    pub group: String,
    /// The kernel's name in its source.
    pub kernel: String,
    /// Blocks and threads.
    pub grid: String,
    /// Threads of a block.
    pub block: String,
    /// Median nanoseconds, without the cost of timing.
    pub ns: f64,
    /// The minimum.
    pub least_ns: f64,
    /// The maximum.
    pub most_ns: f64,
    /// Time of an empty graph in nanoseconds, already subtracted.
    pub timing_ns: f64,
    /// True if L2 was warm from the run before.
    pub warm: bool,
    /// Warp instructions of the trace.
    pub warp_instructions: u64,
}

/// The programs of the small kernels.
pub fn micro_sources() -> Vec<Source> {
    FILES.iter().map(|&(name, text)| Source { least: 70, ..Source::new(name, text, &[]) }).collect()
}

/// Measures and traces every case into a folder: a `.warps` for each, and `measured.json`.
///
/// # Errors
/// [`Error`] if the compiler, the disassembler or the driver fails, or the folder cannot be
/// written.
pub fn micro(gpu: &Gpu, folder: &Path, mut progress: impl FnMut(&MicroRow)) -> Result<Vec<MicroRow>, Error> {
    let clock = Clock::new(gpu, gpu.info()?.l2_bytes)?;
    let mut all = Vec::new();
    for source in micro_sources() {
        let text = Arc::new(disassemble::disassemble(&gpu.image(&source)?, &source.name)?);
        for case in cases_of(gpu, &source)? {
            all.push((text.clone(), Ready::new(gpu, &source, &case)?, case));
        }
    }
    // Traced before they run: this finds accesses outside of arrays, which would be undefined on
    // the GPU.
    let traced = |(text, ready, case): &(Arc<String>, Ready, Case)| write_trace(text, ready, case, folder);
    let written = all.par_iter().map(traced).collect::<Result<Vec<_>, _>>()?;
    let mut rows = Vec::new();
    for ((_, ready, case), written) in all.iter().zip(written) {
        let times = clock.time(&ready.kernel, case, &arguments(case, &ready.arrays))?;
        let row = row(case, &times, clock.nothing, written.instructions);
        progress(&row);
        rows.push(row);
    }
    let json = serde_json::to_string_pretty(&rows).expect("rows are plain") + "\n";
    let path = folder.join("measured.json");
    fs::write(&path, json)
        .map_err(|error| Error::File { path: path.display().to_string(), why: error.to_string() })?;
    Ok(rows)
}

/// Runs every case once and waits for it, for profilers; `before` receives its name.
///
/// # Errors
/// [`Error`] if the compiler or the driver fails.
pub fn micro_once(gpu: &Gpu, before: impl Fn(&str)) -> Result<(), Error> {
    let clock = Clock::new(gpu, gpu.info()?.l2_bytes)?;
    for source in micro_sources() {
        for case in cases_of(gpu, &source)? {
            before(&case.name);
            let ready = Ready::new(gpu, &source, &case)?;
            clock.once(&ready.kernel, &case, &arguments(&case, &ready.arrays))?;
        }
    }
    Ok(())
}

/// Lists the cases of a source that this GPU supports.
fn cases_of(gpu: &Gpu, source: &Source) -> Result<Vec<Case>, Error> {
    let info = gpu.info()?;
    let card = Card { multiprocessors: info.multiprocessors, l2_bytes: info.l2_bytes };
    let capability = 10 * info.capability.0 + info.capability.1;
    let cases = cases::all(card).into_iter();
    Ok(cases.filter(|case| case.file == source.name && case.least <= capability).collect())
}

/// A kernel with its arrays on the GPU.
struct Ready {
    kernel: CudaFunction,
    registers: u32,
    shared_bytes: u32,
    arrays: Vec<Array>,
    /// Device memory of the arrays.
    _memory: Vec<DeviceBytes>,
}

impl Ready {
    fn new(gpu: &Gpu, source: &Source, case: &Case) -> Result<Self, Error> {
        let module = gpu.module(source)?;
        let kernel = gpu.check("find a small kernel", module.load_function(case.kernel))?;
        let registers = gpu.check("count registers", kernel.num_regs())? as u32;
        let shared_bytes = gpu.check("measure shared memory", kernel.shared_size_bytes())? as u32;
        let (mut arrays, mut all) = (Vec::new(), Vec::new());
        for (bytes, holds) in &case.arrays {
            let memory = DeviceBytes::new(gpu, *bytes)?;
            let base = memory.all().address();
            let content = content(*holds, base, *bytes);
            match &content {
                Content::Words(words) => memory.upload(bytemuck::cast_slice(words))?,
                Content::Unknown => memory.fill(0)?,
            }
            arrays.push(Array { base, bytes: *bytes, content });
            all.push(memory);
        }
        Ok(Self { kernel, registers, shared_bytes, arrays, _memory: all })
    }
}

/// Traces a case to a file of its name.
fn write_trace(text: &str, ready: &Ready, case: &Case, folder: &Path) -> Result<Written, Error> {
    let mut traced = trace(text, case, ready.arrays.clone(), (ready.registers, ready.shared_bytes))?;
    let written = packed::write_file(&folder.join(trace_file(case)), &mut traced);
    written.map_err(|error| Error::Trace { case: case.name.clone(), why: error.to_string() })
}

fn trace_file(case: &Case) -> String {
    format!("{}.warps", case.name)
}

fn row(case: &Case, times: &Times, timing_ns: f64, warp_instructions: u64) -> MicroRow {
    MicroRow {
        trace: trace_file(case),
        group: case.group.to_owned(),
        kernel: case.kernel.to_owned(),
        grid: format!("({}, {}, 1)", case.blocks.0, case.blocks.1),
        block: format!("({}, 1, 1)", case.threads),
        ns: times.median,
        least_ns: times.least,
        most_ns: times.most,
        timing_ns,
        warm: case.warm,
        warp_instructions,
    }
}

/// Executes the kernel on the CPU.
fn trace(
    text: &str,
    case: &Case,
    arrays: Vec<Array>,
    (registers, shared_bytes): (u32, u32),
) -> Result<SassKernel, Error> {
    let launch = Launch {
        name: case.name.clone(),
        grid: [case.blocks.0, case.blocks.1, 1],
        block: [case.threads, 1, 1],
        shared_bytes,
        registers,
    };
    let arguments = arguments(case, &arrays);
    let program = Program::parse(text, case.kernel);
    let kernel = program.and_then(|program| SassKernel::new(program, launch, &arguments, arrays));
    kernel.map_err(|problem| Error::Trace { case: case.name.clone(), why: problem.to_string() })
}

fn arguments(case: &Case, arrays: &[Array]) -> Vec<Argument> {
    let argument = |given: &Given| match *given {
        Given::Array(index) => Argument::Pointer(arrays[index].base),
        Given::Int(value) => Argument::Int(value),
        Given::Float(value) => Argument::Float(value),
        Given::Double(value) => Argument::Double(value),
    };
    case.given.iter().map(argument).collect()
}
