//! Log lines of a snapshot.
//!
//! A snapshot has a few numbers for each of thousands of blocks, so these are hexadecimal digits of
//! a fixed width: decimal numbers of the standard library's `write!` took nine tenths of the time
//! of a snapshot of a hundred megabytes.

use std::io::Write as _;

use super::spans::{PAGE_CLASSES, Part, Table};

/// Sums of a span: six classes and the bytes by the paper's eight sizes.
pub(crate) const SUMS: usize = 7;
const ENTRIES_PER_PAGE: u64 = 64;
const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// The two digits of every byte.
const PAIRS: [[u8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    pairs
};

/// Writes one allocation: for each codec a line `sizes SLOT BASE CODEC CLASSES... BYTES` and a line
/// `blocks SLOT CODEC PAGES BLOCK...`, and a line `rows SLOT DIGITS...`. A block is its six counts
/// in hexadecimal digits of equal width; equal successive blocks are written once, after `TIMES*`.
pub(crate) fn write_part(log: &mut Vec<u8>, table: &Table, part: &Part, sums: &[u64], classes: &[u8]) {
    let codecs = sums.len() / (SUMS * table.spans.max(1));
    for codec in 0..codecs {
        let first = SUMS * (codec * table.spans + part.first);
        let blocks = &sums[first..first + SUMS * part.blocks];
        let _ = write!(log, "sizes {} {:#x} {codec}", part.slot, part.base);
        totals(blocks).iter().for_each(|total| write!(log, " {total}").unwrap_or(()));
        let _ = write!(log, "\nblocks {} {codec} {}", part.slot, part.pages);
        write_blocks(log, blocks, width(part.pages));
        log.push(b'\n');
    }
    let _ = write!(log, "rows {}", part.slot);
    for row in part.row..part.row + part.rows {
        let page = &classes[row * PAGE_CLASSES as usize..][..table.entries_of_row(row)];
        log.push(b' ');
        log.extend(page.iter().map(|class| b'0' + class.min(&5)));
    }
    log.push(b'\n');
}

fn totals(blocks: &[u64]) -> [u64; SUMS] {
    let mut totals = [0; SUMS];
    for block in blocks.as_chunks::<SUMS>().0 {
        totals.iter_mut().zip(block).for_each(|(total, count)| *total += count);
    }
    totals
}

/// Writes blocks with an even number of digits per count, two per byte.
fn write_blocks(log: &mut Vec<u8>, blocks: &[u64], width: usize) {
    let mut blocks = blocks.as_chunks::<SUMS>().0.iter().map(|block| &block[..SUMS - 1]).peekable();
    let mut digits = [b' '; 1 + 16 * (SUMS - 1)];
    while let Some(block) = blocks.next() {
        let mut times = 1;
        while blocks.next_if_eq(&block).is_some() {
            times += 1;
        }
        let mut end = 1;
        for &count in block {
            for byte in &count.to_be_bytes()[8 - width / 2..] {
                digits[end..end + 2].copy_from_slice(&PAIRS[usize::from(*byte)]);
                end += 2;
            }
        }
        if times > 1 {
            let _ = write!(log, " {times}*");
        }
        log.extend_from_slice(&digits[usize::from(times > 1)..end]);
    }
}

/// Returns the hexadecimal digits, an even number, that count the entries of `pages` pages.
fn width(pages: u64) -> usize {
    let bits = 64 - (ENTRIES_PER_PAGE * pages).leading_zeros() as usize;
    2 * bits.div_ceil(8)
}
