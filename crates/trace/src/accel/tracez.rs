//! The container of Accel-Sim 2.0, `.tracez`: the tracer's text in zstd frames, warp by warp.
//!
//! A file is the kernel's header lines and a zero byte; the size of a zstd dictionary and the
//! instructions of a frame in four bytes each; the dictionary; warps; the index; the offset of the
//! index in eight bytes. A warp is its number of instructions and of frames, then each frame behind
//! its size. Numbers are little-endian. [`Text`] gives the text that a `.traceg` file would have, so
//! that one parser reads both; [`Writer`] makes such a file.

use std::{
    collections::VecDeque,
    io::{self, Read, Seek, SeekFrom, Write},
};

use zstd::{bulk, zstd_safe::get_frame_content_size};

use crate::MAX_BLOCK_THREADS;

/// Largest header, dictionary and frame, plain or compressed.
const MAX_HEADER_BYTES: u64 = 1 << 16;
const MAX_DICTIONARY_BYTES: u64 = 16 << 20;
const MAX_FRAME_BYTES: u64 = 64 << 20;
/// Largest number of warps of a block.
const MAX_WARPS: u64 = MAX_BLOCK_THREADS / 32;
/// Instructions of a written frame.
const FRAME_INSTRUCTIONS: usize = 1024;
/// zstd's level of written frames.
const LEVEL: i32 = 3;
/// Bytes of the index before the warps of a block: eleven numbers.
const BLOCK_WORDS: usize = 11;

/// The text of a `.tracez` file.
pub(super) struct Text<R> {
    file: R,
    decompressor: bulk::Decompressor<'static>,
    /// Text that was not read yet: `text[next..]`.
    text: Vec<u8>,
    next: usize,
    /// Position in the index, and its end. Warps lie before the index.
    index: u64,
    index_start: u64,
    index_end: u64,
    blocks_left: u32,
    is_in_block: bool,
    /// Warps of the block that were not read yet.
    warps: VecDeque<Warp>,
    /// Position and number of the frames of the current warp.
    frame: u64,
    frames_left: u32,
}

/// A warp in the index.
struct Warp {
    number: u32,
    instructions: u32,
    frames: u32,
    offset: u64,
}

impl<R: Read + Seek> Text<R> {
    /// Reads the header, the dictionary and the position of the index.
    ///
    /// # Errors
    /// An I/O error, or `InvalidData` if a part is missing or too large.
    pub(super) fn new(mut file: R) -> io::Result<Self> {
        let end = file.seek(SeekFrom::End(0))?;
        let index_end = end.checked_sub(8).ok_or_else(|| damaged("it is shorter than 8 bytes"))?;
        file.seek(SeekFrom::Start(index_end))?;
        let index_start = u64::from_le_bytes(bytes(&mut file)?);
        file.rewind()?;
        let mut text = header(&mut file)?;
        text.push(b'\n');
        let dictionary_bytes = u64::from(number(&mut file)?);
        number(&mut file)?;
        if dictionary_bytes > MAX_DICTIONARY_BYTES {
            return Err(damaged("its dictionary has more than 16 MiB"));
        }
        let mut dictionary = Vec::new();
        (&mut file).take(dictionary_bytes).read_to_end(&mut dictionary)?;
        let start = file.stream_position()?;
        if dictionary.len() as u64 != dictionary_bytes || index_start < start || index_start > index_end {
            return Err(damaged("its index does not lie between its dictionary and its end"));
        }
        file.seek(SeekFrom::Start(index_start))?;
        let blocks_left = number(&mut file)?;
        Ok(Self {
            decompressor: bulk::Decompressor::with_dictionary(&dictionary)?,
            file,
            text,
            next: 0,
            index: index_start + 4,
            index_start,
            index_end,
            blocks_left,
            is_in_block: false,
            warps: VecDeque::new(),
            frame: 0,
            frames_left: 0,
        })
    }

