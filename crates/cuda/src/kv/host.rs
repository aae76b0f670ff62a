//! A KV cache in host memory, in the layout of `kv.cuh`: the plain twin of [`super::KvCache`], for
//! tests and for programs without a GPU. It has no attention.

use std::ops::Range;

use buddy_codec::{Bf16, Codec, Packed};
use buddy_core::{ENTRY_BYTES, Entry, Nibble, Target};

use super::shape::ALIGN;
use crate::{Error, KvShape};

/// Device and overflow bytes of an entry.
const DEVICE: usize = Target::X4Over3.device_bytes();
const OVERFLOW: usize = ENTRY_BYTES - DEVICE;

/// A KV cache over memory of the caller.
#[derive(Debug)]
pub struct HostKv<'a> {
    shape: KvShape,
    entries: &'a mut [u8],
    overflow: &'a mut [u8],
    nibbles: &'a mut [u8],
    windows: &'a mut [u8],
}

/// Plain bf16 keys and values of tokens of one layer, as bytes; the heads of a token are contiguous.
#[derive(Debug, Clone, Copy)]
pub struct HostRows<'a> {
    /// The keys.
    pub keys: &'a [u8],
    /// The values.
    pub values: &'a [u8],
    /// Bytes between tokens.
    pub stride: usize,
}

