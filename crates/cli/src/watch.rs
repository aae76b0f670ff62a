//! `buddy watch`: the memory of a CUDA program while it runs.

use std::{
    env,
    ffi::OsString,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::ExitStatus,
};

use anyhow::{Context, Result, bail};
use buddy_codec::{CodecKind, EntryCodec};
use buddy_core::Entry;
use buddy_cuda::{Params, SURVEY_SHAPE, Source, architectures, survey_groups};
use buddy_inject::{Request, TrainedCodec, Watched, When, collect, prepare, report, run_unwatched, watch};
use buddy_record::{Record, RunRecord};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use rayon::prelude::*;
use tempfile::TempDir;

use crate::{output, say};

/// Run a CUDA program and record how its GPU memory compresses
///
/// The program runs unmodified, with its own input, output, signals and exit code. Its allocations
/// are tracked and measured on the GPU, ten to nineteen times in a run of any length
/// (docs/guide/hpc-programs.md). `buddy profile` reads the record.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Watch {
    /// File of the record; with several processes or MPI ranks, the process or rank is added to the
    /// name
    #[arg(long, value_name = "PATH", default_value = "watch.json")]
    out: PathBuf,

    #[command(flatten)]
    watching: Watching,

    /// Count the launches that receive each allocation, and write the counts next to the record for
    /// `buddy profile --accesses`
    #[arg(long)]
    accesses: bool,

    /// Program and its arguments, after `--`
    #[arg(last = true, value_name = "PROGRAM", required = true)]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  buddy watch --out cg.json -- ./cg C
  buddy watch --kernel gemm --dump snapshots -- python3 train.py
  mpirun -n 4 buddy watch --every-ms 500 -- ./solver input";

/// When and how a program's memory is measured.
#[derive(Args)]
#[command(next_help_heading = "Watching")]
pub(crate) struct Watching {
    /// Measure after every N launches at first; during the run, every second snapshot is dropped
    /// and N doubled
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,

    /// Measure every MS milliseconds at first, instead of by launches
    #[arg(long, value_name = "MS", conflicts_with_all = ["every", "kernel"], value_parser = clap::value_parser!(u64).range(1..))]
    every_ms: Option<u64>,

    /// Count only launches of kernels whose mangled name contains NAME
    #[arg(long, value_name = "NAME", default_value = "")]
    kernel: String,

    /// Measure when the program calls buddy_watch_look of include/buddy_watch.h, and keep every
    /// snapshot
    #[arg(long, alias = "asked", conflicts_with_all = ["every", "every_ms", "kernel"])]
    on_request: bool,

    /// Also write full snapshots to this new folder, as a run
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,

    /// Codecs to measure while the program runs: names, or `all` that have GPU kernels
    #[arg(long, value_name = "LIST", default_value = "all", hide_possible_values = true, value_delimiter = ',', value_parser = codecs_parser())]
    watch_codecs: Vec<String>,

    /// Log the program's calls, and keep the log
    #[arg(long, hide = true)]
    keep_log: bool,
}

/// Result of a watched run.
pub(crate) struct Outcome {
    /// Exit code, or 128 plus the number of the signal that ended the program.
    pub(crate) code: u8,
    watched: Vec<Watched>,
    counted: bool,
}

impl Watch {
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<u8> {
        output::check(&[("--out", Some(&self.out))], &[])?;
        let outcome = self.watching.run(&self.program, self.accesses)?;
        for watched in &outcome.watched {
            let Some(record) = recorded(watched) else { continue };
            let path = named(&self.out, watched, &outcome.watched);
            output::write(&path, &record.to_json())?;
            say(format_args!("  record: {}", path.display()));
            if outcome.counted {
                let path = path.with_extension("accesses.json");
                output::write(&path, &watched.accesses_json())?;
                say(format_args!("  accesses, by the pointers passed to launches: {}", path.display()));
            }
        }
        Ok(outcome.code)
    }
}

