//! Explores every interleaving of a few threads on the memory's locks. A test fails on unordered
//! accesses to the same bytes (`src/sync.rs`), on unwritten data, on leaked space and on deadlocks.
#![cfg(loom)]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use buddy_codec::{Codec, CodecKind};
use buddy_core::{ENTRY_BYTES, Target};
use buddy_memory::{BuddyMemory, CacheSpec, Error, Handle, Hashing, Request, Spec};
use loom::thread;

/// Bytes of the device memory: two pages.
const DEVICE: u64 = 2 << 13;

fn codec() -> Codec {
    CodecKind::Bpc.train(&[])
}

fn memory() -> Arc<BuddyMemory> {
    let metadata_cache =
        CacheSpec { bytes: 64, ways: 1, line_bytes: 32, slices: 1, hashing: Hashing::Modulo };
    Arc::new(BuddyMemory::new(Spec { metadata_cache, ..Spec::new(DEVICE) }).unwrap())
}

fn allocate(memory: &BuddyMemory, target: Target) -> Handle {
    memory.allocate(&Request::new(8192, codec(), target)).unwrap()
}

/// Returns an entry of one sector, or an incompressible one.
fn entry(seed: u32, noisy: bool) -> Vec<u8> {
    let noise =
        |i: u32| (i + 32 * seed).wrapping_mul(2_654_435_761).rotate_left(i % 31).wrapping_mul(0x85eb_ca6b);
    let word = |i: u32| if noisy { noise(i) } else { seed * 1000 + i };
    (0..32).flat_map(|i| word(i).to_le_bytes()).collect()
}

fn read(memory: &BuddyMemory, handle: Handle, entry: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; ENTRY_BYTES];
    memory.read(handle, entry * ENTRY_BYTES as u64, &mut bytes).map(|()| bytes)
}

fn write(memory: &BuddyMemory, handle: Handle, entry: u64, bytes: &[u8]) -> Result<(), Error> {
    memory.write(handle, entry * ENTRY_BYTES as u64, bytes)
}

/// Explores all interleavings with at most `interruptions` preemptions, which suffice for most
/// bugs.
fn every_order(interruptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(interruptions);
    model.max_branches = 100_000;
    let orders = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&orders);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        test();
    });
    let orders = orders.load(Ordering::Relaxed);
    assert!(orders > 10, "loom tried {orders} orders alone");
    println!("{orders} orders");
}

#[test]
fn writes_of_neighbouring_entries_are_both_kept() {
    every_order(3, || {
        let memory = memory();
        let handle = allocate(&memory, Target::X2);
        let other = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || write(&memory, handle, 1, &entry(2, true)).unwrap())
        };
        write(&memory, handle, 0, &entry(1, false)).unwrap();
        other.join().unwrap();
        assert_eq!(read(&memory, handle, 0), Ok(entry(1, false)));
        assert_eq!(read(&memory, handle, 1), Ok(entry(2, true)));
    });
}

#[test]
fn partial_writes_of_one_entry_by_two_threads_are_both_kept() {
    every_order(3, || {
        let memory = memory();
        let handle = allocate(&memory, Target::X4);
        let other = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.write(handle, 64, &[7; 64]).unwrap())
        };
        memory.write(handle, 0, &[9; 64]).unwrap();
        other.join().unwrap();
        assert_eq!(read(&memory, handle, 0), Ok([[9; 64], [7; 64]].concat()));
    });
}

#[test]
fn a_reader_sees_an_entry_before_or_after_a_write() {
    every_order(3, || {
        let memory = memory();
        let handle = allocate(&memory, Target::X2);
        write(&memory, handle, 0, &entry(1, false)).unwrap();
        let other = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || write(&memory, handle, 0, &entry(2, true)).unwrap())
        };
        let seen = read(&memory, handle, 0).unwrap();
        assert!(seen == entry(1, false) || seen == entry(2, true));
        other.join().unwrap();
    });
}

#[test]
fn a_retarget_loses_no_write_and_moves_no_read() {
    every_order(2, || {
        let memory = memory();
        let handle = allocate(&memory, Target::X2);
        write(&memory, handle, 0, &entry(1, true)).unwrap();
        let writer = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || write(&memory, handle, 1, &entry(2, true)).unwrap())
        };
        let moved = memory.retarget(handle, &Target::X4.into());
        assert!(moved.unwrap().bytes_moved >= 128);
        assert_eq!(read(&memory, handle, 0), Ok(entry(1, true)));
        writer.join().unwrap();
        assert_eq!(read(&memory, handle, 1), Ok(entry(2, true)));
    });
}

#[test]
fn a_freed_allocation_is_read_before_or_refused_and_its_space_is_zeroed() {
    every_order(2, || {
        let memory = memory();
        let handle = allocate(&memory, Target::X2);
        write(&memory, handle, 0, &entry(1, true)).unwrap();
        let reader = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || match read(&memory, handle, 0) {
                Ok(seen) => assert_eq!(seen, entry(1, true)),
                Err(error) => assert_eq!(error, Error::Freed(handle)),
            })
        };
        memory.free(handle).unwrap();
        let next = allocate(&memory, Target::X2);
        assert_eq!(read(&memory, next, 0), Ok(vec![0; ENTRY_BYTES]));
        write(&memory, next, 0, &entry(3, true)).unwrap();
        reader.join().unwrap();
        assert_eq!(read(&memory, next, 0), Ok(entry(3, true)));
    });
}

#[test]
fn a_double_free_is_refused_and_leaks_nothing() {
    every_order(3, || {
        let memory = memory();
        let before = memory.free_space();
        let handle = allocate(&memory, Target::X4);
        let other = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.free(handle).is_ok())
        };
        let here = memory.free(handle).is_ok();
        assert!(here != other.join().unwrap());
        assert_eq!(memory.free_space(), before);
    });
}

#[test]
fn allocations_of_two_threads_never_overlap() {
    every_order(2, || {
        let memory = memory();
        let own = |memory: &BuddyMemory, seed| {
            let handle = allocate(memory, Target::X2);
            write(memory, handle, 0, &entry(seed, true)).unwrap();
            assert_eq!(read(memory, handle, 0), Ok(entry(seed, true)));
            memory.free(handle).unwrap();
        };
        let other = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || own(&memory, 1))
        };
        own(&memory, 2);
        other.join().unwrap();
        assert_eq!(memory.free_space().device.total, DEVICE);
    });
}
