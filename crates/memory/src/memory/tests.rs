//! White-box tests of the memory: stored bytes, and behaviour on faults.

use std::{sync::mpsc, thread, time::Duration};

use buddy_codec::{Codec, CodecKind, Packed};
use buddy_core::{ENTRY_BYTES, Entry, Nibble, SizeClass, Span, Target, TargetRange, Targets, ZERO_ENTRY};

use crate::{BuddyMemory, CacheSpec, Error, Handle, Request, Spec, region::Region};

const PAGE: u64 = 8192;

fn codec() -> Codec {
    CodecKind::Bpc.train(&[])
}

fn memory(pages: u64) -> BuddyMemory {
    BuddyMemory::new(Spec::new(pages * PAGE)).unwrap()
}

/// One entry of each class.
fn entry_of(class: SizeClass) -> Entry {
    let mask = match class {
        SizeClass::Zero => return ZERO_ENTRY,
        SizeClass::B8 => return [7; ENTRY_BYTES],
        SizeClass::S1 => 0x1f,
        SizeClass::S2 => 0xfff,
        SizeClass::S3 => 0xf_ffff,
        SizeClass::Raw => u32::MAX,
    };
    let mut noise = 1u32;
    let mut entry = ZERO_ENTRY;
    for word in entry.as_chunks_mut().0 {
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        *word = (noise & mask).to_le_bytes();
    }
    assert_eq!(codec().class(&entry), class);
    entry
}

fn read(memory: &BuddyMemory, handle: Handle, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
    let mut out = vec![0xcc; len];
    memory.read(handle, offset, &mut out).map(|()| out)
}

fn peek(region: &Region, span: Span) -> Vec<u8> {
    let mut out = vec![0; span.bytes as usize];
    region.load(span.start, &mut out);
    out
}

#[test]
fn a_change_of_compressibility_moves_nothing() {
    for target in Target::ALL {
        let memory = memory(8);
        let handle = memory.allocate(&Request::new(2 * PAGE, codec(), target)).unwrap();
        let places = || (0..128).map(|entry| memory.locate(handle, entry).unwrap()).collect::<Vec<_>>();
        let (before, free) = (places(), memory.free_space());
        let mut model = vec![ZERO_ENTRY; 128];
        let up = SizeClass::ALL.into_iter();
        for class in up.clone().chain(up.rev()) {
            for entry in [0, 5, 63, 64, 127] {
                model[entry] = entry_of(class);
                memory.write(handle, entry as u64 * 128, &model[entry]).unwrap();
                assert_eq!(read(&memory, handle, 0, 128 * 128).unwrap(), model.as_flattened());
            }
            assert_eq!((places(), memory.free_space()), (before.clone(), free), "{target} {class}");
        }
    }
}

#[test]
fn bytes_are_stored_at_their_mapped_locations() {
    for target in Target::ALL {
        let memory = memory(8);
        memory.allocate(&Request::plain(1)).unwrap();
        let handle = memory.allocate(&Request::new(PAGE, codec(), target)).unwrap();
        for (entry, class) in SizeClass::ALL.into_iter().enumerate() {
            let mut packed = Packed::default();
            codec().pack(&entry_of(class), &mut packed);
            memory.write(handle, entry as u64 * 128, &entry_of(class)).unwrap();
            let place = memory.locate(handle, entry as u64).unwrap();
            let (device, buddy) = place.used(target, class);
            let stored = [peek(&memory.device, device), peek(&memory.carve_out, buddy)].concat();
            assert_eq!(stored, packed.bytes(), "{target} {class}");
        }
        let page = memory.page_entry(handle, 0).unwrap();
        assert_eq!(page.target, target);
        assert_eq!(page.frame * 512, memory.locate(handle, 0).unwrap().device.start);
        assert_eq!(u64::from(page.buddy_quarters) * 2048, memory.locate(handle, 0).unwrap().buddy.start);
    }
}

