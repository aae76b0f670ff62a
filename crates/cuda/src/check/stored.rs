//! What lies in memory after a write, and what every way of reading makes of it.

use std::sync::PoisonError;

use buddy_codec::Codec;
use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, Entry, Place, SizeClass, Target};
use cudarc::driver::CudaStream;
use rayon::prelude::*;

use super::{Bench, same};
use crate::{BuddyBuffer, BuddyPool, DeviceBytes, Error, Gpu, Targets};

/// What memory holds before a write: bytes that no entry would leave by chance.
const POISON: u8 = 0xee;
/// Entries that are gathered and scattered one by one.
const LISTED: usize = 4096;

/// Compares at every target and with mixed pages; gives the share of entries that overflowed at each.
pub(super) fn check(bench: &Bench, codec: &Codec, pool: &mut BuddyPool) -> Result<Vec<f64>, Error> {
    let entries = bench.plain.len() as u64;
    let mixed: Vec<Target> = (0..bench.plain.len().div_ceil(ENTRIES_PER_PAGE))
        .map(|page| Target::ALL[(page * 7 + page / 11) % Target::ALL.len()])
        .collect();
    let uniform = Target::ALL.map(|target| Targets::Uniform(target, entries));
    let mut shares = Vec::new();
    for targets in uniform.into_iter().chain([Targets::Pages(&mixed)]) {
        shares.push(one(bench, codec, pool, targets)?);
        pool.clear()?;
    }
    Ok(shares)
}

fn one(bench: &Bench, codec: &Codec, pool: &mut BuddyPool, targets: Targets<'_>) -> Result<f64, Error> {
    let gpu = &bench.gpu;
    let stream = gpu.stream()?;
    pool.poison(POISON)?;
    let buffer = pool.buffer(codec.clone(), targets)?;
    let name = |what: &str| match targets {
        Targets::Uniform(target, _) => format!("{what}, {} at {target}", codec.kind()),
        Targets::Pages(_) => format!("{what}, {} with mixed pages", codec.kind()),
    };
    buffer.write(&stream, 0, bench.data.all())?;
    buffer.stats(&stream)?;
    gpu.wait(&stream)?;
    memory(bench, &buffer, &name)?;
    let overflowing = statistics(bench, &buffer, &name)?;
    bench.back.fill(POISON)?;
    buffer.read(&stream, 0, bench.back.all())?;
    equal(bench, &stream, &name("read"))?;
    // In two parts that meet within a tile.
    bench.back.fill(POISON)?;
    let middle = ((bench.plain.len() as u64 / 2) | 1) * ENTRY_BYTES as u64;
    buffer.read(&stream, 0, bench.back.span(0..middle))?;
    buffer.read(&stream, middle / ENTRY_BYTES as u64, bench.back.span(middle..bench.back.len()))?;
    equal(bench, &stream, &name("read in two parts"))?;
    single(bench, gpu, &stream, &buffer, &name)?;
    buffer.stats(&stream)?;
    gpu.wait(&stream)?;
    same(buffer.latest().fault, None, || name("faults"))?;
    Ok(overflowing as f64 / bench.plain.len() as f64)
}

/// `back` is the data.
fn equal(bench: &Bench, stream: &CudaStream, what: &str) -> Result<(), Error> {
    bench.counts.fill(0)?;
    let count = bench.counts.span(0..8);
    bench.gpu.count_differences(stream, bench.data.all(), bench.back.all(), count)?;
    bench.gpu.wait(stream)?;
    let mut different = [0; 8];
    bench.counts.download(&mut different)?;
    same(u64::from_le_bytes(different), 0, || format!("{what}: words that differ"))
}

/// Every byte that an entry uses is the CPU's, and no buddy slot was touched in vain.
fn memory(bench: &Bench, buffer: &BuddyBuffer, name: &(impl Fn(&str) -> String + Sync)) -> Result<(), Error> {
    let regions = buffer.regions();
    let mut copies = bench.copies.lock().unwrap_or_else(PoisonError::into_inner);
    let [device, buddy] = &mut *copies;
    device.resize(regions.device.bytes() as usize, 0);
    buddy.resize(regions.buddy.bytes() as usize, 0);
    bench.gpu.check("copy from the GPU", regions.device.download(0, device))?;
    bench.gpu.check("copy from the GPU", regions.buddy.download(0, buddy))?;
    let (device, buddy) = (&*device, &*buddy);
    let nibbles = (buffer.memory().nibbles - regions.device.address()) as usize;
    let base = regions.device.address() as usize;
    bench.plain.par_chunks(ENTRIES_PER_PAGE).enumerate().try_for_each(|(page, entries)| {
        let first = page * ENTRIES_PER_PAGE;
        let extent = buffer.extent(first as u64);
        for i in first..first + entries.len() {
            let within = if extent.entries == buffer.entries() { i } else { i - first };
            let place = extent.place(within as u64).expect("an entry of the extent");
            let (nibble, slot) = (bench.nibbles[i], &bench.slots[i]);
            let metadata = device[nibbles + place.nibble.byte as usize] >> place.nibble.shift & 15;
            same(metadata, nibble.bits(), || name(&format!("nibble of entry {i}")))?;
            let parts = parts(&place, extent.target, nibble.class(), slot);
            let start = place.device.start as usize - base;
            same(&device[start..start + parts.0.len()], parts.0, || {
                name(&format!("device part of entry {i}"))
            })?;
            let start = place.buddy.start as usize;
            same(&buddy[start..start + parts.1.len()], parts.1, || {
                name(&format!("buddy part of entry {i}"))
            })?;
            let rest = &buddy[start + parts.1.len()..start + place.buddy.bytes as usize];
            same(rest.iter().all(|&byte| byte == POISON), true, || {
                name(&format!("rest of entry {i}'s slot"))
            })?;
        }
        Ok(())
    })
}

