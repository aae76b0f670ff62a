//! Bit streams, zero-padded to a byte. The paper's codecs are MSB first, our own formats LSB first.

use buddy_core::Layout;

use crate::Error;

/// Capacity for the longest stream of any codec: 32 words of FVC, each an 8-bit escape and 32 bits.
pub const STREAM_BYTES: usize = 160;

/// Zero bytes after a stream, so that every field is a single access.
const SLACK: usize = 16;

/// One encoded entry: its bits, and the layout if the codec has several.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Longer than any stream, so that a write is a single access.
    bytes: [u8; STREAM_BYTES + SLACK],
    bits: usize,
    layout: Layout,
}

impl Default for Stream {
    fn default() -> Self {
        Self { bytes: [0; STREAM_BYTES + SLACK], bits: 0, layout: Layout::A }
    }
}

impl Stream {
    /// Returns the number of bits, up to 8 times [`STREAM_BYTES`].
    pub fn bits(&self) -> u32 {
        self.bits as u32
    }

    /// Returns the bytes that hold the bits; unused bits of the last byte are zero.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.bits.div_ceil(8)]
    }

    /// Copies the stream, followed by zeros.
    ///
    /// # Panics
    /// If `bytes` is longer than [`STREAM_BYTES`] or shorter than the stream.
    #[inline(always)]
    pub(crate) fn copy_to(&self, bytes: &mut [u8]) {
        assert!(bytes.len() * 8 >= self.bits);
        bytes.copy_from_slice(&self.bytes[..bytes.len()]);
    }

    /// Returns the layout chosen by the codec.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Resets to a stream of `bits` zeros and returns its bytes.
    #[inline(always)]
    pub(crate) fn fill(&mut self, layout: Layout, bits: u32) -> &mut [u8] {
        self.clear();
        (self.bits, self.layout) = (bits as usize, layout);
        &mut self.bytes[..bits.div_ceil(8) as usize]
    }

    /// Resets to an empty stream.
    #[inline(always)]
    pub fn clear(&mut self) {
        let used = self.bits.div_ceil(8);
        self.bytes[..used].fill(0);
        (self.bits, self.layout) = (0, Layout::A);
    }
}

/// Destination of bits: a stream or a counter. An encoder generic over its sink has a size that
/// equals its length.
pub(crate) trait BitSink {
    /// Appends the low `count` bits of `value`, most significant first; `count` is at most 57.
    fn put(&mut self, value: u64, count: u32);
}

impl BitSink for Stream {
    #[inline(always)]
    fn put(&mut self, value: u64, count: u32) {
        debug_assert!(count <= 57 && value >> count == 0, "{value:#x} has more than {count} bits");
        let (byte, used) = (self.bits / 8, (self.bits % 8) as u32);
        let window = self.bytes[byte..].first_chunk_mut().expect("a stream is within its bound");
        *window = (u64::from_be_bytes(*window) | (value << (64 - count)) >> used).to_be_bytes();
        self.bits += count as usize;
    }
}

/// MSB-first writer that buffers bits in a register and stores 32 at a time. A put takes up to 33
/// bits.
pub(crate) struct BitWriter<'a> {
    stream: &'a mut Stream,
    /// Buffered bits, from the top.
    pending: u64,
    count: u32,
    byte: usize,
}

impl<'a> BitWriter<'a> {
    /// Clears the stream and starts writing.
    #[inline(always)]
    pub(crate) fn new(stream: &'a mut Stream) -> Self {
        stream.clear();
        Self { stream, pending: 0, count: 0, byte: 0 }
    }

    /// Stores the buffered bits and completes the stream.
    #[inline(always)]
    pub(crate) fn finish(self) {
        let rest = self.stream.bytes[self.byte..].first_chunk_mut().expect("a stream is within its bound");
        *rest = ((self.pending >> 32) as u32).to_be_bytes();
        self.stream.bits = 8 * self.byte + self.count as usize;
    }
}