impl Watching {
    /// Runs a program and reports its memory; unwatched, with a message, if it cannot be watched.
    pub(crate) fn run(&self, program: &[OsString], accesses: bool) -> Result<Outcome> {
        if let Some(dir) = self.dump.as_ref().filter(|dir| dir.join("run.json").exists()) {
            bail!("{} contains a run already; give a new folder", dir.display());
        }
        let (folder, request) = match self.prepare(program, accesses) {
            Ok(prepared) => prepared,
            Err(why) => {
                say(format_args!("buddy watch: {why:#}; the program runs unwatched"));
                let code = code(run_unwatched(program)?);
                return Ok(Outcome { code, watched: Vec::new(), counted: accesses });
            }
        };
        let (status, watched) = watch(&request)?;
        if self.keep_log {
            say(format_args!("buddy watch: the log is in {}", folder.keep().display()));
        }
        if watched.iter().all(|one| one.record().is_none()) {
            say(format_args!("buddy watch: no GPU memory was observed"));
        }
        for one in &watched {
            report(one).lines().for_each(|line| say(format_args!("{line}")));
        }
        self.collect(&watched)?;
        Ok(Outcome { code: code(status), watched, counted: accesses })
    }

    /// Compiles the kernels and writes the request to a temporary folder.
    fn prepare(&self, program: &[OsString], accesses: bool) -> Result<(TempDir, Request)> {
        let kinds: Vec<CodecKind> = self.codecs().collect();
        let groups = survey_groups(&kinds);
        let kernels = kernels(&groups)?;
        let folder = tempfile::Builder::new()
            .prefix("buddy-watch-")
            .tempdir()
            .context("cannot create a temporary folder")?;
        // In the order of the groups, which is that of the kernels.
        let learning = groups.iter().flatten().filter(|kind| kind.has_parameters());
        let request = Request {
            command: program.to_vec(),
            groups: groups
                .iter()
                .map(|kinds| kinds.iter().map(|kind| kind.name().to_owned()).collect())
                .collect(),
            kernels,
            learning: learning.map(|kind| kind.name().to_owned()).collect(),
            train,
            shape: SURVEY_SHAPE,
            when: self.when(),
            dump: self.dump.as_ref().map(|dir| absolute(dir)).transpose()?,
            accesses,
            log: self.keep_log,
            folder: folder.path().to_owned(),
        };
        prepare(&request)?;
        Ok((folder, request))
    }

    fn when(&self) -> When {
        match (self.on_request, self.every_ms) {
            (true, _) => When::OnRequest,
            (_, Some(milliseconds)) => When::Milliseconds(milliseconds),
            _ => When::Launches { kernel: self.kernel.clone(), every: self.every },
        }
    }

    /// Returns the codecs to measure, the paper's first.
    fn codecs(&self) -> impl Iterator<Item = CodecKind> {
        let all = self.watch_codecs.iter().any(|name| name == "all");
        buddy_cuda::codecs()
            .filter(move |kind| all || self.watch_codecs.iter().any(|name| name == kind.name()))
    }

    /// Converts full snapshots to runs.
    fn collect(&self, watched: &[Watched]) -> Result<()> {
        let Some(dir) = &self.dump else { return Ok(()) };
        for one in watched {
            let alone = watched.len() == 1 && one.rank.is_none();
            let to = if alone { dir.clone() } else { dir.join(suffix(one, watched)) };
            let sometimes = collect(one, &dir.join(&one.name), &to)?;
            let left = if sometimes == 0 {
                String::new()
            } else {
                format!("; {sometimes} allocations that were freed early or made late are in sometimes/")
            };
            say(format_args!("  snapshots: {}{left}", to.display()));
        }
        Ok(())
    }
}

impl Outcome {
    /// Returns the record of the process with the most memory, and its access counts if counted.
    pub(crate) fn largest(&self) -> Option<(Record<RunRecord>, Option<String>)> {
        let seen = self.watched.iter().filter(|one| one.record().is_some());
        let largest = seen.max_by_key(|one| one.totals.peak_bytes)?;
        if self.watched.len() > 1 {
            let name = suffix(largest, &self.watched);
            say(format_args!("profiling {name}, which has the most memory; `buddy watch` records them all"));
        }
        Some((recorded(largest)?, self.counted.then(|| largest.accesses_json())))
    }
}