#[test]
fn pages_of_one_allocation_may_have_different_targets() {
    let memory = memory(16);
    let targets = [Target::X1, Target::X4Over3, Target::Uncompressed, Target::X2, Target::X4, Target::X16];
    let ranges = targets.map(|target| TargetRange { pages: 2, target }).to_vec();
    let handle = memory.allocate(&Request::by_pages(12 * PAGE - 5, codec(), ranges)).unwrap();
    let data: Vec<u8> = (0..12 * PAGE - 5).map(|i| (i * i / 32) as u8).collect();
    memory.write(handle, 0, &data).unwrap();
    assert_eq!(read(&memory, handle, 0, data.len()).unwrap(), data);
    let report = memory.report_allocation(handle).unwrap();
    assert_eq!(report.extents.iter().map(|extent| extent.target).collect::<Vec<_>>(), targets);
    assert_eq!(
        report.usage.entries_by_class.iter().sum::<u64>(),
        10 * 64,
        "uncompressed entries have no class"
    );
    assert_eq!(report.usage.metadata_bytes, 10 * 32);
    assert_eq!(report.usage.device_bytes, 2 * (8192 + 6144 + 8192 + 4096 + 2048 + 512));
    assert!(matches!(memory.page_entry(handle, 12), Err(Error::OutOfRange { .. })));
}

#[test]
fn traffic_follows_from_the_classes() {
    let memory = memory(8);
    let handle = memory.allocate(&Request::new(PAGE, codec(), Target::X2)).unwrap();
    let all: Vec<u8> = SizeClass::ALL.into_iter().flat_map(entry_of).collect();
    memory.write(handle, 0, &all).unwrap();
    let usage = memory.report_allocation(handle).unwrap().usage;
    assert_eq!(usage.entries_by_class, [1 + 58, 1, 1, 1, 1, 1]);
    assert_eq!(usage.entries_overflowing, 2);
    // Device sectors 0, 1, 1, 2, 2, 2; slot sectors: one for s3 and two for raw.
    let traffic = usage.traffic;
    assert_eq!((traffic.device_sectors_written, traffic.buddy_sectors_written), (8, 3));
    assert_eq!((traffic.metadata_hits, traffic.metadata_misses, traffic.metadata_sectors), (5, 1, 1));
    assert_eq!((traffic.entries_written, traffic.uncompressed_sectors), (6, 24));
    assert_eq!(usage.bandwidth_saved, Some(1.0 - 9.0 / 24.0));
    // A few bytes of the raw entry and one of the next: two read-modify-writes.
    memory.write(handle, 6 * 128 - 3, &[1; 4]).unwrap();
    let more = memory.report_allocation(handle).unwrap().usage.traffic;
    assert_eq!((more.entries_read, more.entries_written), (2, 8));
    assert_eq!((more.device_sectors_read, more.buddy_sectors_read), (2, 2));
    assert_eq!((more.metadata_hits, more.metadata_misses), (9, 1));
    assert_eq!(more.uncompressed_sectors, 26);
    // Traffic outlives the allocation.
    memory.free(handle).unwrap();
    assert_eq!(memory.report().total.traffic, more);
}

#[test]
fn metadata_counted_by_line_equals_counts_by_entry() {
    let spec =
        Spec { metadata_cache: CacheSpec { bytes: 1024, ..CacheSpec::paper_text() }, ..Spec::new(64 * PAGE) };
    let run = |step: usize| {
        let memory = BuddyMemory::new(spec.clone()).unwrap();
        let handle = memory.allocate(&Request::new(100 * PAGE, codec(), Target::X2)).unwrap();
        let mut page = [0; PAGE as usize];
        for i in 0..600u64 {
            let page_start = (31 * i * i + 7 * i) % 97 * PAGE;
            for offset in (0..PAGE as usize).step_by(step) {
                let (at, part) = (page_start + offset as u64, &mut page[offset..offset + step]);
                if i % 3 == 0 { memory.write(handle, at, part) } else { memory.read(handle, at, part) }
                    .unwrap();
            }
        }
        memory.report().total.traffic
    };
    let by_page = run(PAGE as usize);
    assert!(by_page.metadata_misses > 100 && by_page.metadata_hits > 1000);
    assert_eq!(run(ENTRY_BYTES), by_page);
}

#[test]
fn disabled_compression_needs_no_metadata_or_carve_out() {
    let memory = BuddyMemory::new(Spec::uncompressed(4 * PAGE)).unwrap();
    let handle = memory.allocate(&Request::new(4 * PAGE, codec(), Target::X4)).unwrap();
    let data: Vec<u8> = (0..4 * PAGE).map(|i| (i % 251) as u8).collect();
    memory.write(handle, 3, &data[3..]).unwrap();
    assert_eq!(read(&memory, handle, 1, 9000).unwrap(), [&[0, 0], &data[3..9001]].concat());
    let report = memory.report();
    assert_eq!((report.carve_out_bytes, report.metadata_bytes, report.metadata_overhead), (0, 0, 0.0));
    let usage = report.total;
    assert_eq!((usage.ratio, usage.metadata_bytes, usage.bandwidth_saved), (Some(1.0), 0, Some(0.0)));
    assert_eq!(usage.traffic.metadata_hits + usage.traffic.metadata_misses, 0);
    assert_eq!(memory.page_entry(handle, 0).unwrap().target, Target::Uncompressed);
    let retarget = memory.retarget(handle, &Targets::Uniform(Target::X2));
    assert_eq!(retarget, Err(Error::NotCompressed(handle)));
}

