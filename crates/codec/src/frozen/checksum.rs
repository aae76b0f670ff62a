//! The checksum of a sealed frozen buffer (`docs/reference/format.md`): XXH3-128 of its header and of
//! the checksums of its chunks, so that threads and pieces can compute it in any order.

use buddy_core::{ENTRIES_PER_PAGE, Target};
use rayon::prelude::*;
use twox_hash::XxHash3_128;

use super::{
    Frozen, FrozenHeader, HEADER_BYTES,
    header::{CHECKSUM, SEALED, VERSION_FIELD},
};
use crate::Error;

/// Bytes of a checksum.
const BYTES: usize = size_of::<u128>();
/// Chunks that a thread hashes at a time.
const BATCH: usize = 64;

/// Returns the bytes of a chunk: the slots of a page.
fn chunk_bytes(target: Target) -> usize {
    ENTRIES_PER_PAGE * target.device_bytes()
}

/// Returns the checksums of the chunks of some bytes, in order.
pub(super) fn of_chunks(target: Target, bytes: &[u8]) -> Vec<u8> {
    let chunk = chunk_bytes(target);
    let hash =
        |part: &[u8]| part.chunks(chunk).flat_map(|one| XxHash3_128::oneshot(one).to_le_bytes()).collect();
    if bytes.len() <= BATCH * chunk {
        return hash(bytes);
    }
    let parts: Vec<Vec<u8>> = bytes.par_chunks(BATCH * chunk).map(hash).collect();
    parts.concat()
}

impl FrozenHeader {
    /// Encodes the header of a sealed buffer from the checksums of its chunks:
    /// [`FrozenPiece::checksums`](super::FrozenPiece::checksums) of all pieces, then
    /// [`tail_checksums`](Self::tail_checksums).
    ///
    /// # Errors
    /// As for [`encode`](Self::encode).
    pub fn encode_sealed(&self, chunks: &[u8]) -> Result<[u8; HEADER_BYTES], Error> {
        let mut header = self.encode()?;
        header[VERSION_FIELD].copy_from_slice(&SEALED.to_le_bytes());
        let checksum = XxHash3_128::oneshot(&[&header[..CHECKSUM.start], chunks].concat());
        header[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        Ok(header)
    }

    /// Returns the checksums of the chunks behind the slots. `tail` is everything from the nibbles
    /// to the end of the buffer.
    pub fn tail_checksums(&self, tail: &[u8]) -> Vec<u8> {
        of_chunks(self.target, tail)
    }
}

/// Seals a frozen buffer: writes its version and checksum.
///
/// # Errors
/// As for [`Frozen::open`].
pub fn seal(frozen: &mut [u8]) -> Result<(), Error> {
    let header = Frozen::open(frozen)?.header.clone();
    let chunks = of_chunks(header.target, &frozen[HEADER_BYTES..]);
    frozen[..HEADER_BYTES].copy_from_slice(&header.encode_sealed(&chunks)?);
    Ok(())
}

impl Frozen<'_> {
    /// Returns the stored checksum; `None` of a buffer that is not sealed.
    pub fn checksum(&self) -> Option<u128> {
        let version = &self.bytes[VERSION_FIELD];
        let stored: [u8; BYTES] = *self.bytes[CHECKSUM].first_chunk()?;
        (*version == SEALED.to_le_bytes()).then(|| u128::from_le_bytes(stored))
    }

    /// Compares the whole buffer with its checksum, on all threads. Returns whether it has one.
    ///
    /// # Errors
    /// [`Error::Damaged`] if they differ.
    pub fn check(&self) -> Result<bool, Error> {
        if self.checksum().is_none() {
            return Ok(false);
        }
        let chunks = of_chunks(self.header.target, &self.bytes[HEADER_BYTES..]);
        let expected = self.header.encode_sealed(&chunks)?;
        if expected == self.bytes[..HEADER_BYTES] { Ok(true) } else { Err(Error::Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use buddy_core::Target;

    use super::*;
    use crate::{Bf16, Codec, Error, FrozenPiece, freeze, testing};

    /// A small sealed matrix of 20 rows with overflow.
    fn sealed() -> Vec<u8> {
        let codec = Codec::Bf16(Bf16::new(112).unwrap());
        let data: Vec<u8> = testing::samples().into_iter().cycle().take(40).flatten().collect();
        let mut frozen = freeze(&codec, Target::X4Over3, 2, &data).unwrap();
        assert!(!FrozenHeader::parse(&frozen).unwrap().parts().overflow.is_empty());
        seal(&mut frozen).unwrap();
        frozen
    }

    #[test]
    fn every_flipped_bit_of_a_sealed_buffer_is_refused() {
        let frozen = sealed();
        assert!(Frozen::open(&frozen).unwrap().check().unwrap());
        for bit in 0..8 * frozen.len() {
            let mut flipped = frozen.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let accepted = Frozen::open(&flipped).and_then(|open| open.check());
            assert!(accepted.is_err(), "bit {bit} gives {accepted:?}");
        }
    }

    #[test]
    fn a_sealed_buffer_reads_as_before_and_an_unsealed_one_says_so() {
        let mut frozen = sealed();
        let open = Frozen::open(&frozen).unwrap();
        let (header, data) = (open.header().clone(), open.read().unwrap());
        let plain = freeze(&header.codec, header.target, header.row, &data).unwrap();
        let unsealed = Frozen::open(&plain).unwrap();
        assert_eq!((unsealed.header(), unsealed.checksum(), unsealed.check()), (&header, None, Ok(false)));
        let last = frozen.len() - 200;
        frozen[last] ^= 1;
        assert_eq!(Frozen::open(&frozen).unwrap().check(), Err(Error::Damaged));
    }

    #[test]
    fn pieces_and_tail_give_the_checksum_of_the_whole() {
        let frozen = sealed();
        let open = Frozen::open(&frozen).unwrap();
        let (header, data) = (open.header(), open.read().unwrap());
        let step = header.step() as usize * 128;
        let mut chunks = Vec::new();
        for part in data.chunks(step) {
            let piece = FrozenPiece::pack(&header.codec, header.target, header.row, part).unwrap();
            chunks.extend(piece.checksums(header.target));
        }
        chunks.extend(header.tail_checksums(&frozen[header.parts().nibbles.start as usize..]));
        assert_eq!(header.encode_sealed(&chunks).unwrap(), frozen[..HEADER_BYTES]);
    }

    /// The worked example of the format page.
    #[test]
    fn the_checksum_is_xxh3_of_header_and_chunks() {
        let frozen = sealed();
        let chunk = 64 * 96;
        let mut text = frozen[..112].to_vec();
        frozen[128..].chunks(chunk).for_each(|one| text.extend(XxHash3_128::oneshot(one).to_le_bytes()));
        assert_eq!(frozen[112..128], XxHash3_128::oneshot(&text).to_le_bytes());
        // The reference vector of XXH3-128 for no bytes.
        assert_eq!(XxHash3_128::oneshot(b""), 0x99aa06d3014798d86001c324468d497f);
    }
}
