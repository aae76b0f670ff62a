//! Containers of Blosc 1: blocks of compressed streams after a shuffle.

use flate2::read::ZlibDecoder;

use super::{
    bad,
    codecs::{inflate, too_long},
};
use crate::Error;

/// Bits of the header's flags.
const SHUFFLE: u8 = 1;
const STORED: u8 = 2;
const BITSHUFFLE: u8 = 4;
const ONE_STREAM: u8 = 16;
/// Largest element for which a block is cut into a stream for each byte.
const MOST_STREAMS: usize = 16;
/// Fewest elements of a block that is cut.
const FEWEST_ELEMENTS: usize = 128;

/// Decodes a container to at most `most` bytes.
///
/// # Errors
/// If it is damaged; [`Error::Unsupported`] for codecs that are not read.
pub(super) fn decode(bytes: &[u8], most: usize) -> Result<Vec<u8>, Error> {
    let header: &[u8; 16] = bytes.first_chunk().ok_or_else(|| bad("Blosc without a header"))?;
    let number =
        |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize;
    let (flags, element) = (header[2], usize::from(header[3]).max(1));
    let (size, block, packed) = (number(4), number(8), number(12));
    if size > most {
        return Err(too_long(most));
    }
    if header[0] > 2 {
        return Err(bad(format!("Blosc's format {} is not read", header[0])));
    }
    let bytes = bytes.get(..packed).filter(|bytes| bytes.len() >= 16);
    let bytes = bytes.ok_or_else(|| bad("Blosc's length is not that of the chunk"))?;
    if size == 0 {
        return Ok(Vec::new());
    }
    if flags & STORED != 0 {
        let stored = bytes[16..].get(..size).ok_or_else(|| bad("Blosc's bytes are cut off"))?;
        return Ok(stored.to_vec());
    }
    if block == 0 || block > size {
        return Err(bad(format!("Blosc has blocks of {block} bytes")));
    }
    let mut out = vec![0; size];
    for (index, to) in out.chunks_mut(block).enumerate() {
        let start = word(bytes, 16 + 4 * index)?;
        let whole = to.len() == block;
        let cut = flags & ONE_STREAM == 0 && element <= MOST_STREAMS && block / element >= FEWEST_ELEMENTS;
        let streams = if cut && whole { element } else { 1 };
        if !to.len().is_multiple_of(streams) {
            return Err(bad("Blosc's blocks are not whole elements"));
        }
        let length = to.len() / streams;
        let mut at = start;
        let mut plain = vec![0; to.len()];
        for stream in plain.chunks_mut(length) {
            let packed = word(bytes, at)?;
            let from = at.checked_add(4).and_then(|at| bytes.get(at..at.checked_add(packed)?));
            let from = from.ok_or_else(|| bad("a stream of Blosc goes past its end"))?;
            unpack(flags >> 5, from, stream)?;
            at += 4 + packed;
        }
        if flags & SHUFFLE != 0 && element > 1 {
            unshuffle(&plain, element, to);
        } else if flags & BITSHUFFLE != 0 && to.len() >= element {
            unshuffle_bits(&plain, element, to);
        } else {
            to.copy_from_slice(&plain);
        }
    }
    Ok(out)
}

fn word(bytes: &[u8], at: usize) -> Result<usize, Error> {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map(|word| u32::from_le_bytes(*word) as usize).ok_or_else(|| bad("Blosc's offsets go past its end"))
}

/// Decompresses a stream that fills `to`.
fn unpack(codec: u8, from: &[u8], to: &mut [u8]) -> Result<(), Error> {
    if from.len() == to.len() {
        to.copy_from_slice(from); // it did not compress
        return Ok(());
    }
    let found = match codec {
        1 => lz4_flex::block::decompress_into(from, to).map_err(|error| bad(error.to_string()))?,
        3 => {
            let plain = inflate(ZlibDecoder::new(from), to.len())?;
            to[..plain.len()].copy_from_slice(&plain);
            plain.len()
        }
        4 => zstd::bulk::decompress_to_buffer(from, to).map_err(|error| bad(error.to_string()))?,
        0 => return Err(unread("BloscLZ")),
        2 => return Err(unread("Snappy")),
        other => return Err(unread(&format!("codec {other}"))),
    };
    match found == to.len() {
        true => Ok(()),
        false => Err(bad(format!("a stream of Blosc has {found} bytes instead of {}", to.len()))),
    }
}

fn unread(codec: &str) -> Error {
    Error::Unsupported(format!("Blosc with {codec}"))
}

/// Gathers the bytes of each element, which lie one plane after another.
fn unshuffle(from: &[u8], element: usize, to: &mut [u8]) {
    let count = from.len() / element;
    for (at, bytes) in to.chunks_exact_mut(element).enumerate() {
        for (plane, byte) in bytes.iter_mut().enumerate() {
            *byte = from[plane * count + at];
        }
    }
    to[count * element..].copy_from_slice(&from[count * element..]);
}

/// Gathers the bits of each element, which lie one plane after another. Blocks that are not a multiple
/// of eight elements are plain.
fn unshuffle_bits(from: &[u8], element: usize, to: &mut [u8]) {
    let count = from.len() / element;
    if !count.is_multiple_of(8) {
        to.copy_from_slice(from);
        return;
    }
    let plane_bytes = count / 8;
    to[..count * element].fill(0);
    for plane in 0..8 * element {
        let (byte, bit) = (plane / 8, plane % 8);
        for (at, &eight) in from[plane * plane_bytes..][..plane_bytes].iter().enumerate() {
            for lane in 0..8 {
                to[(8 * at + lane) * element + byte] |= (eight >> lane & 1) << bit;
            }
        }
    }
    to[count * element..].copy_from_slice(&from[count * element..]);
}
