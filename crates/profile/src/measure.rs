//! Sizes of the entries of an array, in one pass over its mapping.

use buddy_codec::{Codec, EntryCodec};
use buddy_core::{
    ENTRIES_PER_PAGE, ENTRY_BYTES, Entry, Histogram, PAGE_BYTES, PageMap, as_entries, is_zero, last_entry,
};
use rayon::prelude::*;

use crate::Memory;

/// Called with the number of bytes that were just read.
pub type Progress<'a> = &'a (dyn Fn(u64) + Sync);

/// How many entries of one page have each class, in the order of [`SizeClass::ALL`](buddy_core::SizeClass::ALL).
pub type PageClasses = [u8; 6];

/// The sizes of an array's entries under one codec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes {
    /// All entries.
    pub histogram: Histogram,
    /// Those of each page.
    pub pages: Vec<PageClasses>,
}

/// Bytes that are mapped in at a time; with two of them the resident set stays far below 200 MB.
const SEGMENT_BYTES: usize = 32 << 20;
/// Bytes that one thread takes at a time.
const PIECE_BYTES: usize = 8 * PAGE_BYTES;

/// The sizes of an array under each of the codecs. The last entry is padded with zeros.
pub fn measure(array: &impl Memory, codecs: &[Codec], progress: Progress<'_>) -> Vec<Sizes> {
    let mut totals = vec![Sizes::default(); codecs.len()];
    for (index, segment) in array.bytes().chunks(SEGMENT_BYTES).enumerate() {
        let pieces = segment.par_chunks(PIECE_BYTES).map(|piece| count_pages(piece, codecs));
        for piece in pieces.collect::<Vec<_>>() {
            for (total, part) in totals.iter_mut().zip(piece) {
                total.histogram += part.histogram;
                total.pages.extend(part.pages);
            }
        }
        let start = index * SEGMENT_BYTES;
        array.release(start..start + segment.len());
        progress(segment.len() as u64);
    }
    totals
}

/// The histograms of some entries.
pub(crate) fn count(entries: &[Entry], codecs: &[Codec]) -> Vec<Histogram> {
    count_pages(entries.as_flattened(), codecs).into_iter().map(|sizes| sizes.histogram).collect()
}

/// The sizes of pages that lie one after the other.
fn count_pages(bytes: &[u8], codecs: &[Codec]) -> Vec<Sizes> {
    let mut sizes = vec![Sizes::default(); codecs.len()];
    // Page by page, so that every codec finds it in the nearest cache.
    for page in bytes.chunks(PAGE_BYTES) {
        for (sizes, codec) in sizes.iter_mut().zip(codecs) {
            let (classes, optimistic_bytes) = count_page(page, codec);
            let more = Histogram { classes: classes.map(u64::from), optimistic_bytes };
            sizes.histogram += more;
            sizes.pages.push(classes);
        }
    }
    sizes
}

/// The classes of a page's entries, and their bytes among the paper's eight sizes.
///
/// Entries are counted above each limit rather than put into their class one by one: the loops over 64 sizes
/// become a few vector instructions.
fn count_page(page: &[u8], codec: &Codec) -> (PageClasses, u64) {
    let (entries, tail) = as_entries(page);
    let mut bits = [0u32; ENTRIES_PER_PAGE];
    codec.sizes(entries, &mut bits[..entries.len()]);
    for (bits, entry) in bits.iter_mut().zip(entries) {
        *bits = stored_bits(*bits, entry);
    }
    let mut count = entries.len() as u64;
    if let Some(last) = last_entry(tail) {
        bits[entries.len()] = stored_bits(codec.size_bits(&last), &last);
        count += 1;
    }
    let above = |limit: u32| bits.iter().map(|&bits| u32::from(bits > limit)).sum::<u32>().into();
    let [zero, b8, b16, s1, s2, b80, s3] = [0, 64, 128, 256, 512, 640, 768].map(above);
    let classes = [count - zero, zero - b8, b8 - s1, s1 - s2, s2 - s3, s3];
    let optimistic: u64 = 8 * (zero + b8) + 16 * (b16 + s2 + b80) + 32 * (s1 + s3);
    (classes.map(|n: u64| n as u8), optimistic)
}

/// Nothing for zeros, whatever their stream has; at least one bit for all others.
#[inline(always)]
fn stored_bits(bits: u32, entry: &Entry) -> u32 {
    if is_zero(entry) { 0 } else { bits.max(1) }
}

/// At most `rows` pages of an array, evenly spaced, each with the classes of its entries.
pub fn page_map(array: &impl Memory, codec: &Codec, rows: usize) -> PageMap {
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

const _: () = assert!(
    SEGMENT_BYTES.is_multiple_of(PIECE_BYTES) && PAGE_BYTES == ENTRIES_PER_PAGE * ENTRY_BYTES,
    "pages do not cross segments"
);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use buddy_codec::CodecKind;
    use buddy_core::{Dtype, SizeClass, optimistic_bytes};
    use buddy_snapshot::Array;

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
        let found = measure(&array, std::slice::from_ref(&codec), &progress).remove(0);
        assert_eq!(read.into_inner(), array.bytes().len() as u64);
        let thirds = |rest: usize| ((entries + 2 - rest) / 3) as u64;
        let mut expected = Histogram::default();
        let (all, tail) = as_entries(array.bytes());
        for entry in all.iter().chain(&last_entry(tail)) {
            let bits = codec.size_bits(entry);
            expected.add(codec.class(entry), optimistic_bytes(bits, is_zero(entry)));
        }
        assert_eq!(found.histogram, expected);
        assert_eq!(found.histogram.entries(), entries as u64 + 1);
        assert_eq!(found.histogram.classes[SizeClass::Zero.index()], thirds(0));
        assert_eq!(found.histogram.classes[SizeClass::Raw.index()], thirds(2));
        assert_eq!(found.pages.len(), (entries + 1).div_ceil(ENTRIES_PER_PAGE));
    }

    /// Every codec, on entries of every size: counting above limits is the same as asking for each entry.
    #[test]
    fn a_page_counts_what_each_of_its_entries_is() {
        let mut entries: Vec<Entry> = (0..70u8)
            .map(|i| {
                std::array::from_fn(
                    |byte| if byte < 2 * i as usize { i.wrapping_mul(37) ^ byte as u8 } else { 0 },
                )
            })
            .collect();
        entries[3] = [0; ENTRY_BYTES];
        let array = Array::from_memory("sizes", Dtype::U8, entries.concat()).unwrap();
        for kind in CodecKind::ALL {
            let codec = kind.train(&entries);
            let found = measure(&array, std::slice::from_ref(&codec), &|_| ()).remove(0);
            let mut expected = Histogram::default();
            for entry in &entries {
                expected.add(codec.class(entry), optimistic_bytes(codec.size_bits(entry), is_zero(entry)));
            }
            assert_eq!(found.histogram, expected, "{kind}");
            assert_eq!(found.pages[1].map(u32::from).iter().sum::<u32>(), 6);
            assert_eq!(count(&entries, &[codec]), [expected]);
        }
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
