//! Frames: checksummed, length-prefixed sections of a file.

use std::io::{Read, Write};

use super::{
    MAGIC, VERSION,
    varint::{Cursor, damaged, put},
};
use crate::{Launch, Problem, check_launch};

/// Largest frame in bytes.
const MAX_FRAME: u32 = 1 << 30;
/// Frame kinds: the first byte of a frame.
pub(super) const HEADER: u8 = b'H';
pub(super) const BLOCKS: u8 = b'B';
pub(super) const END: u8 = b'E';

/// Writes magic and version.
pub(super) fn write_start(out: &mut impl Write) -> Result<u64, Problem> {
    out.write_all(&MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    Ok(12)
}

/// Checks magic and version.
pub(super) fn read_start(input: &mut impl Read) -> Result<(), Problem> {
    let mut start = [0; 12];
    input.read_exact(&mut start).map_err(|error| truncated(error, "the first 12 bytes"))?;
    if start[..8] != MAGIC {
        return Err(damaged("a packed trace begins with BUDDYWRP"));
    }
    match u32::from_le_bytes([start[8], start[9], start[10], start[11]]) {
        VERSION => Ok(()),
        found => Err(Problem::Range { what: "the format's version", found: found.into(), range: "1" }),
    }
}

/// Writes a frame; returns the bytes written.
pub(super) fn write(out: &mut impl Write, frame: &[u8]) -> Result<u64, Problem> {
    let length = u32::try_from(frame.len()).ok().filter(|&length| length <= MAX_FRAME);
    let length = length.ok_or(damaged("a frame of more than 1 GiB"))?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&crc32fast::hash(frame).to_le_bytes())?;
    out.write_all(frame)?;
    Ok(8 + u64::from(length))
}

/// Reads the next frame into `frame`, growing it only as data arrives; returns the frame kind.
pub(super) fn read(input: &mut impl Read, frame: &mut Vec<u8>) -> Result<u8, Problem> {
    let mut head = [0; 8];
    input.read_exact(&mut head).map_err(|error| truncated(error, "the head of a frame"))?;
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

/// Reports an early end of file as [`Problem::Truncated`].
fn truncated(error: std::io::Error, inside: &'static str) -> Problem {
    if error.kind() == std::io::ErrorKind::UnexpectedEof { Problem::Truncated(inside) } else { error.into() }
}

/// Encodes the header frame.
pub(super) fn header(launch: &Launch) -> Vec<u8> {
    let mut frame = vec![HEADER];
    put(&mut frame, launch.name.len() as u64);
    frame.extend(launch.name.as_bytes());
    let sizes = launch.grid.iter().chain(&launch.block).chain([&launch.shared_bytes, &launch.registers]);
    sizes.for_each(|&size| put(&mut frame, size.into()));
    frame
}

/// Decodes the header frame.
pub(super) fn read_header(bytes: &[u8]) -> Result<Launch, Problem> {
    let mut cursor = Cursor::all(bytes);
    if cursor.byte(bytes)? != HEADER {
        return Err(damaged("the first frame is no header"));
    }
    let name = cursor.section(bytes)?;
    let name =
        std::str::from_utf8(name.remaining(bytes)).map_err(|_| damaged("the kernel's name is no text"))?;
    let mut size = || cursor.below(bytes, 1 << 32, "a size of more than 32 bits").map(|size| size as u32);
    let launch = Launch {
        name: name.to_owned(),
        grid: [size()?, size()?, size()?],
        block: [size()?, size()?, size()?],
        shared_bytes: size()?,
        registers: size()?,
    };
    check_launch(&launch)?;
    if cursor.is_done() { Ok(launch) } else { Err(damaged("the header goes on behind its end")) }
}