    /// Replaces the text by the next part; returns `false` at the end.
    fn advance(&mut self) -> io::Result<bool> {
        self.text.clear();
        self.next = 0;
        if self.frames_left > 0 {
            self.read_frame()?;
        } else if let Some(warp) = self.warps.pop_front() {
            self.begin_warp(&warp)?;
        } else if std::mem::take(&mut self.is_in_block) {
            self.text.extend(b"#END_TB\n");
        } else if self.blocks_left > 0 {
            self.begin_block()?;
        } else if self.index != self.index_end {
            return Err(damaged("its index has more than its blocks"));
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Reads a block of the index and starts its text.
    fn begin_block(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.index))?;
        let mut words = [0; BLOCK_WORDS];
        for word in &mut words {
            *word = self.index_number()?;
        }
        let [x, y, z, cluster_x, cluster_y, cluster_z, cta_x, cta_y, cta_z, rank, warps] = words;
        if u64::from(warps) > MAX_WARPS {
            return Err(damaged("a block has more than 32 warps"));
        }
        for number in 0..warps {
            let (instructions, frames) = (self.index_number()?, self.index_number()?);
            let offset = u64::from(self.index_number()?) | u64::from(self.index_number()?) << 32;
            let (mut counted, counts) = (0, 4 * u64::from(frames));
            if counts > self.index_end - self.index {
                return Err(damaged("a warp has more frames than its index"));
            }
            for _ in 0..frames {
                counted += u64::from(self.index_number()?);
            }
            if counted != u64::from(instructions) {
                return Err(damaged("the frames of a warp do not add up to its instructions"));
            }
            self.warps.push_back(Warp { number, instructions, frames, offset });
        }
        self.blocks_left -= 1;
        self.is_in_block = true;
        write!(
            self.text,
            "#BEGIN_TB\nthread block = {x},{y},{z}\ncluster id = {cluster_x},{cluster_y},{cluster_z}\n\
             cluster cta = {cta_x},{cta_y},{cta_z}\ncluster rank = {rank}\n"
        )
    }

    /// Starts the text of a warp.
    fn begin_warp(&mut self, warp: &Warp) -> io::Result<()> {
        self.seek_payload(warp.offset, 8)?;
        if (number(&mut self.file)?, number(&mut self.file)?) != (warp.instructions, warp.frames) {
            return Err(damaged("a warp and its index differ"));
        }
        (self.frame, self.frames_left) = (warp.offset + 8, warp.frames);
        write!(self.text, "warp = {}\ninsts = {}\n", warp.number, warp.instructions)
    }

    fn read_frame(&mut self) -> io::Result<()> {
        self.seek_payload(self.frame, 4)?;
        let size = u64::from(number(&mut self.file)?);
        if size > MAX_FRAME_BYTES || size > self.index_start - self.frame - 4 {
            return Err(damaged("a frame has more than 64 MiB or ends behind the index"));
        }
        let mut frame = vec![0; size as usize];
        self.file.read_exact(&mut frame)?;
        let plain = get_frame_content_size(&frame).ok().flatten();
        let plain = plain.ok_or_else(|| damaged("a frame does not state its size"))?;
        if plain > MAX_FRAME_BYTES {
            return Err(damaged("a frame has more than 64 MiB of text"));
        }
        self.text.reserve(plain as usize + 1);
        self.decompressor.decompress_to_buffer(&frame, &mut self.text)?;
        if self.text.last() != Some(&b'\n') {
            self.text.push(b'\n');
        }
        self.frame += 4 + size;
        self.frames_left -= 1;
        Ok(())
    }

    /// Moves to a position of the warps that has this many bytes behind it.
    fn seek_payload(&mut self, at: u64, bytes: u64) -> io::Result<()> {
        if at.checked_add(bytes).is_none_or(|end| end > self.index_start) {
            return Err(damaged("a warp lies behind the index"));
        }
        self.file.seek(SeekFrom::Start(at)).map(|_| ())
    }