#[test]
fn metadata_takes_four_tenths_of_a_percent() {
    let memory = memory(64);
    let report = memory.report();
    assert_eq!(report.metadata_bytes, 256 * PAGE / 256);
    assert_eq!(report.metadata_overhead, 1.0 / 256.0);
}

#[test]
fn sixteen_x_is_admitted_only_while_the_carve_out_backs_it() {
    let memory = memory(16);
    let request = Request::new(4 * PAGE, codec(), Target::X16);
    let mut admitted = 0;
    let error = loop {
        match memory.allocate(&request) {
            Ok(_) => admitted += 1,
            Err(error) => break error,
        }
    };
    // 48 carve-out pages hold 48 pages of slots, though the device has space for 208 more.
    assert_eq!(admitted, 12);
    assert_eq!(error, Error::CarveOutExhausted { needed: 4 * PAGE, largest: 0, free: 0 });
    // The rest of the device takes uncompressed data: 61 pages in 16, within the 4x that the
    // carve-out supports.
    memory.allocate(&Request::plain(13 * PAGE)).unwrap();
    let total = memory.report().total;
    assert_eq!(total.bytes, 61 * PAGE);
    assert!(total.ratio.unwrap() <= 4.0, "{:?}", total.ratio);
}

#[test]
fn free_space_is_all_zero() {
    let memory = memory(16);
    let secret = vec![0xa5; 5 * PAGE as usize];
    let request = |target| Request::new(5 * PAGE, codec(), target);
    let noise: Vec<u8> = (0..40).flat_map(|_| entry_of(SizeClass::Raw)).collect();
    for request in [Request::plain(5 * PAGE), request(Target::X4), request(Target::X16), request(Target::X2)]
    {
        let handle = memory.allocate(&request).unwrap();
        assert_eq!(read(&memory, handle, 0, secret.len()).unwrap(), vec![0; secret.len()]);
        memory.write(handle, 0, &secret).unwrap();
        memory.write(handle, 1000, &noise).unwrap();
        if memory.report_allocation(handle).unwrap().codec.is_some() {
            memory.retarget(handle, &Targets::Uniform(Target::X4Over3)).unwrap();
        }
        memory.free(handle).unwrap();
        for (region, bytes) in [(&memory.device, 16 * PAGE), (&memory.carve_out, 48 * PAGE)] {
            assert!(peek(region, Span { start: 0, bytes }).iter().all(|&byte| byte == 0));
        }
        for line in 0..64 {
            assert!(memory.lines.write(line * PAGE).bytes_mut().iter().all(|&byte| byte == 0));
        }
    }
}

/// Asserts that `call` fails with `expected` and leaves the memory unchanged.
fn refuses(memory: &BuddyMemory, expected: &Error, call: impl FnOnce() -> Result<(), Error>) {
    let state = || {
        let mut report = memory.report();
        let contents: Vec<_> = (report.allocations.iter_mut())
            .map(|allocation| {
                allocation.usage.traffic = Default::default();
                read(memory, allocation.handle, 0, allocation.usage.bytes as usize)
            })
            .collect();
        (report.allocations.iter().map(|a| a.extents.clone()).collect::<Vec<_>>(), report.free, contents)
    };
    let before = state();
    assert_eq!(call().as_ref(), Err(expected));
    assert_eq!(state(), before);
}

