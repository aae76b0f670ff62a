//! `buddy pack`, `buddy unpack` and `buddy verify`: models in safetensors files, and back.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Result;
use buddy_model::{Job, Report};
use clap::Args;

use crate::{output, progress::Bar, say};

/// Pack a bf16 model: three quarters of its size, and not one bit changed
///
/// Takes a safetensors file, or the folder of a model with all its shards, and writes the same with
/// every bf16 matrix compressed, as the GPU's products read it; everything else stays as it is.
/// Files appear when they are complete; one that was packed already, from a file of the same length
/// and time, is not packed again if it restores every byte. `buddy unpack` gives the original back,
/// `buddy verify` checks the packed files alone.
#[derive(Args)]
#[command(after_help = "\
Examples:
  buddy pack Llama-3.1-8B --out Llama-3.1-8B-buddy --verify
  buddy pack model.safetensors --out packed.safetensors")]
pub(crate) struct Pack {
    /// A safetensors file, or the folder of a model
    #[arg(value_name = "MODEL")]
    from: PathBuf,

    /// Where the packed file or folder goes
    #[arg(long, value_name = "PATH")]
    out: PathBuf,

    /// Unpack each file again and compare every byte with the original
    #[arg(long)]
    verify: bool,

    /// Pack to 0.70 of the size instead of 0.754, for storage: `buddy unpack` and `verify` read it;
    /// loading it onto a GPU is not supported yet
    #[arg(long)]
    tight: bool,
}

/// Give the original files of a packed model back, byte for byte
#[derive(Args)]
#[command(after_help = "\
Examples:
  buddy unpack Llama-3.1-8B-buddy --out Llama-3.1-8B")]
pub(crate) struct Unpack {
    /// A file or folder that `buddy pack` wrote
    #[arg(value_name = "PACKED")]
    from: PathBuf,

    /// Where the original file or folder goes
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
}

/// Check a packed model against its checksums, without the original
///
/// Every packed tensor and every copied file has a checksum (XXH3-128), and `buddy.json` lists the
/// files. The command fails if a file is missing or one bit changed. Models packed by version 0.1.0
/// have no checksums, which the command says.
#[derive(Args)]
#[command(after_help = "\
Examples:
  buddy verify Llama-3.1-8B-buddy")]
pub(crate) struct Verify {
    /// A file or folder that `buddy pack` wrote
    #[arg(value_name = "PACKED")]
    from: PathBuf,
}

impl Pack {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        let job = Job { from: &self.from, to: &self.out, verify: self.verify };
        timed(&job, "packed", if self.tight { buddy_model::pack_tight } else { buddy_model::pack })?;
        if self.verify {
            output::print("verified: every byte\n")?;
        }
        Ok(())
    }
}

impl Unpack {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        timed(&Job { from: &self.from, to: &self.out, verify: false }, "unpacked", buddy_model::unpack)
    }
}

impl Verify {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        let (bar, started) = (Bar::new(bytes(&self.from)), Instant::now());
        let checked = buddy_model::verify(&self.from, &|done| bar.add(done))?;
        bar.finish();
        say_unchecked(checked.unchecked);
        let seconds = started.elapsed().as_secs_f64();
        output::print(&format!(
            "checked {} {}: {}, {seconds:.1} s, {:.2} GB/s\n",
            checked.files,
            files(checked.files),
            buddy_report::bytes(checked.bytes),
            checked.bytes as f64 / 1e9 / seconds,
        ))
    }
}

fn files(count: usize) -> &'static str {
    if count == 1 { "file" } else { "files" }
}

fn say_unchecked(count: usize) {
    if count > 0 {
        let files = files(count);
        say(format_args!(
            "note: {count} {files} packed without checksums: not checked; pack the original again to add them"
        ));
    }
}

type Work = fn(&Job<'_>, buddy_model::Progress<'_>) -> Result<Report, buddy_model::Error>;

/// Does a job, and prints what came of it.
fn timed(job: &Job<'_>, what: &str, work: Work) -> Result<()> {
    let passes = if job.verify { 2 } else { 1 };
    let (bar, started) = (Bar::new(passes * bytes(job.from)), Instant::now());
    let report = work(job, &|done| bar.add(done))?;
    bar.finish();
    let (seconds, sizes) = (started.elapsed().as_secs_f64(), report.sizes);
    for folder in &report.left_out {
        say(format_args!("note: the folder {} is left out", folder.display()));
    }
    for name in &report.unlisted {
        say(format_args!("note: {name} is not in buddy.json: copied without a check"));
    }
    say_unchecked(report.unchecked);
    let kept =
        if report.resumed > 0 { format!(", {} were there already", report.resumed) } else { String::new() };
    output::print(&format!(
        "{what} {} {}{kept}: {} plain, {} packed ({:.1}%), {seconds:.1} s, {:.2} GB/s\n",
        report.files,
        files(report.files),
        buddy_report::bytes(sizes.plain),
        buddy_report::bytes(sizes.packed),
        100.0 * sizes.packed as f64 / sizes.plain.max(1) as f64,
        sizes.plain as f64 / 1e9 / seconds,
    ))
}

/// Bytes of a file, or of a folder's safetensors files; for the bar.
fn bytes(path: &Path) -> u64 {
    let length = |path: &Path| path.metadata().map_or(0, |found| found.len());
    let files = path.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let shards = files.filter(|path| path.extension().is_some_and(|name| name == "safetensors"));
    if path.is_dir() { shards.map(|path| length(&path)).sum() } else { length(path) }
}