impl<'a> HostKv<'a> {
    /// Creates a cache, undefined until [`Self::clear`]. The memory is as for
    /// [`super::KvCache::with_windows`], at any alignment.
    ///
    /// # Errors
    /// [`Error::Kv`] for an invalid shape or too little memory.
    pub fn over(
        shape: KvShape,
        [entries, overflow, nibbles, windows]: [&'a mut [u8]; 4],
    ) -> Result<Self, Error> {
        let bytes = shape.check()?.bytes();
        let parts = [
            ("entries", entries.len(), bytes.entries),
            ("overflow", overflow.len(), bytes.overflow),
            ("nibbles", nibbles.len(), bytes.nibbles),
            ("windows", windows.len(), bytes.windows),
        ];
        for (what, found, need) in parts {
            if (found as u64) < need {
                return Err(Error::Kv(format!("{found} bytes for {what}; {need} are needed")));
            }
        }
        Ok(Self { shape, entries, overflow, nibbles, windows })
    }

    /// Fills all tokens with zeros and resets the windows to those of an untrained codec.
    pub fn clear(&mut self) {
        let bytes = self.shape.bytes();
        let fault = (bytes.windows - ALIGN) as usize;
        self.nibbles[..bytes.nibbles as usize].fill(0);
        self.windows[..fault].fill(Bf16::default().window());
        self.windows[fault..bytes.windows as usize].fill(0xff);
    }

    /// Appends tokens to a layer: row i to slot `slots[i]`. Slots out of range are skipped.
    ///
    /// # Errors
    /// [`Error::Kv`] if the layer, a row or a window does not exist.
    pub fn append(&mut self, layer: u32, rows: HostRows<'_>, slots: &[i64]) -> Result<(), Error> {
        let shape = self.shape;
        let row = self.row_bytes(layer)?;
        let need = slots.len().checked_sub(1).map_or(0, |last| last * rows.stride + row);
        if rows.keys.len() < need || rows.values.len() < need {
            return Err(Error::Kv(format!("{} tokens do not fit the rows given", slots.len())));
        }
        for (token, &slot) in slots.iter().enumerate() {
            let slots = u64::from(shape.pages) * u64::from(shape.page_tokens);
            let Some(slot) = u64::try_from(slot).ok().filter(|&slot| slot < slots) else { continue };
            let (page, position) = ((slot as u32) / shape.page_tokens, (slot as u32) % shape.page_tokens);
            let from = token * rows.stride;
            for (which, plain) in [rows.keys, rows.values].into_iter().enumerate() {
                for (head, values) in plain[from..from + row].chunks(row / shape.heads as usize).enumerate() {
                    self.append_head(layer, (page, head as u32, position, which as u32), values)?;
                }
            }
        }
        Ok(())
    }

    /// Reads `count` tokens of one sequence from `first` on, as [`super::KvCache::read`].
    ///
    /// # Errors
    /// [`Error::Kv`] if the layer, a page or the room does not exist, or an entry does not decode.
    pub fn read(
        &self,
        layer: u32,
        pages: &[i32],
        (first, count): (u32, u32),
        [keys, values]: [&mut [u8]; 2],
    ) -> Result<(), Error> {
        let shape = self.shape;
        let row = self.row_bytes(layer)?;
        let need = row * count as usize;
        if first.checked_add(count).is_none() || keys.len() < need || values.len() < need {
            return Err(Error::Kv(format!("{count} tokens from {first} on do not fit the room given")));
        }
        for (which, plain) in [keys, values].into_iter().enumerate() {
            for (token, to) in (first..first + count).zip(plain.chunks_mut(row)) {
                let page = pages.get((token / shape.page_tokens) as usize).copied().unwrap_or(-1);
                let page = u32::try_from(page).ok().filter(|&page| page < shape.pages);
                let page = page.ok_or_else(|| Error::Kv(format!("token {token} has no page")))?;
                for (head, to) in to.chunks_mut(row / shape.heads as usize).enumerate() {
                    let at = (page, head as u32, token % shape.page_tokens, which as u32);
                    self.read_head(layer, at, to)?;
                }
            }
        }
        Ok(())
    }

    /// Appends a head's key or value: page, head, token of the page, and 0 for keys or 1 for values.
    fn append_head(&mut self, layer: u32, at: (u32, u32, u32, u32), values: &[u8]) -> Result<(), Error> {
        let (codec, mut packed) = (self.codec(layer, at)?, Packed::default());
        for (part, entry) in values.as_chunks::<ENTRY_BYTES>().0.iter().enumerate() {
            codec.pack(entry, &mut packed);
            let places = self.places(layer, at, part);
            let (bytes, device) = (packed.bytes(), packed.bytes().len().min(DEVICE));
            self.entries[places.0][..device].copy_from_slice(&bytes[..device]);
            self.overflow[places.1][..bytes.len() - device].copy_from_slice(&bytes[device..]);
            let (byte, shift) = places.2;
            self.nibbles[byte] = self.nibbles[byte] & !(15 << shift) | packed.nibble().bits() << shift;
        }
        Ok(())
    }

    fn read_head(&self, layer: u32, at: (u32, u32, u32, u32), to: &mut [u8]) -> Result<(), Error> {
        let codec = self.codec(layer, at)?;
        for (part, to) in to.as_chunks_mut::<ENTRY_BYTES>().0.iter_mut().enumerate() {
            let (device, overflow, (byte, shift)) = self.places(layer, at, part);
            let mut slot: Entry = [0; ENTRY_BYTES];
            slot[..DEVICE].copy_from_slice(&self.entries[device]);
            slot[DEVICE..].copy_from_slice(&self.overflow[overflow]);
            let wrong = |error: String| Error::Kv(format!("head {} of page {}: {error}", at.1, at.0));
            let nibble = Nibble::from_bits(self.nibbles[byte] >> shift & 15)
                .map_err(|error| wrong(error.to_string()))?;
            *to = codec.unpack(nibble, &slot).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(())
    }

    /// Returns the bytes of an entry, of its overflow, and its nibble's byte and shift.
    fn places(
        &self,
        layer: u32,
        (page, head, token, which): (u32, u32, u32, u32),
        part: usize,
    ) -> (Range<usize>, Range<usize>, (usize, usize)) {
        let entry = self.shape.entry(layer, page, head, token, which, part as u32) as usize;
        let range = |bytes: usize| entry * bytes..(entry + 1) * bytes;
        (range(DEVICE), range(OVERFLOW), (entry / 2, entry % 2 * 4))
    }

    fn codec(&self, layer: u32, (_, head, _, which): (u32, u32, u32, u32)) -> Result<Codec, Error> {
        let window = self.windows[((layer * self.shape.heads + head) * 2 + which) as usize];
        Ok(Codec::Bf16(Bf16::new(window).map_err(|error| Error::Kv(error.to_string()))?))
    }

    /// Returns the bytes of a token's keys. Fails if the layer does not exist.
    fn row_bytes(&self, layer: u32) -> Result<usize, Error> {
        if layer >= self.shape.layers {
            return Err(Error::Kv(format!("layer {layer} of {}", self.shape.layers)));
        }
        Ok(2 * self.shape.heads as usize * self.shape.head_values as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: KvShape = KvShape { layers: 2, pages: 3, heads: 2, head_values: 128, page_tokens: 16 };
    const ROW: usize = 2 * 2 * 128;

    fn memory() -> [Vec<u8>; 4] {
        let bytes = SHAPE.bytes();
        [bytes.entries, bytes.overflow, bytes.nibbles, bytes.windows].map(|bytes| vec![0xaa; bytes as usize])
    }

    fn over(memory: &mut [Vec<u8>; 4]) -> HostKv<'_> {
        HostKv::over(SHAPE, memory.each_mut().map(Vec::as_mut_slice)).unwrap()
    }

    /// Values of one exponent, of all bits, and zeros.
    fn rows(seed: u32) -> Vec<u8> {
        let mut state = seed;
        let mut draw = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        let mut values: Vec<u16> = (0..20 * ROW / 2).map(|_| 0x3f00 | draw() as u16 & 0x80ff).collect();
        values[3 * ROW / 2..4 * ROW / 2].iter_mut().for_each(|value| *value = draw() as u16);
        values[5 * ROW / 2..6 * ROW / 2].fill(0);
        values.into_iter().flat_map(u16::to_le_bytes).collect()
    }

    fn read(cache: &HostKv<'_>, layer: u32, pages: &[i32], range: (u32, u32)) -> [Vec<u8>; 2] {
        let mut to = [0, 1].map(|_| vec![0; range.1 as usize * ROW]);
        cache.read(layer, pages, range, to.each_mut().map(Vec::as_mut_slice)).unwrap();
        to
    }

    #[test]
    fn every_token_is_read_as_it_was_appended() {
        let (mut memory, keys, values) = (memory(), rows(1), rows(2));
        let mut cache = over(&mut memory);
        cache.clear();
        // Twenty tokens in pages 2 and 0, and one that is skipped.
        let slots: Vec<i64> = (32..48).chain(0..3).chain([-1]).collect();
        cache.append(1, HostRows { keys: &keys, values: &values, stride: ROW }, &slots).unwrap();
        assert!(read(&cache, 1, &[2, 0], (0, 19)) == [&keys[..19 * ROW], &values[..19 * ROW]]);
        assert!(read(&cache, 1, &[2, 0], (3, 14)) == [&keys[3 * ROW..17 * ROW], &values[3 * ROW..17 * ROW]]);
        assert!(read(&cache, 0, &[2, 0], (0, 19)).iter().flatten().all(|&byte| byte == 0));
        // A page's next owner reads its own tokens only.
        cache.append(1, HostRows { keys: &values, values: &keys, stride: ROW }, &slots[..16]).unwrap();
        assert!(read(&cache, 1, &[2], (0, 16)) == [&values[..16 * ROW], &keys[..16 * ROW]]);
    }

    #[test]
    fn wrong_arguments_are_errors() {
        let (mut memory, plain) = (memory(), rows(1));
        let small = memory.clone();
        let mut cache = over(&mut memory);
        cache.clear();
        let rows = HostRows { keys: &plain, values: &plain, stride: ROW };
        assert!(cache.append(2, rows, &[0]).is_err());
        assert!(cache.append(0, HostRows { keys: &plain[..ROW - 1], ..rows }, &[0]).is_err());
        let read = |cache: &HostKv<'_>, pages: &[i32], count| {
            let mut to = [vec![0; ROW], vec![0; ROW]];
            cache.read(0, pages, (0, count), to.each_mut().map(Vec::as_mut_slice))
        };
        assert!(read(&cache, &[0], 1).is_ok());
        assert!(read(&cache, &[3], 1).is_err());
        assert!(read(&cache, &[], 1).is_err());
        assert!(read(&cache, &[0], 2).is_err());
        cache.nibbles[0] = 0x0f;
        assert!(read(&cache, &[0], 1).unwrap_err().to_string().contains("head 0 of page 0"));
        let [mut entries, mut overflow, mut nibbles, mut windows] = small;
        nibbles.pop();
        let spans = [&mut entries[..], &mut overflow, &mut nibbles, &mut windows];
        assert!(HostKv::over(SHAPE, spans).unwrap_err().to_string().contains("bytes for nibbles"));
    }
}
