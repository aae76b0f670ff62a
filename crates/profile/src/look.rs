//! Classifies every entry of an array with several codecs, in one pass over its mapping.

use buddy_codec::{Codec, EntryCodec};
use buddy_core::{
    ENTRIES_PER_PAGE, ENTRY_BYTES, Entry, Histogram, PAGE_BYTES, PageMap, SizeClass, as_entries, is_zero,
    last_entry,
};
use rayon::prelude::*;

use crate::Memory;

/// Called with the number of bytes that were just read.
pub type Progress<'a> = &'a (dyn Fn(u64) + Sync);

/// Number of entries of a page in each class, in the order of [`SizeClass::ALL`].
pub type PageClasses = [u8; 6];

/// Size classes of an array with one codec.
#[derive(Debug, Clone, Default)]
pub(crate) struct Look {
    /// Histogram of the whole array.
    pub(crate) histogram: Histogram,
    /// Class counts of each page.
    pub(crate) pages: Vec<PageClasses>,
    /// Classes of the entries of the kept pages; `None` if no page was requested.
    pub(crate) map: Option<PageMap>,
}

/// The pages of an array whose entries' classes are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    /// Number of codecs, from the first, to keep pages of.
    pub(crate) codecs: usize,
    /// Largest number of pages, evenly spaced.
    pub(crate) rows: usize,
}

/// Bytes mapped in at a time: sixteen threads hold at most 128 MB of a large file.
const SEGMENT_BYTES: usize = 8 << 20;
/// Bytes that one thread processes at a time.
const PIECE_BYTES: usize = 8 * PAGE_BYTES;

/// Classifies the entries of an array with each codec. Pads the last entry with zeros.
pub(crate) fn look(array: &impl Memory, codecs: &[Codec], shown: Shown, progress: Progress<'_>) -> Vec<Look> {
    let bytes = array.bytes();
    let pages = bytes.len().div_ceil(PAGE_BYTES);
    let pass = Pass { codecs, pages: pages as u64, shown: Shown { rows: shown.rows.min(pages), ..shown } };
    let mut totals = vec![Part::default(); codecs.len()];
    for (index, segment) in bytes.chunks(SEGMENT_BYTES).enumerate() {
        let start = index * SEGMENT_BYTES;
        let piece =
            |(piece, bytes): (usize, &[u8])| pass.part(bytes, (start + piece * PIECE_BYTES) / PAGE_BYTES);
        let pieces: Vec<Vec<Part>> = segment.par_chunks(PIECE_BYTES).enumerate().map(piece).collect();
        for piece in pieces {
            totals.iter_mut().zip(piece).for_each(|(total, part)| total.join(part));
        }
        array.release(start..start + segment.len());
        progress(segment.len() as u64);
    }
    let look = |(codec, Part { histogram, pages, classes }): (usize, Part)| {
        let map = (codec < shown.codecs && shown.rows > 0).then(|| PageMap::from_pages(pass.pages, classes));
        Look { histogram, pages, map }
    };
    totals.into_iter().enumerate().map(look).collect()
}

/// Returns the histogram of some memory with one codec, computed on all threads.
pub fn histogram(memory: &impl Memory, codec: &Codec) -> Histogram {
    let shown = Shown { codecs: 0, rows: 0 };
    look(memory, std::slice::from_ref(codec), shown, &|_| ())[0].histogram
}

/// Returns the size class of each entry with a codec.
pub(crate) fn classes(entries: &[Entry], codec: &Codec) -> Vec<SizeClass> {
    let pages = entries.as_flattened().chunks(PAGE_BYTES);
    pages.flat_map(|page| PageSizes::new(page, codec).classes().collect::<Vec<_>>()).collect()
}

/// Returns the histogram of entries with a codec.
#[cfg(test)]
pub(crate) fn count(entries: &[Entry], codec: &Codec) -> Histogram {
    let codecs = std::slice::from_ref(codec);
    let pass = Pass { codecs, pages: 0, shown: Shown { codecs: 0, rows: 0 } };
    pass.part(entries.as_flattened(), 0)[0].histogram
}

