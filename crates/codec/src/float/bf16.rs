//! bf16 (1 sign, 8 exponent, 7 mantissa bits), the usual type of weights.
//!
//! Sign and mantissa of 64 values take 64 bytes, which leaves four of 96 bytes' bits per exponent.
//! Layout B codes exponents against a window of 16 exponents fixed per allocation: no header, no
//! branch, independent values. Layout C is for entries outside the window: three bits below the
//! entry's largest exponent, and up to seven escapes. Layout A is [`Sparse`], for entries with
//! zeros.

use buddy_core::{Entry, Layout, ZERO_ENTRY, words16};
use serde::{Deserialize, Serialize};

use super::Sparse;
use crate::{EntryCodec, Error, Stream};

/// Values per entry.
const VALUES: usize = 64;
/// Exponents in a window.
const WINDOW: u16 = 16;
/// Escape code of layout C.
const ESCAPE: u16 = 7;
/// Maximum escapes in layout C: with 64 bytes, three planes of 8 and the base they make 96.
const ESCAPES: usize = 7;
/// Bits of layout B.
const WINDOW_BITS: u32 = 768;

type SparseBf16 = Sparse<8, 7>;

/// bf16 with the exponent window of one allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Window")]
pub struct Bf16 {
    window: u8,
}

/// Serialized parameters.
#[derive(Deserialize)]
struct Window {
    window: u8,
}

impl TryFrom<Window> for Bf16 {
    type Error = Error;

    fn try_from(kept: Window) -> Result<Self, Error> {
        Self::new(kept.window)
    }
}

impl Default for Bf16 {
    /// Returns the window from 2^-15 to just under 2, the range of most weights.
    fn default() -> Self {
        Self { window: 112 }
    }
}

impl Bf16 {
    /// Creates the codec with a window from the biased exponent `window`.
    ///
    /// # Errors
    /// If `window` is above 240, so that the window would exceed the largest exponent.
    pub fn new(window: u8) -> Result<Self, Error> {
        if window > 240 {
            return Err(Error::Invalid { at: 0, what: "exponent window begins above 240" });
        }
        Ok(Self { window })
    }

    /// Returns the first exponent of the window.
    pub fn window(&self) -> u8 {
        self.window
    }

    /// Finds the window that contains the most entries completely; ties go to the lowest.
    pub fn train(entries: &[Entry]) -> Self {
        let mut change = [0i64; 257];
        for entry in entries {
            let (low, high) = range(&exponents(entry));
            let first = high.saturating_sub(WINDOW - 1);
            if first <= low {
                change[usize::from(first)] += 1;
                change[usize::from(low) + 1] -= 1;
            }
        }
        let mut best = (0, Self::default().window);
        let mut count = 0;
        for window in 0..=240 {
            count += change[usize::from(window)];
            if count > best.0 {
                best = (count, window);
            }
        }
        Self { window: best.1 }
    }

    /// Returns the layout of an entry and its bits: the smallest class; ties go to the fastest to
    /// decode.
    #[inline(always)]
    fn choose(&self, entry: &Entry) -> (Layout, u32) {
        let loose = SparseBf16::scan(entry).bits();
        if loose <= 512 {
            return (Layout::A, loose);
        }
        let exponents = exponents(entry);
        let (low, high) = range(&exponents);
        if low >= u16::from(self.window) && high < u16::from(self.window) + WINDOW {
            return (Layout::B, WINDOW_BITS);
        }
        let escapes = exponents.iter().filter(|&&exponent| high - exponent >= ESCAPE).count();
        if escapes <= ESCAPES {
            return (Layout::C, 8 * (89 + escapes as u32));
        }
        (Layout::A, loose)
    }
}

impl EntryCodec for Bf16 {
    fn max_bits(&self) -> u32 {
        SparseBf16::MAX_BITS
    }

    fn parameter_bytes(&self) -> usize {
        1
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        self.choose(entry).1
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        let (layout, bits) = self.choose(entry);
        match layout {
            Layout::A => SparseBf16::scan(entry).write(entry, stream),
            Layout::B => self.write_window(entry, stream.fill(layout, bits)),
            Layout::C => write_relative(entry, stream.fill(layout, bits)),
        }
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        match layout {
            Layout::A => SparseBf16::read(stream),
            Layout::B => self.read_window(stream),
            Layout::C => read_relative(stream),
        }
    }
}

