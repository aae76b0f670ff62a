//! Sequences of calls: `tests/sequences` holds some recorded on a GPU.

use super::book::{Book, Event, How};

/// Reads a line of a recorded sequence.
fn event(line: &str) -> Event {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| -> u64 {
        let word: &str = words[at];
        let hex = word.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16));
        hex.unwrap_or_else(|| word.parse()).unwrap_or_else(|_| panic!("{line}"))
    };
    match words[0] {
        "allocated" => Event::Allocated {
            address: number(1),
            bytes: number(2),
            how: How::ALL.iter().find(|(_, name)| *name == words[3]).expect("a kind of allocation").0,
            context: number(4),
            site: number(5) as u32,
        },
        "freed" => Event::Freed { address: number(1) },
        "access" => Event::Access { address: number(1), bytes: number(2), allowed: number(3) != 0 },
        "unmapped" => Event::Unmapped { address: number(1), bytes: number(2) },
        "context-ends" => Event::ContextEnds { context: number(1) },
        "piece" => Event::Piece {
            address: number(1),
            bytes: number(2),
            site: words.get(3).map(|_| number(3) as u32),
        },
        "cut" => Event::Cut,
        "capture-begins" => Event::CaptureBegins,
        "capture-ends" => Event::CaptureEnds,
        "looked" => Event::Looked,
        "ends" => Event::Ends,
        _ => panic!("{line}"),
    }
}

/// Returns the table after a sequence, whose lines round-trip.
fn after(sequence: &str) -> Book {
    let mut book = Book::default();
    for line in sequence.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let event = event(line);
        assert_eq!(event.line(), line, "a sequence is written as it is read");
        book.apply(&event);
    }
    book
}

fn live(book: &Book) -> Vec<(u64, usize)> {
    book.readable().iter().map(|span| (span.base, span.slot)).collect()
}

#[test]
fn an_allocation_is_live_until_freed() {
    let book = after(
        "allocated 0x1000 4096 plain 0xc1 0
         allocated 0x3000 100 pitched 0xc1 1
         allocated 0x5000 8192 managed 0xc1 2
         freed 0x3000
         freed 0x9999",
    );
    assert_eq!(live(&book), [(0x1000, 0), (0x5000, 2)]);
    let counts = book.counts();
    assert_eq!((counts.allocations, counts.short, counts.short_bytes), (3, 1, 100));
    assert_eq!((counts.live_bytes, counts.peak_bytes), (12_288, 12_388));
    assert_eq!(book.find(0x1fff), Some((0, 4096)));
    assert!(book.find(0x2000).is_none() && book.find(0xfff).is_none());
}