/// One pass over an array.
struct Pass<'a> {
    codecs: &'a [Codec],
    /// Number of pages of the array.
    pages: u64,
    shown: Shown,
}

/// Size classes of consecutive pages with one codec.
#[derive(Debug, Clone, Default)]
struct Part {
    histogram: Histogram,
    pages: Vec<PageClasses>,
    /// Classes of the entries of kept pages.
    classes: Vec<SizeClass>,
}

impl Part {
    fn join(&mut self, next: Self) {
        self.histogram += next.histogram;
        self.pages.extend(next.pages);
        self.classes.extend(next.classes);
    }
}

impl Pass<'_> {
    /// Classifies consecutive pages, of which the first has index `first`.
    fn part(&self, bytes: &[u8], first: usize) -> Vec<Part> {
        let mut parts = vec![Part::default(); self.codecs.len()];
        // Page by page, so that the data stay in the L1 cache for all codecs.
        for (index, page) in bytes.chunks(PAGE_BYTES).enumerate() {
            let shown =
                self.shown.rows > 0 && PageMap::shows(self.pages, self.shown.rows, (first + index) as u64);
            for (number, (part, codec)) in parts.iter_mut().zip(self.codecs).enumerate() {
                let sizes = PageSizes::new(page, codec);
                let (classes, optimistic_bytes) = sizes.count();
                part.histogram += Histogram { classes: classes.map(u64::from), optimistic_bytes };
                part.pages.push(classes);
                if shown && number < self.shown.codecs {
                    part.classes.extend(sizes.classes());
                }
            }
        }
        parts
    }
}

/// Compressed bits of a page's entries: 0 for zero entries and past the end, at least 1 for all
/// others.
struct PageSizes {
    bits: [u32; ENTRIES_PER_PAGE],
    entries: usize,
}

impl PageSizes {
    fn new(page: &[u8], codec: &Codec) -> Self {
        let (entries, tail) = as_entries(page);
        let mut bits = [0; ENTRIES_PER_PAGE];
        codec.sizes(entries, &mut bits[..entries.len()]);
        for (bits, entry) in bits.iter_mut().zip(entries) {
            *bits = stored_bits(*bits, entry);
        }
        let last = last_entry(tail);
        if let Some(last) = &last {
            bits[entries.len()] = stored_bits(codec.size_bits(last), last);
        }
        Self { bits, entries: entries.len() + last.iter().len() }
    }

    /// Returns the class counts and the optimistic bytes, among the paper's eight sizes.
    ///
    /// Counts the entries above each class limit, since these loops over 64 sizes vectorise.
    fn count(&self) -> (PageClasses, u64) {
        let above = |limit: u32| self.bits.iter().map(|&bits| u32::from(bits > limit)).sum::<u32>().into();
        let [zero, b8, b16, s1, s2, b80, s3] = [0, 64, 128, 256, 512, 640, 768].map(above);
        let classes = [self.entries as u64 - zero, zero - b8, b8 - s1, s1 - s2, s2 - s3, s3];
        let optimistic: u64 = 8 * (zero + b8) + 16 * (b16 + s2 + b80) + 32 * (s1 + s3);
        (classes.map(|n: u64| n as u8), optimistic)
    }

    /// Returns the class of each entry.
    fn classes(&self) -> impl Iterator<Item = SizeClass> {
        let class = |&bits: &u32| if bits == 0 { SizeClass::Zero } else { SizeClass::from_bits(bits) };
        self.bits[..self.entries].iter().map(class)
    }
}

const _: () = assert!(ENTRIES_PER_PAGE <= u8::MAX as usize, "the classes of a page are counted in bytes");

/// Returns 0 for a zero entry, whatever its encoded size, and at least 1 for all others.
#[inline(always)]
fn stored_bits(bits: u32, entry: &Entry) -> u32 {
    if is_zero(entry) { 0 } else { bits.max(1) }
}

