//! Trains codecs while the program runs: the injected library sends samples of new allocations and
//! receives the parameters for its kernels (`inject/training.rs` is the other side).

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::AsRawFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use buddy_core::{Entry, as_entries, last_entry};
use serde_json::Value;

use crate::Error;

/// The pseudo-slot of untrained codecs.
pub const UNTRAINED: u64 = u64::MAX;
/// More than any sample has.
const MOST_BYTES: u64 = 1 << 20;

/// Codec parameters trained on an allocation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrainedCodec {
    /// The window of `bf16`.
    pub window: u32,
    /// The block that its kernel reads, empty if there is none.
    pub block: Vec<u32>,
    /// Bytes of the parameters beside the entries.
    pub bytes: u64,
    /// The codec's parameters in files.
    pub parameters: Value,
}

/// Trains a codec, by name, on a sample; an empty sample asks for the untrained codec.
pub type Train = fn(codec: &str, sample: &[Entry]) -> TrainedCodec;

/// Trained parameters of one process, by slot and codec name.
pub type Learned = BTreeMap<u64, BTreeMap<String, TrainedCodec>>;

/// Trained parameters of all processes, by the names of their logs.
type ByProgram = BTreeMap<String, Learned>;

/// Runs `act`, and meanwhile trains these codecs on request through the folder's socket.
pub(crate) fn while_training<T>(
    folder: &Path,
    codecs: &[String],
    train: Train,
    act: impl FnOnce() -> T,
) -> Result<(T, ByProgram), Error> {
    // Through the folder's file descriptor, since a socket's path may have only about a hundred
    // bytes.
    let handle = File::open(folder).map_err(Error::file(folder))?;
    let address = format!("/proc/self/fd/{}/trainer", handle.as_raw_fd());
    let listener = UnixListener::bind(&address).map_err(Error::file(folder.join("trainer")))?;
    let (trained, done) = (Mutex::new(ByProgram::new()), AtomicBool::new(false));
    let acted = thread::scope(|scope| {
        scope.spawn(|| {
            for client in listener.incoming() {
                if done.load(Ordering::Acquire) {
                    break;
                }
                let Ok(client) = client else { continue };
                // A process that ended while asking needs no answer.
                scope.spawn(|| answer(client, codecs, train, &trained).unwrap_or(()));
            }
        });
        let acted = act();
        done.store(true, Ordering::Release);
        // Wakes the thread that waits for requests.
        let _ = UnixStream::connect(&address);
        acted
    });
    Ok((acted, trained.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

fn answer(
    mut client: UnixStream,
    codecs: &[String],
    train: Train,
    trained: &Mutex<ByProgram>,
) -> io::Result<()> {
    let mut number = || {
        let mut bytes = [0; 8];
        client.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes))
    };
    let (slot, lengths) = (number()?, [number()?, number()?]);
    let [mut name, mut bytes] = lengths.map(|length| vec![0; length.min(MOST_BYTES) as usize]);
    client.read_exact(&mut name)?;
    client.read_exact(&mut bytes)?;
    let (entries, tail) = as_entries(&bytes);
    let sample: Vec<Entry> = entries.iter().copied().chain(last_entry(tail)).collect();
    let learned: Vec<TrainedCodec> = codecs.iter().map(|codec| train(codec, &sample)).collect();
    let numbers: Vec<u64> = learned.iter().flat_map(numbers).collect();
    let named = codecs.iter().cloned().zip(learned).collect();
    let mut trained = trained.lock().unwrap_or_else(PoisonError::into_inner);
    let name = String::from_utf8_lossy(&name).into_owned();
    trained.entry(name).or_default().insert(slot, named);
    drop(trained);
    client.write_all(&numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>())
}

/// Encodes parameters for the library: the window, then length and words of the block, two 32-bit
/// words per number.
fn numbers(one: &TrainedCodec) -> Vec<u64> {
    let block = one.block.chunks(2).map(|two| u64::from(two[0]) | u64::from(*two.get(1).unwrap_or(&0)) << 32);
    [u64::from(one.window), one.block.len().div_ceil(2) as u64].into_iter().chain(block).collect()
}
