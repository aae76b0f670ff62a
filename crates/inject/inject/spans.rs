//! Partition of allocations for the size kernels: blocks of pages, whose counts suffice for
//! targets, and a few single pages for pictures. A block is a power of two of 8 KiB pages; an
//! allocation has at most 256 (`Blocks` of buddy-core allows more).

use std::ops::Range;

const PAGE_BYTES: u64 = 8192;
const ENTRY_BYTES: u64 = 128;
/// Bytes that a warp processes at a time.
const TILE_BYTES: u64 = 32 * ENTRY_BYTES;
const MOST_BLOCKS: u64 = 256;
/// Approximate pages in the picture of all allocations together.
const PICTURE_PAGES: u64 = 64;
/// Numbers per span in the kernel's table: address, bytes, first tile, and its row of codec
/// parameters.
pub(crate) const FIELDS: usize = 4;
/// Numbers per codec in a row: address of the classes, window, and address of the parameters.
pub(crate) const ASKED: usize = 3;
/// Bytes of a page's classes.
pub(crate) const PAGE_CLASSES: u64 = 64;

/// An allocation in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) slot: usize,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// Pages per block.
    pub(crate) pages: u64,
    /// Index of its first block in the table.
    pub(crate) first: usize,
    pub(crate) blocks: usize,
    /// Index of its first page in the picture, and the number of pages.
    pub(crate) row: usize,
    pub(crate) rows: usize,
}

/// The kernel's table: all blocks, then the pages of the picture.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) parts: Vec<Part>,
    pub(crate) numbers: Vec<u64>,
    /// Spans that are blocks.
    pub(crate) blocks: usize,
    /// Number of spans, and of their tiles.
    pub(crate) spans: usize,
    pub(crate) tiles: u64,
    pub(crate) picture_pages: usize,
}

impl Table {
    /// Creates a table of allocations: slot, address and bytes.
    pub(crate) fn new(allocations: &[(usize, u64, u64)]) -> Self {
        let mut table = Self::default();
        let all: u64 = allocations.iter().map(|(_, _, bytes)| bytes).sum();
        for &(slot, base, bytes) in allocations {
            let pages = bytes.div_ceil(PAGE_BYTES);
            let each = pages.div_ceil(MOST_BLOCKS).next_power_of_two();
            let share = (PICTURE_PAGES as f64 * bytes as f64 / all.max(1) as f64) as u64;
            let rows = share.clamp(1, PICTURE_PAGES).min(pages) as usize;
            let (first, row) = (table.spans, table.picture_pages);
            for start in (0..bytes).step_by((each * PAGE_BYTES) as usize) {
                let row = table.parts.len();
                table.push(base + start, (bytes - start).min(each * PAGE_BYTES), row);
            }
            let blocks = table.spans - first;
            table.picture_pages += rows;
            table.parts.push(Part { slot, base, bytes, pages: each, first, blocks, row, rows });
        }
        table.blocks = table.spans;
        for at in 0..table.parts.len() {
            let part = table.parts[at];
            let pages = part.bytes.div_ceil(PAGE_BYTES);
            for row in 0..part.rows as u64 {
                // As `PageMap::page_of_row` of buddy-core.
                let start = pages * row / part.rows as u64 * PAGE_BYTES;
                let asked = table.parts.len() + part.row + row as usize;
                table.push(part.base + start, (part.bytes - start).min(PAGE_BYTES), asked);
            }
        }
        table
    }

    fn push(&mut self, address: u64, bytes: u64, row: usize) {
        self.numbers.extend([address, bytes, self.tiles, row as u64]);
        self.tiles += bytes.div_ceil(TILE_BYTES);
        self.spans += 1;
    }

    /// Returns the rows of codec parameters: one per allocation, then one per page of the picture.
    pub(crate) fn rows(&self) -> usize {
        self.parts.len() + self.picture_pages
    }

    /// Returns the parameters of some codecs, row by row; `parameters` has the window and block of a
    /// codec for a slot. The picture's pages request classes from the first codec only.
    pub(crate) fn asked(
        &self,
        codecs: Range<usize>,
        classes: u64,
        parameters: impl Fn(usize, usize) -> [u64; 2],
    ) -> Vec<u64> {
        let places =
            |part: &Part| (part.row..part.row + part.rows).map(|row| classes + row as u64 * PAGE_CLASSES);
        let pages = self.parts.iter().flat_map(|part| places(part).map(|place| (part.slot, place)));
        let rows = self.parts.iter().map(|part| (part.slot, 0)).chain(pages);
        let mut numbers = Vec::with_capacity(ASKED * codecs.len() * self.rows());
        for (slot, place) in rows {
            for codec in codecs.clone() {
                let [window, block] = parameters(slot, codec);
                numbers.extend([if codec == 0 { place } else { 0 }, window, block]);
            }
        }
        numbers
    }

    /// Returns the entries of a page of the picture.
    pub(crate) fn entries_of_row(&self, row: usize) -> usize {
        let bytes = self.numbers.get((self.blocks + row) * FIELDS + 1).copied().unwrap_or(0);
        bytes.div_ceil(ENTRY_BYTES) as usize
    }
}
