//! Frames: pieces of a file with their length, a checksum and what they are.

use std::io::{Read, Write};

use super::{
    MAGIC, VERSION,
    varint::{Place, damaged, put},
};
use crate::{Launch, Problem, check_launch};

/// The most bytes of a frame.
const MAX_FRAME: u32 = 1 << 30;
/// What a frame is: its first byte.
pub(super) const HEADER: u8 = b'H';
pub(super) const BLOCKS: u8 = b'B';
pub(super) const END: u8 = b'E';

/// Begins a file.
pub(super) fn write_start(out: &mut impl Write) -> Result<u64, Problem> {
    out.write_all(&MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    Ok(12)
}

/// Checks the beginning of a file.
pub(super) fn read_start(input: &mut impl Read) -> Result<(), Problem> {
    let mut start = [0; 12];
    input.read_exact(&mut start).map_err(|error| short(error, "the first 12 bytes"))?;
    if start[..8] != MAGIC {
        return Err(damaged("a packed trace begins with BUDDYWRP"));
    }
    match u32::from_le_bytes([start[8], start[9], start[10], start[11]]) {
        VERSION => Ok(()),
        found => Err(Problem::Range { what: "the format's version", found: found.into(), range: "1" }),
    }
}

/// Writes a frame; gives the bytes that it takes.
pub(super) fn write(out: &mut impl Write, frame: &[u8]) -> Result<u64, Problem> {
    let length = u32::try_from(frame.len()).ok().filter(|&length| length <= MAX_FRAME);
    let length = length.ok_or(damaged("a frame of more than 1 GiB"))?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&crc32fast::hash(frame).to_le_bytes())?;
    out.write_all(frame)?;
    Ok(8 + u64::from(length))
}

/// Reads the next frame into `frame`, which grows only as far as there are bytes.
pub(super) fn read(input: &mut impl Read, frame: &mut Vec<u8>) -> Result<u8, Problem> {
    let mut head = [0; 8];
    input.read_exact(&mut head).map_err(|error| short(error, "the head of a frame"))?;
    let [a, b, c, d, e, f, g, h] = head;
    let (length, sum) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    if length > MAX_FRAME {
        return Err(damaged("a frame of more than 1 GiB"));
    }
    frame.clear();
    let read = input.take(length.into()).read_to_end(frame)?;
    if read < length as usize {
        return Err(Problem::Truncated("a frame"));
    }
    if crc32fast::hash(frame) != sum {
        return Err(damaged("the checksum of a frame is wrong"));
    }
    frame.first().copied().ok_or(damaged("an empty frame"))
}

/// That the end comes too early is worth its own words.
fn short(error: std::io::Error, inside: &'static str) -> Problem {
    if error.kind() == std::io::ErrorKind::UnexpectedEof { Problem::Truncated(inside) } else { error.into() }
}

/// The frame of a header.
pub(super) fn header(launch: &Launch) -> Vec<u8> {
    let mut frame = vec![HEADER];
    put(&mut frame, launch.name.len() as u64);
    frame.extend(launch.name.as_bytes());
    let sizes = launch.grid.iter().chain(&launch.block).chain([&launch.shared_bytes, &launch.registers]);
    sizes.for_each(|&size| put(&mut frame, size.into()));
    frame
}

/// Reads the frame of a header.
pub(super) fn read_header(bytes: &[u8]) -> Result<Launch, Problem> {
    let mut place = Place::all(bytes);
    if place.byte(bytes)? != HEADER {
        return Err(damaged("the first frame is no header"));
    }
    let name = place.part(bytes)?;
    let name = std::str::from_utf8(name.of(bytes)).map_err(|_| damaged("the kernel's name is no text"))?;
    let mut size = || place.under(bytes, 1 << 32, "a size of more than 32 bits").map(|size| size as u32);
    let launch = Launch {
        name: name.to_owned(),
        grid: [size()?, size()?, size()?],
        block: [size()?, size()?, size()?],
        shared_bytes: size()?,
        registers: size()?,
    };
    check_launch(&launch)?;
    if place.is_done() { Ok(launch) } else { Err(damaged("the header goes on behind its end")) }
}
