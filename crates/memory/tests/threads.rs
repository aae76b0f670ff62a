//! Threads sharing a memory: no torn entries, no lost writes.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use buddy_codec::CodecKind;
use buddy_core::{Entry, Target, Targets, ZERO_ENTRY};
use buddy_memory::{BuddyMemory, Error, Handle, Request, Spec};

const ENTRIES: u64 = 256;

fn setup(target: Target) -> (BuddyMemory, Handle) {
    let memory = BuddyMemory::new(Spec::new(64 * 8192)).unwrap();
    let handle = memory.allocate(&Request::new(ENTRIES * 128, CodecKind::Bpc.train(&[]), target)).unwrap();
    (memory, handle)
}

/// Returns an entry whose last word is a checksum of the others; compressibility depends on the
/// seed.
fn sealed(seed: u64) -> Entry {
    let mut noise = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let bits = [1, 3, 8, 20, 64][seed as usize % 5];
    let mut entry = ZERO_ENTRY;
    for word in &mut entry.as_chunks_mut().0[..15] {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        *word = (noise >> (64 - bits)).to_le_bytes();
    }
    let seal = checksum(&entry);
    entry[120..].copy_from_slice(&seal.to_le_bytes());
    entry
}

fn checksum(entry: &[u8]) -> u64 {
    entry[..120]
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn is_sealed(entry: &[u8]) -> bool {
    entry[120..] == checksum(entry).to_le_bytes() || entry == ZERO_ENTRY
}

#[test]
fn no_reader_sees_a_torn_entry() {
    for target in [Target::X16, Target::X2] {
        let (memory, handle) = setup(target);
        let stop = AtomicBool::new(false);
        let read = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..2u64 {
                let memory = &memory;
                scope.spawn(move || {
                    // Both threads write the same few entries, with varying sizes.
                    for i in 0..20_000 {
                        let entry = (i * 7 + thread) % ENTRIES;
                        memory.write(handle, entry * 128, &sealed(i * 2 + thread)).unwrap();
                    }
                });
            }
            let readers: Vec<_> = (0..2u64)
                .map(|thread| {
                    let (memory, stop, read) = (&memory, &stop, &read);
                    scope.spawn(move || {
                        let mut out = [0; 5 * 128];
                        for i in thread.. {
                            memory.read(handle, i % (ENTRIES - 5) * 128, &mut out).unwrap();
                            assert!(out.chunks(128).all(is_sealed), "a torn entry");
                            read.fetch_add(5, Relaxed);
                            if stop.load(Relaxed) && i > 1000 {
                                return;
                            }
                        }
                    })
                })
                .collect();
            thread::sleep(std::time::Duration::from_millis(200));
            stop.store(true, Relaxed);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        let traffic = memory.report().total.traffic;
        assert_eq!((traffic.entries_written, traffic.entries_read), (40_000, read.load(Relaxed)));
        assert_eq!(traffic.metadata_hits + traffic.metadata_misses, 40_000 + read.load(Relaxed));
    }
}

#[test]
fn partial_writes_to_one_entry_lose_nothing() {
    let (memory, handle) = setup(Target::X4);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let memory = &memory;
            // Four threads share entries, each with its own bytes.
            scope.spawn(move || {
                for round in 1..=40u8 {
                    for entry in 0..ENTRIES {
                        let bytes = [round.wrapping_mul(37) ^ thread as u8; 32];
                        memory.write(handle, entry * 128 + thread * 32, &bytes).unwrap();
                    }
                }
            });
        }
    });
    let mut out = vec![0; ENTRIES as usize * 128];
    memory.read(handle, 0, &mut out).unwrap();
    for (i, &byte) in out.iter().enumerate() {
        assert_eq!(byte, 40u8.wrapping_mul(37) ^ (i / 32 % 4) as u8, "byte {i}");
    }
}

#[test]
fn retarget_and_free_are_safe_during_other_calls() {
    let (memory, handle) = setup(Target::X2);
    for entry in 0..ENTRIES {
        memory.write(handle, entry * 128, &sealed(entry)).unwrap();
    }
    thread::scope(|scope| {
        for thread in 0..2u64 {
            let memory = &memory;
            scope.spawn(move || {
                let mut out = ZERO_ENTRY;
                for i in thread.. {
                    match memory.read(handle, i % ENTRIES * 128, &mut out) {
                        Ok(()) => assert_eq!(out, sealed(i % ENTRIES)),
                        Err(error) => return assert_eq!(error, Error::Freed(handle)),
                    }
                }
            });
        }
        for round in 0..100 {
            memory.retarget(handle, &Targets::Uniform(Target::ALL[round % 5])).unwrap();
        }
        memory.free(handle).unwrap();
        assert_eq!(memory.free(handle), Err(Error::Freed(handle)));
    });
    assert_eq!(memory.free_space().device.largest, 64 * 8192);
}

#[test]
fn threads_allocate_and_free_concurrently() {
    let (memory, first) = setup(Target::X1);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let memory = &memory;
            scope.spawn(move || {
                for i in 0..500 {
                    let target = Target::ALL[(i + thread) as usize % 5];
                    let request = Request::new(3000 + i, CodecKind::Bpc.train(&[]), target);
                    let handle = memory.allocate(&request).unwrap();
                    let mut out = ZERO_ENTRY;
                    memory.read(handle, 128, &mut out).unwrap();
                    assert_eq!(out, ZERO_ENTRY);
                    memory.write(handle, 128, &sealed(i)).unwrap();
                    memory.read(handle, 128, &mut out).unwrap();
                    assert_eq!(out, sealed(i));
                    memory.free(handle).unwrap();
                }
            });
        }
    });
    memory.free(first).unwrap();
    assert_eq!(memory.free_space().device.runs, 1);
    assert_eq!(memory.report().total.traffic.entries_written, 2000);
}