#[test]
fn an_allocation_of_a_loop_is_one_slot_and_those_beside_it_are_numbered() {
    let book = after(
        "allocated 0x1000 64 async 0xc1 7
         freed 0x1000
         allocated 0x2000 64 async 0xc1 7
         allocated 0x3000 64 async 0xc1 7
         allocated 0x4000 65 async 0xc1 7",
    );
    assert_eq!(live(&book), [(0x2000, 0), (0x3000, 1), (0x4000, 2)]);
    let numbers: Vec<u32> = (0..3).map(|slot| book.slot(slot).unwrap().number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert!(book.slot(3).is_none());
}

#[test]
fn mapped_memory_is_looked_at_once_the_gpu_may_read_it() {
    let mapped = "allocated 0x200000 2097152 mapped 0xc1 1
                  allocated 0x400000 2097152 mapped 0xc1 1";
    assert!(live(&after(mapped)).is_empty());
    let opened = format!("{mapped}\naccess 0x200000 4194304 1");
    assert_eq!(live(&after(&opened)).len(), 2);
    assert_eq!(live(&after(&format!("{opened}\naccess 0x400000 2097152 0"))), [(0x20_0000, 0)]);
    assert!(live(&after(&format!("{opened}\nunmapped 0x200000 4194304"))).is_empty());
}

#[test]
fn a_context_that_ends_frees_its_memory() {
    let book = after(
        "allocated 0x1000 64 plain 0xc1 0
         allocated 0x2000 64 plain 0xc2 0
         context-ends 0xc1",
    );
    assert_eq!(live(&book), [(0x2000, 1)]);
}

#[test]
fn memory_that_was_freed_unseen_makes_room() {
    let book = after(
        "allocated 0x1000 4096 plain 0xc1 0
         allocated 0x1800 64 plain 0xc1 1",
    );
    assert_eq!(live(&book), [(0x1800, 1)]);
    assert_eq!(book.counts().live_bytes, 64);
}

#[test]
fn only_allocations_without_a_snapshot_are_short_lived() {
    let book = after(
        "allocated 0x1000 64 plain 0xc1 0
         looked
         allocated 0x2000 64 plain 0xc1 1
         freed 0x1000
         freed 0x2000",
    );
    assert_eq!(book.counts().short, 1);
}

#[test]
fn captures_of_two_streams_end_one_by_one() {
    assert!(after("capture-begins\ncapture-begins\ncapture-ends").is_capturing());
    assert!(!after("capture-begins\ncapture-ends\ncapture-ends").is_capturing());
}

#[test]
fn failed_and_empty_allocations_are_none() {
    assert!(live(&after("allocated 0x0 64 plain 0xc1 0\nallocated 0x1000 0 plain 0xc1 0")).is_empty());
}

/// A segment of 64 KiB that a pool cuts into two pieces and a free end, and memory outside the
/// pool.
const POOL: &str = "allocated 0x10000 65536 plain 0xc1 0
                    allocated 0x90000 4096 plain 0xc1 1
                    piece 0x10000 4096 2
                    piece 0x11000 8192 2
                    piece 0x13000 53248
                    cut";

#[test]
fn pieces_replace_the_segment_that_they_are_cut_from() {
    let book = after(POOL);
    assert_eq!(live(&book), [(0x10000, 2), (0x11000, 3), (0x90000, 1)]);
    assert_eq!(
        (book.find(0x11004), book.find(0x13000), book.find(0x90000)),
        (Some((3, 8192)), None, Some((1, 4096)))
    );
    assert_eq!(book.counts().allocations, 2, "pieces are no allocations");
}

#[test]
fn a_piece_that_moves_keeps_its_slot_and_one_that_stays_as_well() {
    let book =
        after(&format!("{POOL}\npiece 0x11000 8192 2\npiece 0x13000 4096 2\npiece 0x14000 4096 2\ncut"));
    assert_eq!(live(&book), [(0x11000, 3), (0x13000, 2), (0x14000, 4), (0x90000, 1)]);
    assert_eq!(book.slot(4).unwrap().number, 3);
}

#[test]
fn pieces_end_with_their_segment_and_segments_are_whole_again_without_them() {
    assert_eq!(live(&after(&format!("{POOL}\nfreed 0x10000"))), [(0x90000, 1)]);
    assert_eq!(live(&after(&format!("{POOL}\ncut"))), [(0x10000, 0), (0x90000, 1)]);
    assert_eq!(
        live(&after(&format!("{POOL}\npiece 0x1f000 8192 2\ncut"))),
        [(0x90000, 1)],
        "it reaches past the end"
    );
}

#[test]
fn a_piece_may_lie_in_several_mapped_parts() {
    let mapped = "allocated 0x200000 2097152 mapped 0xc1 1
                  allocated 0x400000 2097152 mapped 0xc1 1
                  access 0x200000 4194304 1
                  piece 0x300000 2097152 2
                  cut";
    assert_eq!(live(&after(mapped)), [(0x30_0000, 2)]);
    assert!(live(&after(&format!("{mapped}\nunmapped 0x400000 2097152"))).is_empty());
}

/// Programs of `tests/gpu`, recorded on an H200 with `--keep-log`: allocations, slots, short-lived
/// ones, live ones at the end, and peak bytes, each counted by hand from the sequence.
#[test]
fn sequences_of_real_programs() {
    for (sequence, expected) in [
        (include_str!("../../tests/sequences/async.txt"), (30, 2, 6, 0, 5_242_888)),
        (include_str!("../../tests/sequences/driver.txt"), (2, 1, 0, 1, 1_048_576)),
        (include_str!("../../tests/sequences/graph.txt"), (2, 2, 0, 1, 4_194_312)),
        (include_str!("../../tests/sequences/mapped.txt"), (4, 3, 0, 0, 8_388_616)),
        (include_str!("../../tests/sequences/pytorch.txt"), (6, 42, 0, 38, 178_283_268)),
        (include_str!("../../tests/sequences/threads.txt"), (171, 14, 26, 10, 8_503_344)),
    ] {
        let book = after(sequence);
        let slots = (0..).take_while(|slot| book.slot(*slot).is_some()).count();
        let counts = book.counts();
        let found = (counts.allocations, slots, counts.short, live(&book).len(), counts.peak_bytes);
        assert_eq!(found, expected);
        assert!(!book.is_capturing());
    }
}

#[test]
fn an_allocation_unseen_at_the_end_counts_as_short_lived() {
    let book = after(
        "allocated 0x1000 4096 plain 0xc1 0
         looked
         allocated 0x3000 100 plain 0xc1 1
         allocated 0x5000 50 plain 0xc1 1
         freed 0x5000
         ends",
    );
    let counts = book.counts();
    assert_eq!((counts.allocations, counts.short, counts.short_bytes, counts.live_bytes), (3, 2, 150, 0));
}
