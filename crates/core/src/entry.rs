//! The memory-entry: 128 bytes, the unit of compression.

/// Bytes in one memory-entry.
pub const ENTRY_BYTES: usize = 128;
/// Bits in one memory-entry.
pub const ENTRY_BITS: u32 = 1024;
/// Bytes in one sector, the access granularity of GPU memory.
pub const SECTOR_BYTES: usize = 32;
/// Bytes in one page, the unit of the Buddy Compression paper's heat maps and page table.
pub const PAGE_BYTES: usize = 8192;
/// Entries in one page. A 32-byte line of metadata, four bits an entry, covers the same number.
pub const ENTRIES_PER_PAGE: usize = PAGE_BYTES / ENTRY_BYTES;

/// One memory-entry. A plain array, so a byte slice can be viewed as entries without a copy.
pub type Entry = [u8; ENTRY_BYTES];

/// The all-zero entry.
pub const ZERO_ENTRY: Entry = [0; ENTRY_BYTES];

/// Splits `bytes` into whole entries and a tail of fewer than 128 bytes.
pub fn as_entries(bytes: &[u8]) -> (&[Entry], &[u8]) {
    bytes.as_chunks()
}

/// Returns `tail` zero-padded to an entry; `None` if `tail` is empty.
///
/// # Panics
/// If `tail` is longer than an entry.
pub fn last_entry(tail: &[u8]) -> Option<Entry> {
    assert!(tail.len() <= ENTRY_BYTES, "a tail of {} bytes is longer than an entry", tail.len());
    let mut entry = ZERO_ENTRY;
    entry[..tail.len()].copy_from_slice(tail);
    (!tail.is_empty()).then_some(entry)
}

/// Returns whether every byte is zero.
#[inline]
pub fn is_zero(entry: &Entry) -> bool {
    words64(entry).iter().fold(0, |all, word| all | word) == 0
}

/// Returns the entry as 64 little-endian 16-bit words.
#[inline]
pub fn words16(entry: &Entry) -> [u16; 64] {
    let (words, _) = entry.as_chunks();
    std::array::from_fn(|i| u16::from_le_bytes(words[i]))
}

/// Returns the entry as 32 little-endian 32-bit words.
#[inline]
pub fn words32(entry: &Entry) -> [u32; 32] {
    let (words, _) = entry.as_chunks();
    std::array::from_fn(|i| u32::from_le_bytes(words[i]))
}

/// Returns the entry as 16 little-endian 64-bit words.
#[inline]
pub fn words64(entry: &Entry) -> [u64; 16] {
    let (words, _) = entry.as_chunks();
    std::array::from_fn(|i| u64::from_le_bytes(words[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_splits_into_entries_and_a_padded_tail() {
        let bytes: Vec<u8> = (0..300).map(|i| i as u8).collect();
        let (entries, tail) = as_entries(&bytes);
        assert_eq!((entries.len(), tail.len()), (2, 44));
        let last = last_entry(tail).unwrap();
        assert_eq!(last[..44], bytes[256..]);
        assert!(last[44..].iter().all(|&b| b == 0));
        assert_eq!(last_entry(&[]), None);
    }

    #[test]
    fn words_are_little_endian() {
        let entry: Entry = std::array::from_fn(|i| i as u8);
        assert_eq!(words16(&entry)[1], 0x0302);
        assert_eq!(words32(&entry)[1], 0x0706_0504);
        assert_eq!(words64(&entry)[1], 0x0f0e_0d0c_0b0a_0908);
    }

    #[test]
    fn an_entry_with_any_bit_set_is_not_zero() {
        assert!(is_zero(&ZERO_ENTRY));
        for bit in 0..1024 {
            let mut entry = ZERO_ENTRY;
            entry[bit / 8] |= 1 << (bit % 8);
            assert!(!is_zero(&entry), "bit {bit}");
        }
    }
}
