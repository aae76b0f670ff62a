//! Traces a program: runs it with the injected library, again under the profiler for the counts,
//! and combines the two.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use crate::{
    Counts, Error, INJECTED, Resources, Written, parse_counts,
    raw::Launch,
    sass::{self, Sections},
    text, tools,
};

/// A program to trace, and the options.
#[derive(Debug, Clone)]
pub struct Request {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// A part of the kernel's mangled name; empty for every kernel.
    pub kernel: String,
    /// Matching launches to skip first.
    pub skip: u64,
    /// Launches to trace.
    pub count: u64,
    /// Blocks of each launch, from the first on.
    pub blocks: u32,
    /// Bytes of device memory for the events of a launch.
    pub room: u64,
    /// Runs the program again under the profiler, for instruction counts.
    pub counts: bool,
    /// The patches, compiled for the GPU.
    pub patches: Vec<u8>,
    /// The GPU's architecture, such as 90.
    pub architecture: u32,
    /// A folder for traces and their list; existing files are kept.
    pub out: PathBuf,
}

/// One traced launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// The kernel's mangled name.
    pub kernel: String,
    /// The trace.
    pub file: PathBuf,
    /// Totals of the trace.
    pub written: Written,
}

/// Traces a program. `say` receives a line for each step.
///
/// # Errors
/// [`Error`] if a tool is missing, the program cannot be started, or events do not fit the machine
/// code.
pub fn trace(request: &Request, say: &mut dyn FnMut(&str)) -> Result<(ExitStatus, Vec<Traced>), Error> {
    let sanitizer = tools::sanitizer()?;
    let raw = request.out.join("raw");
    fs::create_dir_all(&raw)?;
    let (library, patches) = (raw.join("libbuddy_tracer.so"), raw.join("patches.cubin"));
    fs::write(&library, INJECTED)?;
    fs::write(&patches, &request.patches)?;
    say("running the program with patched kernels");
    let status = injected(
        request,
        &sanitizer,
        &library.canonicalize()?,
        &patches.canonicalize()?,
        &raw.canonicalize()?,
    )?;
    let counts = match tools::profiler().filter(|_| request.counts) {
        Some(ncu) => {
            say("running it again under ncu, to count instructions");
            profiled(request, &ncu, &raw)?
        }
        None => Vec::new(),
    };
    let mut modules: Vec<Option<Sections>> = Vec::new();
    let mut traced = Vec::new();
    let files: Vec<PathBuf> = (0..)
        .map(|number| raw.join(format!("launch-{number:05}.raw")))
        .take_while(|file| file.exists())
        .collect();
    // The profiler may print more than one table for a launch, with the same counts.
    let tables = (counts.len() / files.len().max(1)).max(1);
    for (number, file) in files.iter().enumerate() {
        let launch = Launch::parse(&fs::read(file)?)?;
        say(&format!("putting together launch {number}, {}", launch.kernel));
        traced.push(put_together(request, &raw, &launch, number, &mut modules, counts.get(number * tables))?);
    }
    let list: String = traced.iter().map(|one| format!("{}\n", file_name(&one.file))).collect();
    fs::write(request.out.join("kernelslist.g"), list)?;
    fs::remove_dir_all(&raw)?;
    Ok((status, traced))
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Runs the program with the injected library; input, output and exit code are its own.
fn injected(
    request: &Request,
    sanitizer: &Path,
    library: &Path,
    patches: &Path,
    raw: &Path,
) -> Result<ExitStatus, Error> {
    let status = Command::new(&request.command[0])
        .args(&request.command[1..])
        .env("CUDA_INJECTION64_PATH", library)
        .env("BUDDY_TRACE_SANITIZER", sanitizer)
        .env("BUDDY_TRACE_PATCHES", patches)
        .env("BUDDY_TRACE_OUT", raw)
        .env("BUDDY_TRACE_KERNEL", &request.kernel)
        .env("BUDDY_TRACE_SKIP", request.skip.to_string())
        .env("BUDDY_TRACE_COUNT", request.count.to_string())
        .env("BUDDY_TRACE_BLOCKS", request.blocks.to_string())
        .env("BUDDY_TRACE_ROOM", request.room.to_string())
        .status();
    status.map_err(|error| Error::Tool { tool: "the program", why: error.to_string() })
}

/// Returns the counts of the same launches, from a run under the profiler.
fn profiled(request: &Request, ncu: &Path, raw: &Path) -> Result<Vec<Counts>, Error> {
    let report = raw.join("counts.ncu-rep");
    let mut command = Command::new(ncu);
    command
        .args(["--clock-control", "none", "--section", "SourceCounters", "--force-overwrite", "--export"])
        .arg(&report);
    if !request.kernel.is_empty() {
        command
            .args(["--kernel-name-base", "mangled", "--kernel-name"])
            .arg(format!("regex:{}", escaped(&request.kernel)));
    }
    command.args(["--launch-skip", &request.skip.to_string(), "--launch-count", &request.count.to_string()]);
    let output = command.args(&request.command).output();
    let output = output.map_err(|error| Error::Tool { tool: "ncu", why: error.to_string() })?;
    if !report.exists() {
        let said = String::from_utf8_lossy(&output.stdout);
        let why = said.lines().rev().find(|line| line.starts_with("==")).unwrap_or("it wrote no report");
        return Err(Error::Tool { tool: "ncu", why: format!("{why}; --no-counts does without it") });
    }
    parse_counts(&tools::source_page(ncu, &report)?)
}

/// Escapes a name to a pattern that matches it alone.
fn escaped(name: &str) -> String {
    name.chars().flat_map(|c| if c.is_alphanumeric() || c == '_' { vec![c] } else { vec!['\\', c] }).collect()
}

fn put_together(
    request: &Request,
    raw: &Path,
    launch: &Launch,
    number: usize,
    modules: &mut Vec<Option<Sections>>,
    counts: Option<&Counts>,
) -> Result<Traced, Error> {
    if launch.lost > 0 {
        let all = launch.lost + launch.events.len() as u64;
        return Err(Error::Lost { kernel: launch.kernel.clone(), lost: launch.lost, all });
    }
    let module = raw.join(format!("module-{}.cubin", launch.module));
    if modules.len() <= launch.module {
        modules.resize(launch.module + 1, None);
    }
    if modules[launch.module].is_none() {
        modules[launch.module] = Some(sass::parse(&tools::disassemble(&module)?)?);
    }
    let code = modules[launch.module].as_ref().and_then(|sections| sections.get(&launch.kernel));
    let code = code.ok_or_else(|| Error::NoCode(launch.kernel.clone()))?;
    let fixed = tools::resources(&module, &launch.kernel)?;
    let resources = Resources { shared_bytes: fixed.shared_bytes + launch.shared_bytes, ..fixed };
    // Counts cover all blocks, so that only complete launches can be compared.
    let whole = launch.blocks >= launch.grid.iter().product();
    let file = request.out.join(format!("kernel-{}.traceg", number + 1));
    let mut out = BufWriter::new(File::create(&file)?);
    let mut written = text::write(&mut out, launch, code, counts, resources, request.architecture)?;
    written.counted = written.counted.filter(|_| whole);
    out.flush()?;
    Ok(Traced { kernel: launch.kernel.clone(), file, written })
}
