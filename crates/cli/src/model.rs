//! `buddy pack` and `buddy unpack`: models in safetensors files, and back.

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
/// and time, is not packed again. `buddy unpack` gives the original back.
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

impl Pack {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        let job = Job { from: &self.from, to: &self.out, verify: self.verify };
        timed(&job, "packed", buddy_model::pack)?;
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
    let kept =
        if report.resumed > 0 { format!(", {} were there already", report.resumed) } else { String::new() };
    let files = if report.files == 1 { "file" } else { "files" };
    output::print(&format!(
        "{what} {} {files}{kept}: {} plain, {} packed ({:.1}%), {seconds:.1} s, {:.2} GB/s\n",
        report.files,
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
