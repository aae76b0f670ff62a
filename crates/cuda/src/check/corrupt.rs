//! Memory that no writer left so: any bytes under any nibbles read as the CPU reads them, or as zeros and a fault.

use buddy_codec::{Codec, CodecKind, Error as CodecError};
use buddy_core::{ENTRY_BYTES, Entry, Nibble, Target, ZERO_ENTRY};

use super::same;
use crate::{BuddyPool, Carveout, DeviceBytes, Error, Fault, FaultKind, Fill, Gpu, Targets};

/// Entries that are tried with each kind of data.
const ENTRIES: u64 = 1 << 14;

/// Compares what the GPU makes of faulty memory with what the CPU makes of it.
pub(super) fn check(gpu: &Gpu, kind: CodecKind) -> Result<(), Error> {
    let stream = gpu.stream()?;
    let codec = kind.train(&[]);
    let mut pool = BuddyPool::new(gpu, 2 * ENTRIES * ENTRY_BYTES as u64, Carveout::Device, 1 << 16)?;
    let plain = DeviceBytes::new(gpu, ENTRIES * ENTRY_BYTES as u64)?;
    for (seed, noise) in [(1, 0.0), (2, 1.0)] {
        let buffer = pool.buffer(codec.clone(), Targets::Uniform(Target::X1, ENTRIES))?;
        // Streams of real data under wrong nibbles, then noise under any.
        gpu.make(&stream, plain.all(), Fill::Varied, seed, noise)?;
        buffer.write(&stream, 0, plain.all())?;
        gpu.wait(&stream)?;
        let mut stored = vec![ZERO_ENTRY; ENTRIES as usize];
        let device = &buffer.regions().device;
        let offset = |address| address - device.address();
        gpu.check(
            "copy from the GPU",
            device.download(offset(buffer.memory().device), stored.as_flattened_mut()),
        )?;
        let nibbles: Vec<u8> = (0..ENTRIES / 2).map(|i| (i * 151 + (i >> 3) * 57 + seed) as u8).collect();
        gpu.check("copy to the GPU", device.upload(offset(buffer.memory().nibbles), &nibbles))?;
        buffer.read(&stream, 0, plain.all())?;
        buffer.stats(&stream)?;
        gpu.wait(&stream)?;
        let mut found = vec![ZERO_ENTRY; ENTRIES as usize];
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