    /// Reads the next number of the index.
    fn index_number(&mut self) -> io::Result<u32> {
        self.index += 4;
        if self.index > self.index_end {
            return Err(damaged("its index is cut off"));
        }
        number(&mut self.file)
    }
}

impl<R: Read + Seek> Read for Text<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.next == self.text.len() {
            if !self.advance()? {
                return Ok(0);
            }
        }
        let count = buffer.len().min(self.text.len() - self.next);
        buffer[..count].copy_from_slice(&self.text[self.next..self.next + count]);
        self.next += count;
        Ok(count)
    }
}

/// Returns the header's text, without the zero byte that ends it, and stops behind that byte.
fn header(file: &mut (impl Read + Seek)) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.by_ref().take(MAX_HEADER_BYTES).read_to_end(&mut text)?;
    let end =
        text.iter().position(|&byte| byte == 0).ok_or_else(|| damaged("its header has no end in 64 KiB"))?;
    text.truncate(end);
    file.seek(SeekFrom::Start(end as u64 + 1))?;
    Ok(text)
}

fn number(file: &mut impl Read) -> io::Result<u32> {
    Ok(u32::from_le_bytes(bytes(file)?))
}

fn bytes<const N: usize>(file: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a whole .tracez file: {why}"))
}

/// A `.tracez` file in progress: the header, then every warp of every block, then [`finish`].
///
/// [`finish`]: Self::finish
pub(super) struct Writer<W> {
    out: W,
    /// Bytes written so far.
    written: u64,
    compressor: bulk::Compressor<'static>,
    index: Vec<u8>,
    blocks: u32,
}

impl<W: Write> Writer<W> {
    /// Writes the header lines, without a dictionary.
    pub(super) fn new(out: W, header: &[u8]) -> io::Result<Self> {
        let compressor = bulk::Compressor::new(LEVEL)?;
        let mut writer = Self { out, written: 0, compressor, index: Vec::new(), blocks: 0 };
        writer.put(header)?;
        writer.put(&[0; 5])?;
        writer.put(&(FRAME_INSTRUCTIONS as u32).to_le_bytes())?;
        Ok(writer)
    }

    /// Starts a block that is a cluster of its own.
    pub(super) fn begin_block(&mut self, [x, y, z]: [u32; 3], warps: u32) {
        self.blocks += 1;
        for word in [x, y, z, x, y, z, 0, 0, 0, 0, warps] {
            self.index.extend(word.to_le_bytes());
        }
    }

    /// Writes a warp's instruction lines, each with its newline.
    pub(super) fn warp(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut frames: Vec<(u32, &[u8])> = Vec::new();
        let (mut rest, mut ends) = (lines, memchr::memchr_iter(b'\n', lines));
        while !rest.is_empty() {
            let last = ends.by_ref().take(FRAME_INSTRUCTIONS).enumerate().last();
            let (count, end) = last.map_or((0, lines.len()), |(index, end)| (index + 1, end + 1));
            let (frame, behind) = rest.split_at(end - (lines.len() - rest.len()));
            frames.push((count as u32, frame));
            rest = behind;
        }
        let instructions: u32 = frames.iter().map(|(count, _)| count).sum();
        let offset = self.written;
        for part in [instructions.to_le_bytes(), (frames.len() as u32).to_le_bytes()] {
            self.index.extend(part);
            self.put(&part)?;
        }
        self.index.extend(offset.to_le_bytes());
        for (count, frame) in frames {
            self.index.extend(count.to_le_bytes());
            let packed = self.compressor.compress(frame)?;
            self.put(&(packed.len() as u32).to_le_bytes())?;
            self.put(&packed)?;
        }
        Ok(())
    }

    /// Writes the index and its offset.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let start = self.written;
        self.out.write_all(&self.blocks.to_le_bytes())?;
        self.out.write_all(&self.index)?;
        self.out.write_all(&start.to_le_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}
