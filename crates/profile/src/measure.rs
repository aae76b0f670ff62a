//! Sizes of the entries of an array, in one pass over its mapping.

use buddy_codec::Codec;
use buddy_core::{
    ENTRIES_PER_PAGE, ENTRY_BYTES, Entry, Histogram, PAGE_BYTES, PageMap, SizeClass, as_entries, is_zero,
    last_entry, optimistic_bytes,
};
use buddy_snapshot::Array;
use rayon::prelude::*;

/// Called with the number of bytes that were just read.
pub type Progress<'a> = &'a (dyn Fn(u64) + Sync);

/// Bytes that are mapped in at a time; with two of them the resident set stays far below 200 MB.
const SEGMENT_BYTES: usize = 32 << 20;
/// Entries that one thread takes at a time.
const PIECE_ENTRIES: usize = 512;

/// The histogram of an array under each of the codecs. The last entry is padded with zeros.
pub fn measure(array: &Array, codecs: &[Codec], progress: Progress<'_>) -> Vec<Histogram> {
    let mut totals = vec![Histogram::default(); codecs.len()];
    for (index, segment) in array.bytes().chunks(SEGMENT_BYTES).enumerate() {
        let (entries, tail) = as_entries(segment);
        let last = last_entry(tail);
        let pieces = entries.par_chunks(PIECE_ENTRIES).chain(last.as_slice().par_chunks(1));
        let sizes =
            pieces.map(|piece| count(piece, codecs)).reduce(|| vec![Histogram::default(); codecs.len()], sum);
        totals = sum(totals, sizes);
        let start = index * SEGMENT_BYTES;
        array.release(start..start + segment.len());
        progress(segment.len() as u64);
    }
    totals
}

/// The histograms of some entries.
pub(crate) fn count(entries: &[Entry], codecs: &[Codec]) -> Vec<Histogram> {
    codecs
        .iter()
        .map(|codec| entries.chunks(PIECE_ENTRIES).map(|piece| count_piece(piece, codec)).sum())
        .collect()
}

/// The histogram of at most [`PIECE_ENTRIES`] entries.
fn count_piece(entries: &[Entry], codec: &Codec) -> Histogram {
    let mut bits = [0; PIECE_ENTRIES];
    let bits = &mut bits[..entries.len()];
    codec.sizes(entries, bits);
    let mut histogram = Histogram::default();
    for (entry, &bits) in entries.iter().zip(&*bits) {
        let zero = is_zero(entry);
        let class = if zero { SizeClass::Zero } else { SizeClass::from_bits(bits) };
        histogram.add(class, optimistic_bytes(bits, zero));
    }
    histogram
}

fn sum(mut left: Vec<Histogram>, right: Vec<Histogram>) -> Vec<Histogram> {
    for (total, part) in left.iter_mut().zip(right) {
        *total += part;
    }
    left
}

/// At most `rows` pages of an array, evenly spaced, each with the classes of its entries.
pub fn page_map(array: &Array, codec: &Codec, rows: usize) -> PageMap {
    let bytes = array.bytes();
    let pages = bytes.len().div_ceil(PAGE_BYTES);
    let rows = rows.min(pages);
    let row = |row| {
        let start = PageMap::page_of_row(pages as u64, rows, row) as usize * PAGE_BYTES;
        let page = &bytes[start..bytes.len().min(start + PAGE_BYTES)];
        let (entries, tail) = as_entries(page);
        let last = last_entry(tail);
        let classes = PageMap::row(entries.iter().chain(&last).map(|entry| codec.class(entry)));
        array.release(start..start + page.len());
        classes
    };
    PageMap { pages: pages as u64, rows: (0..rows).into_par_iter().map(row).collect() }
}

const _: () =
    assert!(SEGMENT_BYTES.is_multiple_of(ENTRY_BYTES) && PAGE_BYTES == ENTRIES_PER_PAGE * ENTRY_BYTES);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use buddy_codec::{CodecKind, EntryCodec};
    use buddy_core::Dtype;

    use super::*;

    /// Zero entries, ramps and noise by thirds, `entries` of them and `tail` bytes more.
    fn mixed(entries: usize, tail: usize) -> Array {
        let mut state = 1u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        let byte = |i: usize, noise: u8| match (i / ENTRY_BYTES) % 3 {
            0 => 0,
            1 => {
                if i.is_multiple_of(4) {
                    (i / 4) as u8 & 31
                } else {
                    0
                }
            }
            _ => noise,
        };
        let bytes = (0..entries * ENTRY_BYTES + tail).map(|i| byte(i, noise())).collect();
        Array::from_memory("mixed", Dtype::U8, bytes).unwrap()
    }

    #[test]
    fn every_entry_is_counted_once_across_segments() {
        let entries = SEGMENT_BYTES / ENTRY_BYTES + 1000;
        let array = mixed(entries, 5);
        let read = AtomicU64::new(0);
        let progress = |bytes| {
            read.fetch_add(bytes, Ordering::Relaxed);
        };
        let codec = CodecKind::Bpc.train(&[]);
        let found = measure(&array, std::slice::from_ref(&codec), &progress);
        assert_eq!(read.into_inner(), array.bytes().len() as u64);
        let thirds = |rest: usize| ((entries + 2 - rest) / 3) as u64;
        let mut expected = Histogram::default();
        let (all, tail) = as_entries(array.bytes());
        for entry in all.iter().chain(&last_entry(tail)) {
            expected.add(
                codec.class(entry),
                if is_zero(entry) { 0 } else { optimistic_bytes(codec.size_bits(entry), false) },
            );
        }
        assert_eq!(found, [expected]);
        assert_eq!(found[0].entries(), entries as u64 + 1);
        assert_eq!(found[0].classes[SizeClass::Zero.index()], thirds(0));
        assert_eq!(found[0].classes[SizeClass::Raw.index()], thirds(2));
    }

    #[test]
    fn a_page_map_has_the_classes_of_its_pages() {
        let array = mixed(64 * 5, 1);
        let codec = CodecKind::Bpc.train(&[]);
        let map = page_map(&array, &codec, 512);
        assert_eq!((map.pages, map.rows.len()), (6, 6));
        assert!(map.fits(64 * 5 + 1));
        assert!(map.rows[0].starts_with("015015") && map.rows[1].starts_with("150"));
        let few = page_map(&array, &codec, 3);
        assert_eq!(few.rows, [0, 2, 4].map(|page: usize| map.rows[page].clone()));
        assert!(page_map(&Array::from_memory("none", Dtype::U8, vec![]).unwrap(), &codec, 9).rows.is_empty());
    }
}