/// The slot's bytes that lie on the device, and in buddy memory.
fn parts<'a>(place: &Place, target: Target, class: SizeClass, slot: &'a Entry) -> (&'a [u8], &'a [u8]) {
    let (device, buddy) = place.used(target, class);
    slot[..(device.bytes + buddy.bytes) as usize].split_at(device.bytes as usize)
}

/// The report counts what the CPU counts; gives the entries that overflow.
fn statistics(bench: &Bench, buffer: &BuddyBuffer, name: &impl Fn(&str) -> String) -> Result<u64, Error> {
    let mut nibbles = [0; 8];
    let mut overflowing = 0;
    for (page, found) in bench.nibbles.chunks(ENTRIES_PER_PAGE).enumerate() {
        let target = buffer.target((page * ENTRIES_PER_PAGE) as u64);
        for nibble in found {
            nibbles[usize::from(nibble.bits())] += 1;
            overflowing += u64::from(!target.holds(nibble.class()));
        }
    }
    let mut stats = buffer.latest();
    // Entries after the last of the data, in mixed pages, are zeros.
    stats.nibbles[0] -= buffer.entries() - bench.plain.len() as u64;
    same((stats.nibbles, stats.reserved, stats.overflowing), (nibbles, 0, overflowing), || {
        name("statistics")
    })?;
    Ok(overflowing)
}

/// Single entries: gathered; scattered over and gathered with their neighbours.
fn single(
    bench: &Bench,
    gpu: &Gpu,
    stream: &CudaStream,
    buffer: &BuddyBuffer,
    name: &impl Fn(&str) -> String,
) -> Result<(), Error> {
    let entries = bench.plain.len();
    let count = LISTED.min(entries / 3);
    // Every third entry at least: a neighbour on either side stays as it is.
    let step = entries / count;
    let numbers: Vec<u32> = (0..count).map(|i| (i * step) as u32).collect();
    let shuffled: Vec<u32> = (0..count).map(|i| numbers[i * 2654435761 % count]).collect();
    same_gather(gpu, stream, buffer, &bench.plain, &shuffled, &name("gather"))?;
    let sources: Vec<Entry> = (0..count).map(|i| bench.plain[(i * 31 + 5) % entries]).collect();
    let list = DeviceBytes::new(gpu, 4 * count as u64)?;
    let from = DeviceBytes::new(gpu, (ENTRY_BYTES * count) as u64)?;
    list.upload(bytemuck::cast_slice(&numbers))?;
    from.upload(sources.as_flattened())?;
    buffer.scatter(stream, list.all(), from.all())?;
    gpu.wait(stream)?;
    let around = (0..count * step).step_by(step).flat_map(|i| [i, i + 1, (i + step - 1).min(entries - 1)]);
    let around: Vec<u32> = around.map(|i| i as u32).collect();
    let expected = |i: u32| {
        let i = i as usize;
        if i.is_multiple_of(step) && i / step < count { sources[i / step] } else { bench.plain[i] }
    };
    let found = gather(gpu, stream, buffer, &around)?;
    for (found, &i) in found.iter().zip(&around) {
        same(*found, expected(i), || name(&format!("entry {i} after a scatter")))?;
    }
    Ok(())
}

fn same_gather(
    gpu: &Gpu,
    stream: &CudaStream,
    buffer: &BuddyBuffer,
    plain: &[Entry],
    numbers: &[u32],
    what: &str,
) -> Result<(), Error> {
    for (found, &i) in gather(gpu, stream, buffer, numbers)?.iter().zip(numbers) {
        same(*found, plain[i as usize], || format!("{what}: entry {i}"))?;
    }
    Ok(())
}

fn gather(
    gpu: &Gpu,
    stream: &CudaStream,
    buffer: &BuddyBuffer,
    numbers: &[u32],
) -> Result<Vec<Entry>, Error> {
    let list = DeviceBytes::new(gpu, 4 * numbers.len() as u64)?;
    let to = DeviceBytes::new(gpu, (ENTRY_BYTES * numbers.len()) as u64)?;
    list.upload(bytemuck::cast_slice(numbers))?;
    to.fill(POISON)?;
    buffer.gather(stream, list.all(), to.all())?;
    gpu.wait(stream)?;
    let mut found = vec![[0; ENTRY_BYTES]; numbers.len()];
    to.download(found.as_flattened_mut())?;
    Ok(found)
}
