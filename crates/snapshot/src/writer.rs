//! Writes a run: `run.json` and one `.safetensors` file per snapshot.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use buddy_record::{RunInfo, SnapshotInfo};

use crate::{Claim, Error, run::RUN_FILE, safetensors, source::free_bytes, write_atomic};

/// A run being written. The directory holds a complete run after every snapshot, so that an
/// interruption loses only later snapshots. Before the first one `run.json` lists none, which readers
/// refuse; without it they would take a snapshot for a dump.
#[derive(Debug)]
pub struct RunWriter {
    dir: PathBuf,
    info: RunInfo,
    _claim: Claim,
}

impl RunWriter {
    /// Begins a run in a new or empty directory, after checking that the disk has room for
    /// `snapshots` snapshots.
    ///
    /// # Errors
    /// If the directory is not empty or another process writes to it, the disk is too full, or the
    /// allocations are invalid.
    pub fn create(dir: &Path, info: RunInfo, snapshots: usize) -> Result<Self, Error> {
        make_room(dir, &info, snapshots).map_err(|error| error.at(dir.display()))?;
        let claim = Claim::new(dir)?;
        // Checked after the claim, so that of two writers the second sees the first one's files.
        if fs::read_dir(dir).map_err(|error| Error::Io(error).at(dir.display()))?.next().is_some() {
            return Err(Error::NotEmpty.at(dir.display()));
        }
        let writer = Self { dir: dir.to_owned(), info, _claim: claim };
        writer.describe()?;
        Ok(writer)
    }

    /// Writes one snapshot: the bytes of every allocation, in the order of the run.
    ///
    /// # Errors
    /// If the bytes do not match the allocations, or cannot be written.
    pub fn write(&mut self, step: u64, arrays: &[&[u8]]) -> Result<(), Error> {
        self.check_lengths(arrays)?;
        let file = format!("snapshot-{}.safetensors", self.info.snapshots.len());
        let tensors: Vec<_> = self
            .info
            .allocations
            .iter()
            .zip(arrays)
            .map(|(allocation, &bytes)| (allocation.name.as_str(), allocation.dtype, bytes))
            .collect();
        let header = safetensors::Header::of(&tensors)?;
        write_atomic(&self.dir.join(&file), |out| header.write(out, &tensors))?;
        self.info.snapshots.push(SnapshotInfo { step, label: String::new(), file: Some(file) });
        self.describe()
    }

    /// Writes `run.json`.
    fn describe(&self) -> Result<(), Error> {
        let json = serde_json::to_string_pretty(&self.info)
            .map_err(|error| Error::format(RUN_FILE, error.to_string()))?;
        write_atomic(&self.dir.join(RUN_FILE), |out| writeln!(out, "{json}"))
    }

    fn check_lengths(&self, arrays: &[&[u8]]) -> Result<(), Error> {
        let (expected, found) = (self.info.allocations.len(), arrays.len());
        if expected != found {
            return Err(Error::Count { expected, found });
        }
        for (allocation, bytes) in self.info.allocations.iter().zip(arrays) {
            let found = bytes.len() as u64;
            if allocation.bytes != found {
                return Err(Error::Changed {
                    name: allocation.name.clone(),
                    expected: allocation.bytes,
                    found,
                });
            }
        }
        Ok(())
    }

    /// Returns the run's description so far.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }
}

/// Creates the directory of a valid run for which the disk has room.
fn make_room(dir: &Path, info: &RunInfo, snapshots: usize) -> Result<(), Error> {
    let planned = SnapshotInfo { step: 0, label: String::new(), file: None };
    RunInfo { snapshots: vec![planned], ..info.clone() }.validate()?;
    let needed = info.bytes().saturating_mul(snapshots as u64);
    let free = free_bytes(dir)?;
    if needed > free {
        return Err(Error::NoSpace { needed, free });
    }
    Ok(fs::create_dir_all(dir)?)
}
