//! Sources of a profile: snapshots on disk, the record of a run, or a built-in program.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use anyhow::{Context, Result, anyhow, bail};
use buddy_core::{Dtype, read_text};
use buddy_dl::{NetworkInfo, PAPER, TODAY};
use buddy_profile::{Measured, Tried};
use buddy_record::{Record, RunRecord};
use buddy_scenario::{Scale, did_you_mean, recorded_run};
use buddy_snapshot::{Pattern, Run};
use buddy_workloads::{ALL, Info};
use tempfile::TempDir;

use crate::{output::is_stdout, progress::Bar, say, workload};

/// The run to profile.
pub(super) enum Source {
    /// Snapshots on disk; those from stdin are in a temporary folder.
    Snapshots { run: Box<Run>, _kept: Option<TempDir> },
    /// Record of a run without its bytes.
    Record(Box<RunRecord>),
    /// A workload to run, with its footprint in bytes.
    Workload(&'static Info, u64),
}

/// Settings for reading a run.
pub(super) struct Reading<'a> {
    /// Pattern of the names of dumps.
    pub(super) pattern: Option<&'a Pattern>,
    /// Element type of dumps without one.
    pub(super) dtype: Option<Dtype>,
    /// Footprint of a workload.
    pub(super) scale: Scale,
}

impl Source {
    /// Opens a folder, a file, stdin, or a built-in program by name.
    pub(super) fn open(path: &Path, reading: &Reading<'_>) -> Result<Self> {
        if is_stdout(path) {
            return Self::stdin(reading);
        }
        if !path.exists() {
            return Self::named(path, reading.scale);
        }
        match path.is_dir() || !is_record(path).with_context(|| path.display().to_string())? {
            true => Self::run(path, reading, None),
            false => Self::record(path, read_text(path)),
        }
    }

    fn run(path: &Path, reading: &Reading<'_>, kept: Option<TempDir>) -> Result<Self> {
        let run = Run::open_dumps(path, reading.pattern, reading.dtype)?;
        if let Some(note) = run.note() {
            say(format_args!("{}: read as {note}", path.display()));
        }
        Ok(Self::Snapshots { run: Box::new(run), _kept: kept })
    }

    fn record(path: &Path, text: io::Result<String>) -> Result<Self> {
        let name = || path.display().to_string();
        let text = match text {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(anyhow!("neither a run directory nor a record")).with_context(name);
            }
            text => text.with_context(name)?,
        };
        Ok(Self::Record(Box::new(Record::from_json(&text).with_context(name)?.data)))
    }

    /// Opens a record or a file of arrays from stdin.
    fn stdin(reading: &Reading<'_>) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("stdin");
        io::copy(&mut io::stdin(), &mut File::create(&path)?).context("cannot read stdin")?;
        match fs::read_to_string(&path) {
            Ok(text) if text.trim_start().starts_with('{') => Self::record(Path::new("stdin"), Ok(text)),
            _ => Self::run(&path, reading, Some(dir)),
        }
    }

    /// Opens the recorded training of a network, or a workload to run.
    fn named(path: &Path, scale: Scale) -> Result<Self> {
        let name = path.to_string_lossy();
        if NetworkInfo::named(&name).is_some()
            && let Some(record) = recorded_run(None, &name)?
        {
            return Ok(Self::Record(Box::new(record)));
        }
        if let Some(info) = ALL.iter().find(|info| info.name == name) {
            return Ok(Self::Workload(info, scale.bytes(info)?));
        }
        let networks: Vec<&str> = PAPER.iter().chain(&TODAY).map(|info| info.name).collect();
        let workloads: Vec<&str> = ALL.iter().map(|info| info.name).collect();
        let nearest = did_you_mean(&name, networks.iter().chain(&workloads).copied());
        bail!(
            "{name}: No such file or directory; {nearest}built-in networks are {}, built-in workloads {}",
            networks.join(", "),
            workloads.join(", ")
        );
    }

    /// Returns the snapshots, if their bytes are available.
    pub(super) fn snapshots(&self) -> Option<&Run> {
        if let Self::Snapshots { run, .. } = self { Some(run) } else { None }
    }

    /// Sizes every entry with the codecs in `tried`.
    pub(super) fn measure(&self, tried: &Tried) -> Result<Measured> {
        match self {
            Self::Snapshots { run, .. } => {
                let info = run.info();
                let bar = Bar::new(info.bytes().saturating_mul(info.snapshots.len() as u64));
                let measured = Measured::from_run(run, tried, &|read| bar.add(read));
                bar.finish();
                Ok(measured?)
            }
            Self::Record(record) => Ok(Measured::from_record(record, tried)?),
            Self::Workload(info, bytes) => workload::measure(info, *bytes, tried),
        }
    }
}

/// Returns whether a file is the record of a run, by its name or first byte. A shard index is not.
fn is_record(path: &Path) -> io::Result<bool> {
    let name = path.to_string_lossy();
    if name.ends_with(".safetensors.index.json") {
        return Ok(false);
    }
    // Files that are not regular are rejected by the reader of records.
    if name.ends_with(".json") || !path.is_file() {
        return Ok(true);
    }
    let mut start = [0; 1];
    Ok(File::open(path)?.read(&mut start)? == 1 && start[0] == b'{')
}
