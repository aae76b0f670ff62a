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
use buddy_core::{Entry, Record, RunRecord};
use buddy_cuda::{Params, SURVEY_SHAPE, Source, architectures, survey_groups};
use buddy_inject::{Lesson, Request, Watched, When, collect, prepare, report, run_unwatched, watch};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use rayon::prelude::*;
use tempfile::TempDir;

use crate::{output, say};

/// Watch the memory of a CUDA program while it runs, and record how it compresses
///
/// The program runs as it is: its input, output, signals and exit code are its own. Its allocations are followed and
/// looked at in place, ten to nineteen times in a run of any length (docs/guide/hpc-programs.md). The record is what `buddy
/// profile` takes.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Watch {
    /// Write the record here; a process of several, or one with a rank, has that in the name
    #[arg(long, value_name = "PATH", default_value = "watch.json")]
    out: PathBuf,

    #[command(flatten)]
    watching: Watching,

    /// Count which allocations launches are given, and write that beside the record, for `buddy profile --accesses`
    #[arg(long)]
    accesses: bool,

    /// The program and its arguments, after `--`
    #[arg(last = true, value_name = "PROGRAM", required = true)]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  buddy watch --out cg.json -- ./cg C
  buddy watch --kernel gemm --dump snapshots -- python3 train.py
  mpirun -n 4 buddy watch --every-ms 500 -- ./solver input";

/// How a program is watched.
#[derive(Args)]
#[command(next_help_heading = "Watching")]
pub(crate) struct Watching {
    /// Look after every N launches at first; as the run goes on, every second snapshot is dropped and N doubled
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,

    /// Look at times instead, after every MS milliseconds at first
    #[arg(long, value_name = "MS", conflicts_with_all = ["every", "kernel"], value_parser = clap::value_parser!(u64).range(1..))]
    every_ms: Option<u64>,

    /// Count only launches of kernels whose mangled name holds NAME
    #[arg(long, value_name = "NAME", default_value = "")]
    kernel: String,

    /// Look when the program asks, by buddy_watch_look of include/buddy_watch.h, and keep every snapshot
    #[arg(long, conflicts_with_all = ["every", "every_ms", "kernel"])]
    asked: bool,

    /// Write full snapshots to this new folder too, as a run
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,

    /// Codecs to measure while it runs: names, or `all` that a GPU can measure
    #[arg(long, value_name = "LIST", default_value = "all", hide_possible_values = true, value_delimiter = ',', value_parser = codecs_parser())]
    watch_codecs: Vec<String>,

    /// Keep the program's calls in the log, and the log
    #[arg(long, hide = true)]
    keep_log: bool,
}

/// What came of a program.
pub(crate) struct Outcome {
    /// Its exit code, or 128 and the number of the signal that ended it.
    pub(crate) code: u8,
    watched: Vec<Watched>,
    counted: bool,
}

impl Watch {
    /// Does the verb's job.
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
                say(format_args!("  accesses, by the pointers that launches were given: {}", path.display()));
            }
        }
        Ok(outcome.code)
    }
}

impl Watching {
    /// Runs a program, watched if that can be, and says what came of it.
    pub(crate) fn run(&self, program: &[OsString], accesses: bool) -> Result<Outcome> {
        if let Some(dir) = self.dump.as_ref().filter(|dir| dir.join("run.json").exists()) {
            bail!("{} holds a run already; name a new folder", dir.display());
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
            say(format_args!("buddy watch: no memory of a GPU was seen"));
        }
        for one in &watched {
            report(one).lines().for_each(|line| say(format_args!("{line}")));
        }
        self.collect(&watched)?;
        Ok(Outcome { code: code(status), watched, counted: accesses })
    }

    /// All that watching needs, in a folder of its own.
    fn prepare(&self, program: &[OsString], accesses: bool) -> Result<(TempDir, Request)> {
        let kinds: Vec<CodecKind> = self.codecs().collect();
        let groups = survey_groups(&kinds);
        let kernels = kernels(&groups)?;
        let folder =
            tempfile::Builder::new().prefix("buddy-watch-").tempdir().context("a temporary folder")?;
        // In the order of the groups: lessons come in that of the kernels.
        let learning = groups.iter().flatten().filter(|kind| kind.learns());
        let request = Request {
            command: program.to_vec(),
            groups: groups
                .iter()
                .map(|kinds| kinds.iter().map(|kind| kind.name().to_owned()).collect())
                .collect(),
            kernels,
            learning: learning.map(|kind| kind.name().to_owned()).collect(),
            teach,
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
        match (self.asked, self.every_ms) {
            (true, _) => When::Asked,
            (_, Some(milliseconds)) => When::Milliseconds(milliseconds),
            _ => When::Launches { kernel: self.kernel.clone(), every: self.every },
        }
    }

    /// The codecs to measure, the paper's first.
    fn codecs(&self) -> impl Iterator<Item = CodecKind> {
        let all = self.watch_codecs.iter().any(|name| name == "all");
        buddy_cuda::codecs()
            .filter(move |kind| all || self.watch_codecs.iter().any(|name| name == kind.name()))
    }

    /// Full snapshots become runs.
    fn collect(&self, watched: &[Watched]) -> Result<()> {
        let Some(dir) = &self.dump else { return Ok(()) };
        for one in watched {
            let alone = watched.len() == 1 && one.rank.is_none();
            let to = if alone { dir.clone() } else { dir.join(suffix(one, watched)) };
            let sometimes = collect(one, &dir.join(&one.name), &to)?;
            let left = if sometimes == 0 {
                String::new()
            } else {
                format!("; {sometimes} allocations that do not live throughout are in sometimes/")
            };
            say(format_args!("  snapshots: {}{left}", to.display()));
        }
        Ok(())
    }
}

impl Outcome {
    /// The record of the process with the most memory, and what its launches were given if that was counted.
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

/// The environment's name for a library that CUDA loads.
const INJECTION: &str = "CUDA_INJECTION64_PATH";

/// The size kernels of every group of codecs for every GPU, from the cache or compiled, a thread each.
fn kernels(groups: &[Vec<CodecKind>]) -> Result<Vec<(u32, usize, Vec<u8>)>> {
    if let Some(other) = env::var_os(INJECTION) {
        bail!("{INJECTION} is set, so another tool is to be loaded ({})", other.display());
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
fn teach(codec: &str, sample: &[Entry]) -> Lesson {
    let Ok(kind) = codec.parse::<CodecKind>() else { return Lesson::default() };
    let codec = kind.train(sample);
    Lesson {
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

/// What tells a process from its fellows: its rank, and its number where there is none or several have it.
fn suffix(watched: &Watched, all: &[Watched]) -> String {
    let fellows = all.iter().filter(|one| one.rank == watched.rank).count();
    match watched.rank {
        Some(rank) if fellows == 1 => format!("rank{rank}"),
        Some(rank) => format!("rank{rank}.{}", watched.name),
        None => watched.name.clone(),
    }
}

/// The record's name: with the rank where there is one, with the process's number where there are several.
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

/// The exit code as shells have it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_has_a_name_of_its_own() {
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