impl BitSink for BitWriter<'_> {
    #[inline(always)]
    fn put(&mut self, value: u64, count: u32) {
        debug_assert!(count <= 33 && value >> count == 0, "{value:#x} has more than {count} bits");
        self.pending |= value << (64 - self.count - count);
        self.count += count;
        if self.count >= 32 {
            let word =
                self.stream.bytes[self.byte..].first_chunk_mut().expect("a stream is within its bound");
            *word = ((self.pending >> 32) as u32).to_be_bytes();
            self.pending <<= 32;
            self.count -= 32;
            self.byte += 4;
        }
    }
}

/// LSB-first writer, the order of our own formats: a field is a little-endian load, a shift and a
/// mask. Buffers bits in a register and stores 32 at a time.
pub(crate) struct LsbWriter<'a> {
    stream: &'a mut Stream,
    /// Buffered bits, from the bottom; fewer than 32 between puts.
    pending: u64,
    count: u32,
    byte: usize,
}

impl<'a> LsbWriter<'a> {
    /// Clears the stream and starts writing.
    #[inline(always)]
    pub(crate) fn new(stream: &'a mut Stream) -> Self {
        stream.clear();
        Self { stream, pending: 0, count: 0, byte: 0 }
    }

    /// Appends the low `count` bits of `value`, at most 64.
    #[inline(always)]
    pub(crate) fn put(&mut self, value: u64, count: u32) {
        debug_assert!(count == 64 || value >> count == 0, "{value:#x} has more than {count} bits");
        if count > 32 {
            self.put_short(value & u64::from(u32::MAX), 32);
            self.put_short(value >> 32, count - 32);
        } else {
            self.put_short(value, count);
        }
    }

    /// Appends fields of equal width, as many at a time as fit in 64 bits.
    #[inline(always)]
    pub(crate) fn put_all(&mut self, fields: &[u64], width: u32) {
        match width {
            0 => {}
            1..=8 => self.put_groups::<8>(fields, width),
            9..=16 => self.put_groups::<4>(fields, width),
            17..=32 => self.put_groups::<2>(fields, width),
            _ => fields.iter().for_each(|&field| self.put(field, width)),
        }
    }

    #[inline(always)]
    fn put_groups<const TOGETHER: usize>(&mut self, fields: &[u64], width: u32) {
        let (groups, rest) = fields.as_chunks::<TOGETHER>();
        for group in groups {
            let together = group.iter().rev().fold(0, |above, field| above << width | field);
            self.put(together, TOGETHER as u32 * width);
        }
        rest.iter().for_each(|&field| self.put_short(field, width));
    }

    /// Appends at most 32 bits.
    #[inline(always)]
    pub(crate) fn put_short(&mut self, value: u64, count: u32) {
        self.pending |= value << self.count;
        self.count += count;
        if self.count >= 32 {
            self.flush();
            self.pending >>= 32;
            self.count -= 32;
            self.byte += 4;
        }
    }

    /// Stores the buffered bits and completes the stream.
    #[inline(always)]
    pub(crate) fn finish(mut self) {
        self.flush();
        self.stream.bits = 8 * self.byte + self.count as usize;
    }

    #[inline(always)]
    fn flush(&mut self) {
        let word = self.stream.bytes[self.byte..].first_chunk_mut().expect("a stream is within its bound");
        *word = (self.pending as u32).to_le_bytes();
    }
}

/// A sink that only counts: the size of a stream without writing it.
#[derive(Default)]
pub(crate) struct BitCount(pub(crate) u32);

impl BitSink for BitCount {
    #[inline]
    fn put(&mut self, _: u64, count: u32) {
        self.0 += count;
    }
}

/// MSB-first reader. It copies the stream and appends zeros, so that every read is one 64-bit
/// access. Bytes after the stream, such as sector padding, are ignored.
pub(crate) struct BitReader {
    bytes: [u8; STREAM_BYTES + SLACK],
    bits: usize,
    at: usize,
}

impl BitReader {
    #[inline(always)]
    pub(crate) fn new(stream: &[u8]) -> Self {
        let stream = &stream[..stream.len().min(STREAM_BYTES)];
        let mut bytes = [0; STREAM_BYTES + SLACK];
        bytes[..stream.len()].copy_from_slice(stream);
        Self { bytes, bits: stream.len() * 8, at: 0 }
    }

