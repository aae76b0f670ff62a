//! Splitting byte ranges at lines and entries.

use buddy_core::ENTRY_BYTES;

use crate::line::{LINE_DATA_BYTES, LINE_ENTRIES};

const ENTRY: u64 = ENTRY_BYTES as u64;

/// Returns the offset of `at` within its entry.
pub(crate) fn within(at: u64) -> usize {
    at as usize % ENTRY_BYTES
}

/// Returns the index within its line of the entry at `at`.
pub(crate) fn entry_of(at: u64) -> usize {
    (at / ENTRY % LINE_ENTRIES) as usize
}

/// Returns how many of `len` bytes at `address` belong to an entry that begins before `address`.
pub(crate) fn to_next_entry(address: u64, len: usize) -> usize {
    (within(address).next_multiple_of(ENTRY_BYTES) - within(address)).min(len)
}

/// Returns how many entries `len` bytes from `address` touch.
pub(crate) fn entries(address: u64, len: usize) -> u64 {
    (address + len as u64).div_ceil(ENTRY) - address / ENTRY
}

/// Splits bytes at `address` where lines end; yields each piece with its address.
pub(crate) fn cut_at_lines(mut address: u64, mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let len = (LINE_DATA_BYTES - address % LINE_DATA_BYTES).min(bytes.len() as u64);
        let piece = bytes.split_off(..len as usize)?;
        address += len;
        (len > 0).then_some((address - len, piece))
    })
}

/// Mutable version of [`cut_at_lines`].
pub(crate) fn cut_at_lines_mut(
    mut address: u64,
    mut bytes: &mut [u8],
) -> impl Iterator<Item = (u64, &mut [u8])> {
    std::iter::from_fn(move || {
        let len = (LINE_DATA_BYTES - address % LINE_DATA_BYTES).min(bytes.len() as u64);
        let piece = bytes.split_off_mut(..len as usize)?;
        address += len;
        (len > 0).then_some((address - len, piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_at_lines_and_cover_the_range() {
        let bytes: Vec<u8> = (0..20_000).map(|i| i as u8).collect();
        let pieces: Vec<_> = cut_at_lines(8000, &bytes).collect();
        let ends: Vec<_> = pieces.iter().map(|(at, piece)| (*at, piece.len())).collect();
        assert_eq!(ends, [(8000, 192), (8192, 8192), (16384, 8192), (24576, 3424)]);
        assert_eq!(pieces.iter().flat_map(|(_, piece)| piece.iter().copied()).collect::<Vec<_>>(), bytes);
        assert_eq!(cut_at_lines(50, &[]).count(), 0);
        let mut copy = bytes.clone();
        let lengths: Vec<_> =
            cut_at_lines_mut(8000, &mut copy).map(|(at, piece)| (at, piece.len())).collect();
        assert_eq!(lengths, ends);
    }

    #[test]
    fn partially_touched_entries_are_counted() {
        assert_eq!([entries(0, 128), entries(127, 2), entries(64, 64), entries(1, 256)], [1, 2, 1, 3]);
    }
}
