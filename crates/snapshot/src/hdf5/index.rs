//! Verifies the checksums of chunk indexes that `hdf5-reader` does not: the data blocks of fixed
//! arrays (`FADB`) and the index, secondary and data blocks of extensible arrays (`EAIB`, `EASB`,
//! `EADB`).
//!
//! Layouts: the HDF5 File Format Specification 3.0, sections VII.C and VII.D.

use hdf5_reader::{checksum::jenkins_lookup3, storage::StorageBuffer};

use super::{Hdf5File, bad};
use crate::Error;

/// Verifies every block of the fixed array whose header is at `address`.
pub(super) fn verify_fixed_array(blocks: &mut Blocks, address: u64) -> Result<(), Error> {
    let mut header = blocks.fields(b"FAHD", address, 4 + blocks.length + blocks.offset)?;
    header.skip(1);
    let (entry, page_bits) = (header.byte(), header.byte());
    let (entries, block) = (header.number(blocks.length), header.number(blocks.offset));
    if blocks.is_undefined(block) {
        return Ok(());
    }
    let prefix = 6 + blocks.offset;
    let page = page_entries(page_bits);
    if entries <= page {
        return blocks.run(b"FADB", block, prefix, entries, entry).map(drop);
    }
    let pages = entries.div_ceil(page);
    let bitmap_bytes = usize::try_from(pages.div_ceil(8)).map_err(|_| bad("a chunk index is too large"))?;
    let mut bitmap = blocks.fields(b"FADB", block, prefix - 4 + bitmap_bytes)?;
    bitmap.skip(prefix - 5);
    let first = block.saturating_add((prefix + bitmap_bytes + 4) as u64);
    let page_bytes = page.saturating_mul(entry as u64).saturating_add(4);
    for index in 0..pages {
        let count = page.min(entries - index * page);
        if bitmap.bit(index) {
            blocks.run(b"", first.saturating_add(index.saturating_mul(page_bytes)), 0, count, entry)?;
        }
    }
    Ok(())
}

/// Verifies every block of the extensible array whose header is at `address`.
pub(super) fn verify_extensible_array(blocks: &mut Blocks, address: u64) -> Result<(), Error> {
    let mut header = blocks.fields(b"EAHD", address, 8 + 6 * blocks.length + blocks.offset)?;
    header.skip(1);
    let [entry, bits, inline, least, pointers, page_bits] = std::array::from_fn(|_| header.byte());
    header.skip(6 * blocks.length);
    let index = header.number(blocks.offset);
    if blocks.is_undefined(index) {
        return Ok(());
    }
    if !least.is_power_of_two() || !pointers.is_power_of_two() || bits > 64 {
        return Err(bad("the parameters of an extensible array are impossible"));
    }
    let offset_bytes = bits.div_ceil(8);
    let prefix = 6 + blocks.offset;
    let page = page_entries(page_bits);
    // Super block `u` has 2^(u/2) data blocks of 2^((u+1)/2) times the least number of entries.
    let super_blocks = (bits + 1).saturating_sub(least.trailing_zeros() as usize);
    let direct = (2 * pointers.trailing_zeros() as usize).min(super_blocks);
    let direct_blocks = 2 * (pointers - 1);
    let addresses = direct_blocks + super_blocks - direct;
    let body = inline * entry + addresses * blocks.offset;
    let mut fields = blocks.run(b"EAIB", index, prefix, body as u64, 1)?;
    fields.skip(prefix + inline * entry);
    let entries = |super_block: usize| (least as u64) << super_block.div_ceil(2);
    for super_block in 0..direct {
        for _ in 0..1usize << (super_block / 2) {
            let block = fields.number(blocks.offset);
            if !blocks.is_undefined(block) {
                blocks.run(b"EADB", block, prefix + offset_bytes, entries(super_block), entry)?;
            }
        }
    }
    for super_block in direct..super_blocks {
        let secondary = fields.number(blocks.offset);
        if blocks.is_undefined(secondary) {
            continue;
        }
        let (data_blocks, count) = (1u64 << (super_block / 2), entries(super_block));
        let pages = if count > page { count / page } else { 0 };
        let bitmap_bytes = data_blocks.saturating_mul(pages.div_ceil(8));
        let body = data_blocks.saturating_mul(blocks.offset as u64).saturating_add(bitmap_bytes);
        let mut bitmap = blocks.run(b"EASB", secondary, prefix + offset_bytes, body, 1)?;
        bitmap.skip(prefix + offset_bytes);
        let mut fields = bitmap.clone();
        fields.skip(bitmap_bytes as usize);
        for data_block in 0..data_blocks {
            let block = fields.number(blocks.offset);
            if blocks.is_undefined(block) {
                continue;
            }
            if pages == 0 {
                blocks.run(b"EADB", block, prefix + offset_bytes, count, entry)?;
                continue;
            }
            blocks.run(b"EADB", block, prefix + offset_bytes, 0, 1)?;
            let first = block.saturating_add((prefix + offset_bytes + 4) as u64);
            let page_bytes = page.saturating_mul(entry as u64).saturating_add(4);
            for index in (0..pages).filter(|index| bitmap.bit(data_block * pages + index)) {
                blocks.run(b"", first.saturating_add(index.saturating_mul(page_bytes)), 0, page, entry)?;
            }
        }
    }
    Ok(())
}