    /// Returns the position of the next bit.
    #[inline(always)]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Returns at least the next 57 bits, from the top; zeros after the end.
    #[inline(always)]
    pub(crate) fn window(&self) -> u64 {
        let bytes = self.bytes[self.at / 8..].first_chunk().expect("at never passes the end");
        u64::from_be_bytes(*bytes) << (self.at % 8)
    }

    /// Advances by `count` bits.
    #[inline(always)]
    pub(crate) fn skip(&mut self, count: u32) -> Result<(), Error> {
        let at = self.at + count as usize;
        if at > self.bits {
            return Err(Error::Truncated { bits: self.bits });
        }
        self.at = at;
        Ok(())
    }

    /// Reads `count` bits, 1 to 57.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: u32) -> Result<u64, Error> {
        debug_assert!((1..=57).contains(&count));
        let value = self.window() >> (64 - count);
        self.skip(count)?;
        Ok(value)
    }

    /// Reads one bit.
    #[inline(always)]
    pub(crate) fn bit(&mut self) -> Result<bool, Error> {
        Ok(self.take(1)? == 1)
    }
}

/// LSB-first reader.
pub(crate) struct LsbReader(BitReader);

impl LsbReader {
    #[inline(always)]
    pub(crate) fn new(stream: &[u8]) -> Self {
        Self(BitReader::new(stream))
    }

    /// Reads `count` bits, 1 to 64.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: u32) -> Result<u64, Error> {
        let at = self.0.at;
        self.0.skip(count)?;
        let window = self.0.bytes[at / 8..].first_chunk().expect("at never passes the end");
        Ok((u128::from_le_bytes(*window) >> (at % 8)) as u64 & u64::MAX >> (64 - count))
    }

    /// Reads fields of equal width, as many at a time as fit in 64 bits.
    #[inline(always)]
    pub(crate) fn take_all(&mut self, fields: &mut [u64], width: u32) -> Result<(), Error> {
        match width {
            0 => fields.fill(0),
            1..=8 => self.take_groups::<8>(fields, width)?,
            9..=16 => self.take_groups::<4>(fields, width)?,
            17..=32 => self.take_groups::<2>(fields, width)?,
            _ => self.take_groups::<1>(fields, width)?,
        }
        Ok(())
    }

    #[inline(always)]
    fn take_groups<const TOGETHER: usize>(&mut self, fields: &mut [u64], width: u32) -> Result<(), Error> {
        let largest = u64::MAX >> (64 - width);
        let (groups, rest) = fields.as_chunks_mut::<TOGETHER>();
        for group in groups {
            let together = self.take(TOGETHER as u32 * width)?;
            for (i, field) in group.iter_mut().enumerate() {
                *field = together >> (i as u32 * width) & largest;
            }
        }
        for field in rest {
            *field = self.take(width)?;
        }
        Ok(())
    }

    /// Returns the next 32 bits; zeros after the end.
    #[inline(always)]
    pub(crate) fn peek(&self) -> u32 {
        let window = self.0.bytes[self.0.at / 8..].first_chunk().expect("at never passes the end");
        (u64::from_le_bytes(*window) >> (self.0.at % 8)) as u32
    }

    /// Advances by `count` bits.
    #[inline(always)]
    pub(crate) fn skip(&mut self, count: u32) -> Result<(), Error> {
        self.0.skip(count)
    }

    /// Fails unless the stream has at least `bits` bits.
    #[inline(always)]
    pub(crate) fn need(&self, bits: usize) -> Result<(), Error> {
        if bits > self.0.bits { Err(Error::Truncated { bits: self.0.bits }) } else { Ok(()) }
    }
}

/// Returns whether `word`, read as signed, fits in `bits` bits.
#[inline]
pub(crate) fn fits_signed(word: u32, bits: u32) -> bool {
    sign_extend(u64::from(word) & ((1 << bits) - 1), bits) == word
}

/// Sign-extends the low `bits` bits to 32 bits.
#[inline]
pub(crate) fn sign_extend(value: u64, bits: u32) -> u32 {
    let shift = 32 - bits;
    (((value as u32) << shift) as i32 >> shift) as u32
}

#[cfg(test)]
mod tests;