#[test]
fn every_error_leaves_the_memory_unchanged() {
    let memory = memory(4);
    let handle = memory.allocate(&Request::new(300, codec(), Target::X2)).unwrap();
    let freed = memory.allocate(&Request::plain(100)).unwrap();
    memory.free(freed).unwrap();
    let reused = memory.allocate(&Request::plain(100)).unwrap();
    memory.write(handle, 0, &[3; 300]).unwrap();
    memory.write(reused, 0, &[4; 100]).unwrap();
    let allocate = |bytes, target| memory.allocate(&Request::new(bytes, codec(), target)).map(drop);
    let exhausted = Error::DeviceExhausted { needed: 3 * PAGE, largest: 20480, free: 20480 };
    refuses(&memory, &exhausted, || allocate(3 * PAGE, Target::X1));
    let exhausted = Error::CarveOutExhausted { needed: 12 * PAGE, largest: 94208, free: 94208 };
    refuses(&memory, &exhausted, || allocate(12 * PAGE, Target::X16));
    refuses(&memory, &Error::PagesExhausted { needed: 15, largest: 14, free: 14 }, || {
        allocate(15 * PAGE, Target::X4)
    });
    refuses(&memory, &Error::ZeroLength, || allocate(0, Target::X2));
    for bytes in [16 * PAGE + 1, u64::MAX - 1, u64::MAX] {
        let long = Error::TooLong { bytes, capacity: 16 * PAGE };
        refuses(&memory, &long, || allocate(bytes, Target::X4));
    }
    refuses(&memory, &Error::Freed(freed), || memory.free(freed));
    refuses(&memory, &Error::Freed(freed), || memory.write(freed, 0, &[9]));
    refuses(&memory, &Error::Freed(freed), || read(&memory, freed, 0, 1).map(drop));
    refuses(&memory, &Error::Freed(freed), || {
        memory.retarget(freed, &Targets::Uniform(Target::X2)).map(drop)
    });
    refuses(&memory, &Error::Unknown(Handle(99)), || memory.free(Handle(99)));
    for (offset, len) in [(300, 1), (0, 301), (u64::MAX, 1), (u64::MAX - 127, 128), (u64::MAX, 0)] {
        let range = Error::OutOfRange { offset, len, bytes: 300 };
        refuses(&memory, &range, || memory.write(handle, offset, &vec![9; len as usize]));
        refuses(&memory, &range, || read(&memory, handle, offset, len as usize).map(drop));
    }
    assert!(matches!(memory.locate(handle, u64::MAX), Err(Error::OutOfRange { .. })));
    assert_eq!(read(&memory, handle, 300, 0), Ok(vec![]));
}

#[test]
fn a_range_without_space_releases_the_earlier_ones() {
    let memory = memory(4);
    let ranges = [(2, Target::X2), (4, Target::X1)].map(|(pages, target)| TargetRange { pages, target });
    let request = Request::by_pages(6 * PAGE, codec(), ranges.to_vec());
    let exhausted = Error::DeviceExhausted { needed: 4 * PAGE, largest: 3 * PAGE, free: 3 * PAGE };
    refuses(&memory, &exhausted, || memory.allocate(&request).map(drop));
}

/// Overwrites the stream of a one-sector entry with an invalid one: a zero base, then a run of 33
/// zero planes with 32 left.
fn break_stream(memory: &BuddyMemory, handle: Handle, entry: u64) {
    let place = memory.locate(handle, entry).unwrap();
    let stream = [0b0000_0101, 0b1111_1000, 0, 0, 0, 0, 0, 0];
    assert!(codec().unpack(Nibble::from_bits(1).unwrap(), &stream).is_err());
    memory.device.store(place.device.start, &stream);
}

#[test]
fn an_invalid_entry_fails_alone_and_changes_nothing() {
    let memory = memory(4);
    let handle = memory.allocate(&Request::new(3 * PAGE, codec(), Target::X2)).unwrap();
    memory.write(handle, 0, &[7; 3 * PAGE as usize]).unwrap();
    break_stream(&memory, handle, 130);
    let fails = |error: Result<(), Error>| matches!(error, Err(Error::Codec { offset: 16640, .. }));
    assert!(fails(read(&memory, handle, 0, 3 * PAGE as usize).map(drop)));
    assert!(fails(memory.write(handle, 130 * 128 + 5, &[1])));
    // A write that ends or begins within the broken entry writes nothing.
    assert!(fails(memory.write(handle, 100, &vec![1; 130 * 128])));
    assert!(fails(memory.write(handle, 130 * 128 + 127, &vec![1; 1000])));
    assert_eq!(read(&memory, handle, 0, 130 * 128).unwrap(), vec![7; 130 * 128]);
    assert_eq!(read(&memory, handle, 131 * 128, 7000).unwrap(), vec![7; 7000]);
    // A whole-entry write does not read the old contents.
    memory.write(handle, 130 * 128, &[8; 128]).unwrap();
    assert_eq!(read(&memory, handle, 130 * 128, 128).unwrap(), [8; 128]);
}

