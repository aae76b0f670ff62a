//! How allocations are cut for the size kernels: blocks of pages, whose counts are all that targets need, and a few single
//! pages for pictures. A block is a power of two of 8 KiB pages, at most 256 to an allocation (`Blocks` of
//! buddy-core, which may have more).

const PAGE_BYTES: u64 = 8192;
const ENTRY_BYTES: u64 = 128;
/// Bytes that a warp takes at a time.
const TILE_BYTES: u64 = 32 * ENTRY_BYTES;
const MOST_BLOCKS: u64 = 256;
/// Pages of all allocations together that a picture shows, about.
const PICTURE_PAGES: u64 = 64;
/// Numbers of a span for the kernel: address, bytes, tiles before it, where classes go, window, what the codec learned.
pub(crate) const FIELDS: usize = 6;
/// Bytes of the classes of a page.
pub(crate) const PAGE_CLASSES: u64 = 64;

/// An allocation in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) slot: usize,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// Pages of each block.
    pub(crate) pages: u64,
    /// Its blocks in the table.
    pub(crate) first: usize,
    pub(crate) blocks: usize,
    /// Its pages in the picture, and how many.
    pub(crate) row: usize,
    pub(crate) rows: usize,
}

/// The kernel's table: all blocks first, then the pages of the picture.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) parts: Vec<Part>,
    pub(crate) numbers: Vec<u64>,
    /// Spans that are blocks, and tiles of these.
    pub(crate) blocks: usize,
    pub(crate) block_tiles: u64,
    /// Spans in all, and their tiles.
    pub(crate) spans: usize,
    pub(crate) tiles: u64,
    pub(crate) picture_pages: usize,
}

impl Table {
    /// A table of these allocations: slot, address and bytes.
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
                table.push(base + start, (bytes - start).min(each * PAGE_BYTES));
            }
            let blocks = table.spans - first;
            table.picture_pages += rows;
            table.parts.push(Part { slot, base, bytes, pages: each, first, blocks, row, rows });
        }
        table.blocks = table.spans;
        table.block_tiles = table.tiles;
        for at in 0..table.parts.len() {
            let part = table.parts[at];
            let pages = part.bytes.div_ceil(PAGE_BYTES);
            for row in 0..part.rows as u64 {
                // As `PageMap::page_of_row` of buddy-core.
                let start = pages * row / part.rows as u64 * PAGE_BYTES;
                table.push(part.base + start, (part.bytes - start).min(PAGE_BYTES));
            }
        }
        table
    }

    fn push(&mut self, address: u64, bytes: u64) {
        self.numbers.extend([address, bytes, self.tiles, 0, 0, 0]);
        self.tiles += bytes.div_ceil(TILE_BYTES);
        self.spans += 1;
    }

    /// Says where the classes of the picture's pages go.
    pub(crate) fn place_classes(&mut self, classes: u64) {
        for (row, span) in (self.blocks..self.spans).enumerate() {
            if let Some(place) = self.numbers.get_mut(span * FIELDS + 3) {
                *place = classes + row as u64 * PAGE_CLASSES;
            }
        }
    }

    /// Says what a codec learned of each allocation: its window, and the address of its block.
    pub(crate) fn place_lessons(&mut self, lesson: impl Fn(usize) -> [u64; 2]) {
        for part in &self.parts {
            let learned = lesson(part.slot);
            let pictures = self.blocks + part.row..self.blocks + part.row + part.rows;
            for span in (part.first..part.first + part.blocks).chain(pictures) {
                self.numbers[span * FIELDS + 4..][..2].copy_from_slice(&learned);
            }
        }
    }

    /// Entries of one page of the picture.
    pub(crate) fn entries_of_row(&self, row: usize) -> usize {
        let bytes = self.numbers.get((self.blocks + row) * FIELDS + 1).copied().unwrap_or(0);
        bytes.div_ceil(ENTRY_BYTES) as usize
    }
}
