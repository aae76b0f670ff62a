//! Training of codecs for an allocation. The library only takes samples; the command trains the
//! codecs on them (`src/trainer.rs`), so that training is implemented once.

use std::{
    fs::File,
    io::{Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::Path,
};

use super::settings::Settings;

/// Bytes of each run of a sample, and the most runs, as in `Gpu::train` of buddy-cuda.
pub(crate) const RUN_BYTES: u64 = 1024;
const RUNS: u64 = 64;
const ENTRY_BYTES: u64 = 128;
/// Allocations whose codecs are trained at the same time.
pub(crate) const AT_ONCE: usize = 16;
/// The pseudo-slot of untrained codecs.
pub(crate) const UNTRAINED: u64 = u64::MAX;

/// Trained parameters of one codec: the window of `bf16`, or the block that its kernel reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TrainedCodec {
    pub(crate) window: u64,
    pub(crate) block: Vec<u64>,
}

/// Returns the offsets of a sample's runs: evenly spaced, aligned to entries.
pub(crate) fn places(bytes: u64) -> impl Iterator<Item = u64> {
    let room = bytes.saturating_sub(RUN_BYTES) / ENTRY_BYTES;
    let runs = RUNS.min(bytes / RUN_BYTES).max(1);
    (0..runs).map(move |run| room * run / (runs - 1).max(1) * ENTRY_BYTES)
}

/// A pending training request.
pub(crate) struct PendingTraining(UnixStream);

impl PendingTraining {
    /// Requests training of every trainable codec on a sample: sends slot, lengths, the program's
    /// name and the sample.
    pub(crate) fn about(settings: &Settings, slot: u64, sample: &[u8]) -> Result<Self, String> {
        let asked = || {
            let mut trainer = connect(&settings.folder)?;
            let name = settings.name.as_bytes();
            let head = [slot, name.len() as u64, sample.len() as u64].map(u64::to_le_bytes);
            trainer.write_all(&[head.as_flattened(), name, sample].concat())?;
            Ok(Self(trainer))
        };
        asked().map_err(nobody)
    }

    /// Waits for the trained parameters: for each codec its window, and length and words of its
    /// block.
    pub(crate) fn answer(mut self, settings: &Settings) -> Result<Vec<TrainedCodec>, String> {
        let learning = settings.learns.iter().filter(|learns| **learns);
        learning.map(|_| read_trained(&mut self.0)).collect::<Result<_, _>>().map_err(nobody)
    }
}

fn nobody(error: std::io::Error) -> String {
    format!("the codecs cannot be trained ({error})")
}

/// Connects through the folder's file descriptor, since a socket's path may have only about a
/// hundred bytes.
fn connect(folder: &Path) -> std::io::Result<UnixStream> {
    let folder = File::open(folder)?;
    UnixStream::connect(format!("/proc/self/fd/{}/trainer", folder.as_raw_fd()))
}

fn read_trained(from: &mut impl Read) -> std::io::Result<TrainedCodec> {
    let mut number = || {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes))
    };
    let (window, words) = (number()?, number()?);
    Ok(TrainedCodec { window, block: (0..words).map(|_| number()).collect::<Result<_, _>>()? })
}
