//! Corrupt memory: random bytes and nibbles read as on the CPU, or as zeros with a fault.

use buddy_codec::{Codec, CodecKind, Error as CodecError};
use buddy_core::{ENTRY_BYTES, Entry, Nibble, Target, ZERO_ENTRY};

use buddy_cuda::{BuddyPool, Carveout, Fault, FaultKind};

use super::same;
use crate::{Error, Fill, Lab};

/// Entries per kind of data.
const ENTRIES: u64 = 1 << 14;

/// Compares the GPU's reads of corrupt memory with the CPU's.
pub(super) fn check(lab: &Lab, kind: CodecKind) -> Result<(), Error> {
    let bytes = ENTRIES * ENTRY_BYTES as u64;
    let mut pool = BuddyPool::new(&lab.gpu, 2 * bytes, Carveout::Device, 1 << 16)?;
    let (plain, metadata) = (lab.bytes(bytes)?, lab.bytes(ENTRIES / 2)?);
    let (mut stored, mut found) = (vec![ZERO_ENTRY; ENTRIES as usize], vec![ZERO_ENTRY; ENTRIES as usize]);
    // The codec's parameters stay valid while noise is written.
    lab.make(plain.all(), Fill::Varied, 1, 0.0)?;
    let codec = lab.gpu.train(&lab.stream, kind, plain.all())?;
    for (seed, noise) in [(1, 0.0), (2, 1.0)] {
        let buffer = pool.buffer(codec.clone(), Target::X1, ENTRIES)?;
        let part = |address, bytes| {
            let [device, _] = pool.spans();
            device.part(address - device.address()..address - device.address() + bytes)
        };
        // Streams of real data with wrong nibbles, then noise with random nibbles.
        lab.make(plain.all(), Fill::Varied, seed, noise)?;
        buffer.write(&lab.stream, 0, plain.all())?;
        lab.copy(part(buffer.view().memory.device, bytes), plain.all())?;
        plain.download(stored.as_flattened_mut())?;
        let nibbles: Vec<u8> = (0..ENTRIES / 2).map(|i| (i * 151 + (i >> 3) * 57 + seed) as u8).collect();
        metadata.upload(&nibbles)?;
        lab.copy(metadata.all(), part(buffer.view().memory.nibbles, ENTRIES / 2))?;
        buffer.read(&lab.stream, 0, plain.all())?;
        buffer.stats(&lab.stream)?;
        lab.wait()?;
        plain.download(found.as_flattened_mut())?;
        let mut fault = None;
        for (i, (found, stored)) in found.iter().zip(&stored).enumerate() {
            let nibble = nibbles[i / 2] >> (i % 2 * 4) & 15;
            let (entry, kind) = expected(&codec, nibble, stored);
            same(*found, entry, || format!("{kind:?} entry {i}, nibble {nibble}, of {}", codec.kind()))?;
            fault = fault.or(kind.map(|kind| Fault { entry: i as u64, kind }));
        }
        same(buffer.latest().fault, fault, || format!("first fault of {}", codec.kind()))?;
        drop(buffer);
        pool.clear()?;
    }
    Ok(())
}

fn expected(codec: &Codec, nibble: u8, stored: &Entry) -> (Entry, Option<FaultKind>) {
    let Ok(nibble) = Nibble::from_bits(nibble) else { return (ZERO_ENTRY, Some(FaultKind::Nibble)) };
    match codec.unpack(nibble, stored) {
        Ok(entry) => (entry, None),
        Err(CodecError::Truncated { .. }) => (ZERO_ENTRY, Some(FaultKind::Truncated)),
        Err(CodecError::Layout(_)) => (ZERO_ENTRY, Some(FaultKind::Layout)),
        Err(_) => (ZERO_ENTRY, Some(FaultKind::Invalid)),
    }
}