#[test]
fn a_retarget_with_invalid_metadata_changes_nothing() {
    let memory = memory(8);
    let handle = memory.allocate(&Request::new(2 * PAGE, codec(), Target::X2)).unwrap();
    memory.write(handle, 0, &[7; 2 * PAGE as usize]).unwrap();
    memory.lines.write(PAGE).bytes_mut()[2] = 0xf1;
    let bad = Error::Metadata { offset: PAGE + 5 * 128, source: buddy_core::Error::Nibble(15) };
    refuses(&memory, &bad, || memory.retarget(handle, &Targets::Uniform(Target::X4)).map(drop));
    assert_eq!(read(&memory, handle, 0, PAGE as usize).unwrap(), [7; PAGE as usize]);
}

#[test]
fn a_retarget_moves_what_changes_and_keeps_the_rest() {
    let memory = memory(16);
    let plan = |targets: [Target; 3]| {
        Targets::Pages(targets.map(|target| TargetRange { pages: 2, target }).to_vec())
    };
    let Targets::Pages(ranges) = plan([Target::X1, Target::X2, Target::X4]) else { unreachable!() };
    let handle = memory.allocate(&Request::by_pages(6 * PAGE, codec(), ranges)).unwrap();
    let data: Vec<u8> = (0..6 * 64).flat_map(|i| entry_of(SizeClass::ALL[i % 6])).collect();
    memory.write(handle, 0, &data).unwrap();
    let place = |entry| memory.locate(handle, entry).unwrap();
    let (first, last) = (place(0), place(383));
    let done = memory.retarget(handle, &plan([Target::X1, Target::X16, Target::X4])).unwrap();
    assert_eq!((place(0), place(383)), (first, last));
    // 128 entries moved, of 0, 8, 32, 64, 96 and 128 bytes cyclically, from the third class on.
    assert_eq!(done.bytes_moved, 21 * 328 + 32 + 64);
    assert_eq!((done.device_bytes_before, done.device_bytes_after), (28672, 21504));
    assert_eq!(read(&memory, handle, 0, data.len()).unwrap(), data);
    let classes = memory.report_allocation(handle).unwrap().usage.entries_by_class;
    assert_eq!(classes, [64; 6]);
    assert_eq!(memory.retarget(handle, &Targets::Uniform(Target::X2)).unwrap().bytes_moved, 64 * 328);
    assert_eq!(read(&memory, handle, 0, data.len()).unwrap(), data);
    memory.free(handle).unwrap();
    assert_eq!((memory.free_space().device.largest, memory.free_space().carve_out.runs), (16 * PAGE, 1));
}

#[test]
fn a_retarget_without_space_keeps_the_old_target() {
    let memory = memory(4);
    let handle = memory.allocate(&Request::new(6 * PAGE, codec(), Target::X2)).unwrap();
    memory.write(handle, 0, &entry_of(SizeClass::Raw)).unwrap();
    let exhausted = Error::DeviceExhausted { needed: 3 * PAGE / 2, largest: PAGE, free: PAGE };
    refuses(&memory, &exhausted, || memory.retarget(handle, &Targets::Uniform(Target::X4)).map(drop));
    let ranges = [(3, Target::X4), (3, Target::X1)].map(|(pages, target)| TargetRange { pages, target });
    let exhausted = Error::DeviceExhausted { needed: 3 * PAGE, largest: PAGE / 4, free: PAGE / 4 };
    refuses(&memory, &exhausted, || memory.retarget(handle, &Targets::Pages(ranges.to_vec())).map(drop));
}

#[test]
fn only_entries_of_one_line_contend() {
    let memory = memory(4);
    let handle = memory.allocate(&Request::new(2 * PAGE, codec(), Target::X2)).unwrap();
    let (done, wait) = mpsc::channel();
    thread::scope(|scope| {
        let busy = memory.lines.write(0);
        let memory = &memory;
        let write = move |entry: u64, done: mpsc::Sender<u64>| {
            memory.write(handle, entry * 128, &[1; 128]).unwrap();
            done.send(entry).unwrap();
        };
        let waiting = done.clone();
        scope.spawn(move || write(3, waiting));
        scope.spawn(move || write(64, done));
        assert_eq!(wait.recv_timeout(Duration::from_secs(60)), Ok(64));
        assert!(wait.recv_timeout(Duration::from_millis(50)).is_err());
        drop(busy);
        assert_eq!(wait.recv_timeout(Duration::from_secs(60)), Ok(3));
    });
}
