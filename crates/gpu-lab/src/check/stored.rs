//! Checks the stored bytes after a write, and every kind of read.

use std::sync::PoisonError;

use buddy_codec::Codec;
use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, Entry, Location, SizeClass, Target, TargetRange, Targets};
use buddy_cuda::{BuddyBuffer, BuddyPool};
use rayon::prelude::*;

use super::{Bench, same};
use crate::Error;

/// Fill pattern of memory before a write, so that unwritten bytes show.
const POISON: u8 = 0xee;
/// Entries that are gathered and scattered.
const LISTED: usize = 4096;

/// Compares at every target and with mixed pages; returns the fraction of entries that overflowed
/// at each.
pub(super) fn check(bench: &Bench, codec: &Codec, pool: &mut BuddyPool) -> Result<Vec<f64>, Error> {
    let mixed = (0..bench.plain.len().div_ceil(ENTRIES_PER_PAGE)).map(|page| TargetRange {
        pages: 1,
        target: Target::ALL[(page * 7 + page / 11) % Target::ALL.len()],
    });
    let mut shares = Vec::new();
    for targets in Target::ALL.map(Targets::Uniform).into_iter().chain([Targets::Pages(mixed.collect())]) {
        shares.push(one(bench, codec, pool, targets)?);
        pool.clear()?;
    }
    Ok(shares)
}

fn one(bench: &Bench, codec: &Codec, pool: &mut BuddyPool, targets: Targets) -> Result<f64, Error> {
    let lab = &bench.lab;
    bench.staging.fill(POISON)?;
    pool.spans().into_iter().try_for_each(|span| lab.copy(bench.staging.all(), span))?;
    lab.wait()?;
    let uniform = targets.uniform();
    let buffer = pool.buffer(codec.clone(), targets, bench.plain.len() as u64)?;
    let name = |what: &str| match uniform {
        Some(target) => format!("{what}, {} at {target}", codec.kind()),
        None => format!("{what}, {} with mixed pages", codec.kind()),
    };
    buffer.write(&lab.stream, 0, bench.data.all())?;
    buffer.stats(&lab.stream)?;
    lab.wait()?;
    memory(bench, pool, &buffer, &name)?;
    let overflowing = statistics(bench, &buffer, &name)?;
    bench.back.fill(POISON)?;
    buffer.read(&lab.stream, 0, bench.back.all())?;
    lab.same(&name("read"), bench.data.all(), bench.back.all())?;
    // In two parts that meet within a tile.
    bench.back.fill(POISON)?;
    let middle = ((bench.plain.len() as u64 / 2) | 1) * ENTRY_BYTES as u64;
    buffer.read(&lab.stream, 0, bench.back.span(0..middle))?;
    buffer.read(&lab.stream, middle / ENTRY_BYTES as u64, bench.back.span(middle..bench.back.len()))?;
    lab.same(&name("read in two parts"), bench.data.all(), bench.back.all())?;
    single(bench, &buffer, &name)?;
    buffer.stats(&lab.stream)?;
    lab.wait()?;
    same(buffer.latest().fault, None, || name("faults"))?;
    Ok(overflowing as f64 / bench.plain.len() as f64)
}