/// Environment variable with the library that CUDA loads.
const INJECTION: &str = "CUDA_INJECTION64_PATH";

/// Returns the size kernels of each group of codecs for each GPU, from the cache or compiled in
/// parallel.
fn kernels(groups: &[Vec<CodecKind>]) -> Result<Vec<(u32, usize, Vec<u8>)>> {
    if let Some(other) = env::var_os(INJECTION) {
        bail!("{INJECTION} is set already, to {}", other.display());
    }
    let mut kernels = Vec::new();
    for architecture in architectures()? {
        let compile = |kinds: &Vec<CodecKind>| Source::survey(kinds)?.cached(architecture);
        let compiled: Vec<_> = groups.par_iter().map(compile).collect();
        for (group, code) in compiled.into_iter().enumerate() {
            kernels.push((architecture, group, code?));
        }
    }
    Ok(kernels)
}

/// Trains a codec on a sample of an allocation.
fn train(codec: &str, sample: &[Entry]) -> TrainedCodec {
    let Ok(kind) = codec.parse::<CodecKind>() else { return TrainedCodec::default() };
    let codec = kind.train(sample);
    TrainedCodec {
        window: Params::of(&codec).window(),
        block: codec.block(),
        bytes: codec.parameter_bytes() as u64,
        parameters: serde_json::to_value(&codec).unwrap_or_default(),
    }
}

fn codecs_parser() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(buddy_cuda::codecs().map(CodecKind::name).chain(["all"]))
}

fn recorded(watched: &Watched) -> Option<Record<RunRecord>> {
    let mut record = Record::new(watched.record()?);
    record.spec =
        serde_json::json!({ "taken": watched.taken, "cost_seconds": watched.cost_nanoseconds as f64 / 1e9 });
    Some(record)
}

/// Returns the unique part of a process's file name: its rank, and its number if the rank is
/// missing or shared.
fn suffix(watched: &Watched, all: &[Watched]) -> String {
    let fellows = all.iter().filter(|one| one.rank == watched.rank).count();
    match watched.rank {
        Some(rank) if fellows == 1 => format!("rank{rank}"),
        Some(rank) => format!("rank{rank}.{}", watched.name),
        None => watched.name.clone(),
    }
}

/// Returns the path of a process's record: `out`, with a suffix if it has a rank or is one of
/// several.
fn named(out: &Path, watched: &Watched, all: &[Watched]) -> PathBuf {
    if watched.rank.is_none() && all.len() == 1 {
        return out.to_owned();
    }
    let ending =
        out.extension().map_or_else(|| "json".into(), |ending| ending.to_string_lossy().into_owned());
    out.with_extension(format!("{}.{ending}", suffix(watched, all)))
}

fn absolute(dir: &Path) -> Result<PathBuf> {
    std::path::absolute(dir).with_context(|| dir.display().to_string())
}

/// Returns the exit code as shells report it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_names_are_unique() {
        let one = |rank, name: &str| Watched { rank, name: name.to_owned(), ..Watched::default() };
        let named = |all: &[Watched]| -> Vec<String> {
            all.iter().map(|one| named(Path::new("a/run.json"), one, all).display().to_string()).collect()
        };
        assert_eq!(named(&[one(None, "7")]), ["a/run.json"]);
        assert_eq!(named(&[one(Some(3), "7")]), ["a/run.rank3.json"]);
        let several =
            [one(None, "5"), one(None, "5-2"), one(Some(0), "7"), one(Some(1), "8"), one(Some(1), "9")];
        let names = ["5", "5-2", "rank0", "rank1.8", "rank1.9"].map(|name| format!("a/run.{name}.json"));
        assert_eq!(named(&several), names);
    }
}