impl Bf16 {
    #[inline(always)]
    fn write_window(&self, entry: &Entry, bytes: &mut [u8]) {
        let values = words16(entry);
        for (byte, value) in bytes.iter_mut().zip(values) {
            *byte = sign_and_mantissa(value);
        }
        let code = |i: usize| ((values[i] >> 7 & 0xff) - u16::from(self.window)) as u8;
        for (group, codes) in bytes[VALUES..].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let pair = |a, b| code(8 * group + a) | code(8 * group + b) << 4;
            *codes = [pair(0, 2), pair(4, 6), pair(1, 3), pair(5, 7)];
        }
    }

    #[inline(always)]
    fn read_window(&self, stream: &[u8]) -> Result<Entry, Error> {
        let stream: &[u8; 96] = stream.first_chunk().ok_or(Error::Truncated { bits: 8 * stream.len() })?;
        let mut exponents = [u16::from(self.window); VALUES];
        for (group, codes) in stream[VALUES..].as_chunks::<4>().0.iter().enumerate() {
            for (byte, first) in codes.iter().zip([0, 4, 1, 5]) {
                exponents[8 * group + first] += u16::from(byte & 15);
                exponents[8 * group + first + 2] += u16::from(byte >> 4);
            }
        }
        Ok(join(stream.first_chunk().expect("96 bytes"), &exponents))
    }
}

#[inline(always)]
fn write_relative(entry: &Entry, bytes: &mut [u8]) {
    let exponents = exponents(entry);
    let (_, high) = range(&exponents);
    for (byte, value) in bytes.iter_mut().zip(words16(entry)) {
        *byte = sign_and_mantissa(value);
    }
    let mut planes = [0u64; 3];
    let mut escapes = bytes[89..].iter_mut();
    for (i, &exponent) in exponents.iter().enumerate() {
        let code = (high - exponent).min(ESCAPE);
        for (bit, plane) in planes.iter_mut().enumerate() {
            *plane |= u64::from(code >> bit & 1) << i;
        }
        if code == ESCAPE {
            *escapes.next().expect("as many as counted") = exponent as u8;
        }
    }
    for (bytes, plane) in bytes[VALUES..88].as_chunks_mut().0.iter_mut().zip(planes) {
        *bytes = plane.to_le_bytes();
    }
    bytes[88] = high as u8;
}

#[inline(always)]
fn read_relative(stream: &[u8]) -> Result<Entry, Error> {
    let truncated = Error::Truncated { bits: 8 * stream.len() };
    let (head, escapes) = stream.split_first_chunk::<89>().ok_or(truncated.clone())?;
    let planes: [u64; 3] = std::array::from_fn(|bit| {
        u64::from_le_bytes(*head[VALUES + 8 * bit..].first_chunk().expect("three planes of eight bytes"))
    });
    let escaped = planes[0] & planes[1] & planes[2];
    let count = escaped.count_ones() as usize;
    if count > ESCAPES {
        return Err(Error::Invalid { at: 8 * VALUES, what: "more than seven escapes" });
    }
    let escapes = escapes.get(..count).ok_or(truncated)?;
    let mut exponents = [0; VALUES];
    for (i, exponent) in exponents.iter_mut().enumerate() {
        let code = (0..3).fold(0, |code, bit| code | (planes[bit] >> i & 1) << bit) as u8;
        *exponent = u16::from(head[88].wrapping_sub(code));
    }
    let mut left = escaped;
    for &escape in escapes {
        exponents[left.trailing_zeros() as usize] = u16::from(escape);
        left &= left - 1;
    }
    Ok(join(head.first_chunk().expect("89 bytes"), &exponents))
}

#[inline(always)]
fn exponents(entry: &Entry) -> [u16; VALUES] {
    words16(entry).map(|value| value >> 7 & 0xff)
}

/// Returns the smallest and the largest exponent.
#[inline(always)]
fn range(exponents: &[u16; VALUES]) -> (u16, u16) {
    exponents.iter().fold((u16::MAX, 0), |(low, high), &exponent| (low.min(exponent), high.max(exponent)))
}

#[inline(always)]
fn sign_and_mantissa(value: u16) -> u8 {
    (value >> 8 & 0x80 | value & 0x7f) as u8
}

#[inline(always)]
fn join(signs_and_mantissas: &[u8; VALUES], exponents: &[u16; VALUES]) -> Entry {
    let mut entry = ZERO_ENTRY;
    for (i, bytes) in entry.as_chunks_mut().0.iter_mut().enumerate() {
        let byte = u16::from(signs_and_mantissas[i]);
        *bytes = ((byte & 0x80) << 8 | exponents[i] << 7 | byte & 0x7f).to_le_bytes();
    }
    entry
}