const _: () = assert!(
    SEGMENT_BYTES.is_multiple_of(PIECE_BYTES) && PAGE_BYTES == ENTRIES_PER_PAGE * ENTRY_BYTES,
    "pages do not cross segments"
);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use buddy_codec::CodecKind;
    use buddy_core::{Dtype, optimistic_bytes};
    use buddy_snapshot::Array;

    use super::*;

    /// Returns an array of `entries` entries, in turn zero, ramp and noise, and `tail` more bytes.
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

    /// Classifies with one codec and keeps at most `rows` pages.
    fn look_at(array: &Array, codec: &Codec, rows: usize) -> Look {
        look(array, std::slice::from_ref(codec), Shown { codecs: 1, rows }, &|_| ()).remove(0)
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
        let shown = Shown { codecs: 1, rows: 0 };
        let found = look(&array, std::slice::from_ref(&codec), shown, &progress).remove(0);
        assert!(found.map.is_none());
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

    /// Compares the vectorised counts with `EntryCodec::class`, for every codec and entries of
    /// every size.
    #[test]
    fn page_counts_equal_the_classes_of_single_entries() {
        let mut entries: Vec<Entry> = (0..70u8)
            .map(|i| {
                std::array::from_fn(
                    |byte| if byte < 2 * i as usize { i.wrapping_mul(37) ^ byte as u8 } else { 0 },
                )
            })
            .collect();
        entries[3] = [0; ENTRY_BYTES];
        let array = Array::from_memory("sizes", Dtype::U8, entries.concat()).unwrap();
        for kind in CodecKind::EVERY {
            let codec = kind.train(&entries);
            let found = look_at(&array, &codec, usize::MAX);
            let mut expected = Histogram::default();
            for entry in &entries {
                expected.add(codec.class(entry), optimistic_bytes(codec.size_bits(entry), is_zero(entry)));
            }
            assert_eq!(found.histogram, expected, "{kind}");
            assert_eq!(found.pages[1].map(u32::from).iter().sum::<u32>(), 6);
            assert_eq!(count(&entries, &codec), expected);
            let classes: Vec<SizeClass> = entries.iter().map(|entry| codec.class(entry)).collect();
            assert_eq!(found.map.unwrap().classes()[..], classes, "{kind}");
        }
    }

    #[test]
    fn a_page_map_has_the_classes_of_its_pages() {
        let array = mixed(64 * 5, 1);
        let codec = CodecKind::Bpc.train(&[]);
        let map = |array, rows| look_at(array, &codec, rows).map.unwrap();
        let whole = map(&array, 512);
        assert!(whole.is_whole() && whole.fits(64 * 5 + 1));
        let digits = whole.digits();
        assert!(digits[0].starts_with("015015") && digits[1].starts_with("150") && digits[5].len() == 1);
        assert_eq!(map(&array, 3).digits(), [0, 2, 4].map(|page: usize| digits[page].clone()));
        assert_eq!(map(&array, 3), whole.sampled(3));
        assert_eq!(map(&Array::from_memory("none", Dtype::U8, vec![]).unwrap(), 9).rows().len(), 0);
    }

    /// Kept pages may be in any piece; maps exist only for the requested codecs.
    #[test]
    fn kept_rows_equal_a_sample_of_the_whole_map() {
        let array = mixed(SEGMENT_BYTES / ENTRY_BYTES + 700, 0);
        let codecs = [CodecKind::Bpc.train(&[]), CodecKind::Zeros64.train(&[])];
        let maps = |rows| look(&array, &codecs, Shown { codecs: 1, rows }, &|_| ());
        let whole = maps(usize::MAX).remove(0).map.unwrap();
        for rows in [1, 7, 500] {
            let found = maps(rows);
            assert_eq!(found[0].map, Some(whole.sampled(rows)));
            assert!(found[1].map.is_none());
        }
    }
}
