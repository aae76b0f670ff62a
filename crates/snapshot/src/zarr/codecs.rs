//! Decoders of a chunk's bytes.

use std::io::Read;

use flate2::read::{MultiGzDecoder, ZlibDecoder};

use super::{bad, blosc};
use crate::Error;

/// A step of packing the bytes of a chunk, to be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Gzip,
    Zlib,
    Zstd,
    /// LZ4 as numcodecs writes it: the length, then a block.
    Lz4,
    Blosc,
    /// Four bytes of a checksum at the end.
    Crc32c,
}

impl Codec {
    /// Returns the codec of a name in the metadata.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "gzip" => Self::Gzip,
            "zlib" | "numcodecs.zlib" => Self::Zlib,
            "zstd" | "numcodecs.zstd" => Self::Zstd,
            "lz4" | "numcodecs.lz4" => Self::Lz4,
            "blosc" | "numcodecs.blosc" => Self::Blosc,
            "crc32c" => Self::Crc32c,
            _ => return None,
        })
    }

    /// Decodes bytes to at most `most` bytes.
    pub(super) fn decode(self, bytes: &[u8], most: usize) -> Result<Vec<u8>, Error> {
        match self {
            Self::Gzip => inflate(MultiGzDecoder::new(bytes), most),
            Self::Zlib => inflate(ZlibDecoder::new(bytes), most),
            Self::Zstd => inflate(zstd::Decoder::new(bytes)?, most),
            Self::Lz4 => {
                let (size, block) = bytes.split_first_chunk().ok_or_else(|| bad("LZ4 without a length"))?;
                let size = u32::from_le_bytes(*size) as usize;
                if size > most {
                    return Err(too_long(most));
                }
                lz4_flex::block::decompress(block, size).map_err(|error| bad(error.to_string()))
            }
            Self::Blosc => blosc::decode(bytes, most),
            Self::Crc32c => {
                let (bytes, stated) = bytes.split_last_chunk().ok_or_else(|| bad("it has no checksum"))?;
                let (stated, found) = (u32::from_le_bytes(*stated), crc32c(bytes));
                if stated == found { Ok(bytes.to_vec()) } else { Err(Error::Damaged { stated, found }) }
            }
        }
    }
}

/// Reads a decoder to its end.
pub(super) fn inflate(from: impl Read, most: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut bytes).map_err(|error| bad(error.to_string()))?;
    if bytes.len() > most { Err(too_long(most)) } else { Ok(bytes) }
}

pub(super) fn too_long(most: usize) -> Error {
    bad(format!("it decodes to more than {most} bytes"))
}

/// The checksum of iSCSI (Castagnoli's polynomial, reflected).
fn crc32c(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|byte| {
        (0..8).fold(byte as u32, |sum, _| sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 })
    });
    !bytes.iter().fold(!0, |sum: u32, &byte| sum >> 8 ^ table[(sum as u8 ^ byte) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa, "RFC 3720, B.4");
        let bytes = [&b"123456789"[..], &0xe306_9283_u32.to_le_bytes()].concat();
        assert_eq!(Codec::Crc32c.decode(&bytes, 100).unwrap(), b"123456789");
        assert!(Codec::Crc32c.decode(&bytes[1..], 100).unwrap_err().to_string().contains("damaged"));
        assert!(Codec::Crc32c.decode(b"abc", 100).is_err());
    }

    #[test]
    fn longer_results_than_a_chunk_are_errors() {
        let bytes = zstd::bulk::compress(&[0; 1000], 1).unwrap();
        assert_eq!(Codec::Zstd.decode(&bytes, 1000).unwrap(), [0; 1000]);
        assert!(Codec::Zstd.decode(&bytes, 999).unwrap_err().to_string().contains("more than 999 bytes"));
        let lz4 = [&1000u32.to_le_bytes()[..], &lz4_flex::block::compress(&[0; 1000])].concat();
        assert_eq!(Codec::Lz4.decode(&lz4, 1000).unwrap(), [0; 1000]);
        assert!(Codec::Lz4.decode(&lz4, 999).is_err() && Codec::Lz4.decode(&lz4[..3], 999).is_err());
    }
}