/// Checks that every byte that an entry uses equals the CPU's, and that no unused buddy slot was
/// written.
fn memory(
    bench: &Bench,
    pool: &BuddyPool,
    buffer: &BuddyBuffer,
    name: &(impl Fn(&str) -> String + Sync),
) -> Result<(), Error> {
    let mut copies = bench.copies.lock().unwrap_or_else(PoisonError::into_inner);
    for (span, copy) in pool.spans().into_iter().zip(&mut *copies) {
        bench.lab.copy(span, bench.staging.all())?;
        copy.resize(span.bytes() as usize, 0);
        bench.staging.download(copy)?;
    }
    let [device, buddy] = &*copies;
    let base = pool.spans()[0].address();
    let nibbles = (buffer.view().memory.nibbles - base) as usize;
    bench.plain.par_chunks(ENTRIES_PER_PAGE).enumerate().try_for_each(|(page, entries)| {
        let first = page * ENTRIES_PER_PAGE;
        let extent = buffer.extent(first as u64);
        for i in first..first + entries.len() {
            let within = if extent.entries == buffer.entries() { i } else { i - first };
            let place = extent.locate(within as u64).expect("an entry of the extent");
            let (nibble, slot) = (bench.nibbles[i], &bench.slots[i]);
            let metadata = device[nibbles + place.nibble.byte as usize] >> place.nibble.shift & 15;
            same(metadata, nibble.bits(), || name(&format!("nibble of entry {i}")))?;
            let parts = parts(&place, extent.target, nibble.class(), slot);
            let start = (place.device.start - base) as usize;
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

/// Splits a slot's bytes into those on the device and those in buddy memory.
fn parts<'a>(place: &Location, target: Target, class: SizeClass, slot: &'a Entry) -> (&'a [u8], &'a [u8]) {
    let (device, buddy) = place.used(target, class);
    slot[..(device.bytes + buddy.bytes) as usize].split_at(device.bytes as usize)
}

/// Compares the report with the CPU's counts; returns the entries that overflow.
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
    // Entries after the data, in mixed pages, are zeros.
    stats.nibbles[0] -= buffer.entries() - bench.plain.len() as u64;
    same((stats.nibbles, stats.reserved, stats.overflowing), (nibbles, 0, overflowing), || {
        name("statistics")
    })?;
    Ok(overflowing)
}

/// Checks single entries: gathers them, scatters over them, and gathers them with their neighbours.
fn single(bench: &Bench, buffer: &BuddyBuffer, name: &impl Fn(&str) -> String) -> Result<(), Error> {
    let entries = bench.plain.len();
    let count = LISTED.min(entries / 3);
    // At least every third entry: both neighbours stay unchanged.
    let step = entries / count;
    let numbers: Vec<u32> = (0..count).map(|i| (i * step) as u32).collect();
    let shuffled: Vec<u32> = (0..count).map(|i| numbers[i * 2654435761 % count]).collect();
    same_gather(bench, buffer, &shuffled, |i| bench.plain[i], &name("gather"))?;
    let sources: Vec<Entry> = (0..count).map(|i| bench.plain[(i * 31 + 5) % entries]).collect();
    let (list, from) = (bench.lab.bytes(4 * count as u64)?, bench.lab.bytes((ENTRY_BYTES * count) as u64)?);
    list.upload(bytemuck::cast_slice(&numbers))?;
    from.upload(sources.as_flattened())?;
    buffer.scatter(&bench.lab.stream, list.all(), from.all())?;
    bench.lab.wait()?;
    let around = (0..count * step).step_by(step).flat_map(|i| [i, i + 1, (i + step - 1).min(entries - 1)]);
    let around: Vec<u32> = around.map(|i| i as u32).collect();
    let expected = |i: usize| {
        if i.is_multiple_of(step) && i / step < count { sources[i / step] } else { bench.plain[i] }
    };
    same_gather(bench, buffer, &around, expected, &name("after a scatter"))
}

/// Fails unless a gather returns the expected data of each entry.
fn same_gather(
    bench: &Bench,
    buffer: &BuddyBuffer,
    numbers: &[u32],
    expected: impl Fn(usize) -> Entry,
    what: &str,
) -> Result<(), Error> {
    let count = numbers.len() as u64;
    let (list, to) = (bench.lab.bytes(4 * count)?, bench.lab.bytes(ENTRY_BYTES as u64 * count)?);
    list.upload(bytemuck::cast_slice(numbers))?;
    to.fill(POISON)?;
    buffer.gather(&bench.lab.stream, list.all(), to.all())?;
    let mut found = vec![[0; ENTRY_BYTES]; numbers.len()];
    to.download(found.as_flattened_mut())?;
    let mut pairs = found.iter().zip(numbers);
    pairs.try_for_each(|(found, &i)| same(*found, expected(i as usize), || format!("{what}: entry {i}")))
}
