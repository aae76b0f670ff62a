//! Call sites from backtraces, and tables of spans.

use buddy_core::PageMap;

use super::{
    frames::parse,
    spans::{ASKED, FIELDS, Table},
    training::places,
};

#[test]
fn a_backtrace_has_files_and_lines_where_there_are_symbols() {
    let text = "   0:     0x7f0000000010 - __cudart549
   1:     0x7f0000000020 - cudaMalloc
   2:     0x55d000000030 - _ZL10cudaMallocIdE9cudaErrorPPT_m
                               at /usr/include/cuda_runtime.h:730:1
                           make(int)
                               at ./src/cg.cu:512:9
   3:     0x55d000000040 - main
   4:                0x0 - <unknown>";
    let frames = parse(text);
    assert_eq!(frames.len(), 5);
    assert_eq!(frames[2].place.as_deref(), Some("cg.cu:512"));
    assert_eq!((frames[2].address, frames[3].place.clone()), (0x55d0_0000_0030, None));
    let runtime: Vec<bool> = frames.iter().map(super::frames::Frame::is_runtime).collect();
    assert_eq!(runtime, [true, true, false, false, false]);
}

#[test]
fn allocations_are_cut_at_the_blocks_of_a_record() {
    for bytes in [1u64, 8192, 8193, 3 << 20, (5 << 30) + 77] {
        let table = Table::new(&[(0, 0x1000, bytes)]);
        let part = table.parts[0];
        let pages = bytes.div_ceil(8192);
        assert_eq!(part.pages, pages.div_ceil(256).next_power_of_two());
        assert_eq!(part.blocks as u64, pages.div_ceil(part.pages));
        let spans: Vec<&[u64]> = table.numbers.chunks(FIELDS).collect();
        assert_eq!(spans[..part.blocks].iter().map(|span| span[1]).sum::<u64>(), bytes);
        let last = spans[part.blocks - 1];
        assert_eq!(last[0] + last[1], 0x1000 + bytes);
        for (row, span) in spans[part.blocks..].iter().enumerate() {
            assert_eq!(span[0], 0x1000 + PageMap::page_of_row(pages, part.rows, row) * 8192);
        }
        assert_eq!(table.spans, spans.len());
    }
}

#[test]
fn tiles_follow_each_other_and_pictures_are_shared_out() {
    let table = Table::new(&[(3, 0, 1 << 20), (4, 1 << 30, 3 << 20), (5, 1 << 31, 5)]);
    let tiles = |bytes: u64| bytes.div_ceil(4096);
    let mut sum = 0;
    for span in table.numbers.chunks(FIELDS) {
        assert_eq!(span[2], sum);
        sum += tiles(span[1]);
    }
    assert_eq!(sum, table.tiles);
    assert_eq!(table.parts.iter().map(|part| part.rows).collect::<Vec<_>>(), [15, 47, 1]);
    let asked = table.asked(0..2, 1000, |_, _| [0; 2]);
    let place = |span: &[u64], codec| asked[ASKED * (2 * span[3] as usize + codec)];
    let places = |codec| table.numbers.chunks(FIELDS).map(move |span| place(span, codec)).collect::<Vec<_>>();
    assert_eq!(places(0)[table.blocks - 1..table.blocks + 2], [0, 1000, 1064]);
    assert_eq!((places(0).last(), places(1).iter().max()), (Some(&(1000 + 62 * 64)), Some(&0)));
    assert_eq!(table.entries_of_row(62), 1);
}

#[test]
fn samples_are_spread_over_the_allocation() {
    assert_eq!(places(5).chain(places(1024)).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(places(2048).collect::<Vec<_>>(), [0, 1024]);
    let places: Vec<u64> = places(1 << 30).collect();
    assert_eq!((places.len(), places[0], places[63]), (64, 0, (1 << 30) - 1024));
    assert!(places.iter().all(|place| place % 128 == 0) && places.is_sorted());
}

#[test]
fn lessons_reach_every_span_of_their_allocation() {
    let table = Table::new(&[(7, 0x1000, 20_000), (9, 0x10_0000, 8192)]);
    let asked = table.asked(3..5, 0, |slot, codec| [slot as u64, 100 + codec as u64]);
    assert_eq!(asked.len(), 2 * ASKED * table.rows());
    for span in table.numbers.chunks(FIELDS) {
        let slot = if span[0] >= 0x10_0000 { 9 } else { 7 };
        assert_eq!(asked[2 * ASKED * span[3] as usize..][..2 * ASKED], [0, slot, 103, 0, slot, 104]);
    }
}