/// Returns the entries of a page; 0 bits stand for no pages.
fn page_entries(bits: usize) -> u64 {
    1u64.checked_shl(bits as u32).filter(|_| bits > 0).unwrap_or(u64::MAX)
}

/// Reads blocks of a file and verifies their checksums.
pub(super) struct Blocks {
    file: Hdf5File,
    /// Bytes of an address.
    offset: usize,
    /// Bytes of a length.
    length: usize,
    /// Bytes that may still be verified: blocks that overlap would take more than the file has.
    left: u64,
}

impl Blocks {
    pub(super) fn new(file: &Hdf5File) -> Self {
        let block = file.superblock();
        let (offset, length) = (usize::from(block.offset_size), usize::from(block.length_size));
        Self { file: file.clone(), offset, length, left: file.storage().len() }
    }

    fn is_undefined(&self, address: u64) -> bool {
        address == u64::MAX >> (64 - 8 * self.offset.min(8))
    }

    /// Returns the bytes after the signature and the version of a block that has `bytes` bytes
    /// after its signature, then a checksum.
    fn fields(&mut self, signature: &[u8], address: u64, bytes: usize) -> Result<Fields, Error> {
        let mut fields = self.run(signature, address, 4 + bytes, 0, 1)?;
        fields.skip(5);
        Ok(fields)
    }

    /// Verifies `prefix` bytes and `count` entries that a checksum follows, and returns them.
    fn run(
        &mut self,
        signature: &[u8],
        address: u64,
        prefix: usize,
        count: u64,
        entry: usize,
    ) -> Result<Fields, Error> {
        let bytes = count.checked_mul(entry as u64).and_then(|bytes| bytes.checked_add(prefix as u64 + 4));
        let left = bytes.and_then(|bytes| self.left.checked_sub(bytes));
        self.left =
            left.ok_or_else(|| bad("the blocks of a chunk index overlap or pass the end of the file"))?;
        let bytes = bytes.unwrap_or_default() as usize;
        let block = self.file.storage().read_range(address, bytes).map_err(bad)?;
        let (body, sum) = block.split_at(bytes - 4);
        if !body.starts_with(signature) {
            return Err(bad("a block of a chunk index has another signature"));
        }
        let stated = u32::from_le_bytes(sum.try_into().unwrap_or_default());
        let found = jenkins_lookup3(body);
        if stated == found { Ok(Fields { block, at: 0 }) } else { Err(Error::Damaged { stated, found }) }
    }
}

/// A verified block, read field by field; zeros follow its end.
#[derive(Clone)]
struct Fields {
    block: StorageBuffer,
    at: usize,
}

impl Fields {
    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    fn number(&mut self, bytes: usize) -> u64 {
        let field = self.block.get(self.at..self.at + bytes).unwrap_or_default();
        self.at += bytes;
        field.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte))
    }

    fn byte(&mut self) -> usize {
        self.number(1) as usize
    }

    /// Returns a bit of the bitmap that begins here; the first is the most significant of its byte.
    fn bit(&self, index: u64) -> bool {
        let byte = self.block.get(self.at + (index / 8) as usize).copied().unwrap_or_default();
        byte & (0x80 >> (index % 8)) != 0
    }
}
