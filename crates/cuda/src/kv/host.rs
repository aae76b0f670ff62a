//! A KV cache in host memory, in the layout of `kv.cuh`: the plain twin of [`super::KvCache`], for
//! tests and for programs without a GPU. It has no attention.

use std::ops::Range;

use buddy_codec::{Bf16, Codec, Packed};
use buddy_core::{ENTRY_BYTES, Entry, Layout, Nibble, SizeClass, Target};

use super::shape::{ALIGN, ENTRY_VALUES};
use crate::{Error, KvShape};

/// Device and overflow bytes of an entry.
const DEVICE: usize = Target::X4Over3.device_bytes();
const OVERFLOW: usize = ENTRY_BYTES - DEVICE;
const VALUES: usize = ENTRY_VALUES as usize;
/// Windows that are not chosen yet, and limits of training, as in `kv.cuh`.
const LAST_WINDOW: u8 = 240;
const USED: u8 = 254;
const UNUSED: u8 = 255;
const TRAIN_TOKENS: usize = 64;
const MOST_SHIFT: u8 = 24;
const MOST_EXPONENT: u8 = 200;

/// Returns an exponent less `by`, cyclic in 1 to 254: zeros, infinities and NaN stay.
fn shift(exponent: u8, by: u8) -> u8 {
    match exponent {
        0 | 255 => exponent,
        _ if exponent > by => exponent - by,
        _ => exponent + (254 - by),
    }
}

/// Reverts [`shift`].
fn unshift(exponent: u8, by: u8) -> u8 {
    if by == 0 { exponent } else { shift(exponent, 254 - by) }
}

/// Changes the exponents of an entry's values.
fn change_exponents(entry: &mut Entry, shifts: &[u8], change: fn(u8, u8) -> u8) {
    for (value, &by) in entry.as_chunks_mut::<2>().0.iter_mut().zip(shifts) {
        let bits = u16::from_le_bytes(*value);
        let exponent = change((bits >> 7) as u8, by);
        *value = (bits & 0x807f | u16::from(exponent) << 7).to_le_bytes();
    }
}

/// Returns the shifts of a head's values from those of some tokens.
///
/// A column whose largest exponent exceeds the typical one by more than one is shifted to that. A
/// quarter of the columns that are not zero are smaller than the typical one. A key's column counts as
/// large as its partner half a head away, since RoPE moves their size from one to the other.
fn shifts_of(tokens: &[&[u8]], of_keys: bool) -> Vec<u8> {
    let mut most = vec![0; tokens[0].len() / 2];
    for token in tokens {
        for (most, value) in most.iter_mut().zip(token.as_chunks::<2>().0) {
            let exponent = (u16::from_le_bytes(*value) >> 7) as u8;
            *most = if exponent == 255 { *most } else { exponent.max(*most) };
        }
    }
    if of_keys {
        let (first, second) = most.split_at_mut(tokens[0].len() / 4);
        for (one, two) in first.iter_mut().zip(second).filter(|(one, two)| **one != 0 && **two != 0) {
            (*one, *two) = ((*one).max(*two), (*one).max(*two));
        }
    }
    let mut sorted: Vec<u8> = most.iter().copied().filter(|&one| one != 0).collect();
    sorted.sort_unstable();
    let base = sorted.get(sorted.len() / 4).map_or(0, |typical| typical + 1);
    let is_shifted = sorted.last().is_none_or(|&greatest| greatest <= MOST_EXPONENT);
    let shift = |one: u8| if is_shifted { one.saturating_sub(base).min(MOST_SHIFT) } else { 0 };
    most.into_iter().map(shift).collect()
}

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

    /// Fills all tokens with zeros, resets the windows to those of an untrained codec, and the shifts to
    /// zero.
    pub fn clear(&mut self) {
        let bytes = self.shape.bytes();
        let (shifts, fault) = (self.shape.shifts() as usize, (bytes.windows - ALIGN) as usize);
        self.nibbles[..bytes.nibbles as usize].fill(0);
        self.windows[..shifts].fill(Bf16::default().window());
        self.windows[shifts..fault].fill(0);
        self.windows[fault..bytes.windows as usize].fill(0xff);
    }

    /// Chooses windows and shifts of a layer from tokens, as [`super::KvCache::train`] with slots: only
    /// what is not chosen yet, from those whose slot is not negative.
    ///
    /// # Errors
    /// As for [`Self::append`].
    pub fn train(&mut self, layer: u32, rows: HostRows<'_>, slots: &[i64]) -> Result<(), Error> {
        let (row, heads) = (self.check_rows(layer, rows, slots)?, self.shape.heads);
        let tokens: Vec<usize> = (0..slots.len()).filter(|&token| slots[token] >= 0).collect();
        if tokens.is_empty() {
            return Ok(());
        }
        for (head, which) in (0..heads).flat_map(|head| [(head, 0), (head, 1)]) {
            let window = self.window_at(layer, head, which);
            let old = self.windows[window];
            if old <= LAST_WINDOW || (old == USED && tokens.len() < TRAIN_TOKENS) {
                continue;
            }
            let plain = if which == 0 { rows.keys } else { rows.values };
            let size = row / heads as usize;
            let of_token = |token: &usize| &plain[token * rows.stride + head as usize * size..][..size];
            let values: Vec<&[u8]> = tokens.iter().map(of_token).collect();
            let mut found = shifts_of(&values, which == 0);
            let at = self.shift_at(layer, head, which);
            let shifts = &mut self.windows[at..at + found.len()];
            match old {
                USED => found.copy_from_slice(shifts),
                _ => shifts.copy_from_slice(&found),
            }
            if tokens.len() < TRAIN_TOKENS {
                self.windows[window] = USED;
                continue;
            }
            let mut entries: Vec<Entry> = values.iter().flat_map(|one| one.as_chunks().0).copied().collect();
            for (at, entry) in entries.iter_mut().enumerate() {
                let first = at * VALUES % found.len();
                change_exponents(entry, &found[first..first + VALUES], shift);
            }
            self.windows[window] = Bf16::train(&entries).window().min(MOST_EXPONENT);
        }
        Ok(())
    }

    /// Appends tokens to a layer: row i to slot `slots[i]`. Slots out of range are skipped.
    ///
    /// # Errors
    /// [`Error::Kv`] if the layer, a row or a window does not exist.
    pub fn append(&mut self, layer: u32, rows: HostRows<'_>, slots: &[i64]) -> Result<(), Error> {
        let shape = self.shape;
        let row = self.check_rows(layer, rows, slots)?;
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
        let window = self.window_at(layer, at.1, at.3);
        if self.windows[window] == UNUSED {
            self.windows[window] = USED;
        }
        let (codec, mut packed) = (self.codec(layer, at)?, Packed::default());
        for (part, entry) in values.as_chunks::<ENTRY_BYTES>().0.iter().enumerate() {
            let mut entry = *entry;
            change_exponents(&mut entry, self.shifts(layer, at, part), shift);
            codec.pack(&entry, &mut packed);
            let (mut nibble, mut bytes) = (packed.nibble(), packed.bytes());
            // Only a window that is chosen later could hold it.
            if self.windows[window] > LAST_WINDOW && nibble.layout() == Layout::B {
                (nibble, bytes) = (Nibble::new(SizeClass::Raw, Layout::A), &entry);
            }
            let (places, device) = (self.places(layer, at, part), bytes.len().min(DEVICE));
            self.entries[places.0][..device].copy_from_slice(&bytes[..device]);
            self.overflow[places.1][..bytes.len() - device].copy_from_slice(&bytes[device..]);
            let (byte, bit) = places.2;
            self.nibbles[byte] = self.nibbles[byte] & !(15 << bit) | nibble.bits() << bit;
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
            change_exponents(to, self.shifts(layer, at, part), unshift);
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

    /// Returns the place of a window.
    fn window_at(&self, layer: u32, head: u32, which: u32) -> usize {
        ((layer * self.shape.heads + head) * 2 + which) as usize
    }

    /// Returns the place of the shifts of a head.
    fn shift_at(&self, layer: u32, head: u32, which: u32) -> usize {
        self.shape.shifts() as usize + self.window_at(layer, head, which) * self.shape.head_values as usize
    }

    /// Returns the shifts of an entry.
    fn shifts(&self, layer: u32, (_, head, _, which): (u32, u32, u32, u32), part: usize) -> &[u8] {
        &self.windows[self.shift_at(layer, head, which) + part * VALUES..][..VALUES]
    }

    /// Returns the bytes of a token's keys. Fails if the layer or a row does not exist.
    fn check_rows(&self, layer: u32, rows: HostRows<'_>, slots: &[i64]) -> Result<usize, Error> {
        let row = self.row_bytes(layer)?;
        let need = slots.len().checked_sub(1).map_or(0, |last| last * rows.stride + row);
        if rows.keys.len() < need || rows.values.len() < need {
            return Err(Error::Kv(format!("{} tokens do not fit the rows given", slots.len())));
        }
        Ok(row)
    }

    fn codec(&self, layer: u32, (_, head, _, which): (u32, u32, u32, u32)) -> Result<Codec, Error> {
        let window = self.windows[self.window_at(layer, head, which)];
        // Without a window, no entry is in layout B.
        let window = if window >= USED { LAST_WINDOW } else { window };
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

    /// Every exponent comes back; zeros, infinities and NaN stay what they are.
    #[test]
    fn shifts_of_exponents_are_reverted() {
        for by in 0..=MOST_SHIFT {
            let shifted: Vec<u8> = (0..=255).map(|exponent| shift(exponent, by)).collect();
            assert_eq!((shifted[0], shifted[255], shifted[254]), (0, 255, 254 - by));
            assert!((0..=255).all(|exponent| unshift(shifted[exponent as usize], by) == exponent));
        }
    }

    /// Columns that are larger than others have the shifts that the first tokens chose, also where
    /// exponents wrap around, and tokens that were stored without training none.
    #[test]
    fn trained_shifts_make_columns_alike_and_lose_nothing() {
        for stored in [0, 3] {
            let (mut memory, mut keys, mut values) = (memory(), Vec::new(), Vec::new());
            let slots: Vec<i64> = (0..70).map(|token| if token < 48 { token } else { 999 }).collect();
            for token in 0..70u16 {
                for value in 0..ROW as u16 / 2 {
                    let exponent = 120 + (token * 7 + value * 3) % 5 + if value % 128 == 77 { 9 } else { 0 };
                    let bits = (token * 31) & 0x807f | exponent << 7;
                    keys.extend((if (token, value % 128) == (20, 77) { 5 << 7 } else { bits }).to_le_bytes());
                    values.extend((bits | 0x8000).to_le_bytes());
                }
            }
            let mut cache = over(&mut memory);
            cache.clear();
            cache.windows[..4 * 2].fill(UNUSED);
            let rows = HostRows { keys: &keys, values: &values, stride: ROW };
            cache.append(1, rows, &slots[..stored]).unwrap();
            cache.train(1, rows, &[-1]).unwrap();
            let untrained = if stored == 0 { UNUSED } else { USED };
            assert!(cache.windows[4..8].iter().all(|&window| window == untrained));
            cache.train(1, rows, &slots[..TRAIN_TOKENS - 1]).unwrap();
            assert!(cache.windows[4..8].iter().all(|&window| window == USED));
            cache.train(1, rows, &slots).unwrap();
            let shifts = |head, which| &cache.windows[cache.shift_at(1, head, which)..][..128];
            let by = if stored == 0 { 8 } else { 0 };
            // A key's column and its partner, half a head away; of values the column alone.
            assert_eq!(
                [shifts(1, 0)[77], shifts(1, 0)[13], shifts(1, 1)[77], shifts(1, 1)[13]],
                [by, by, by, 0]
            );
            let shifted = |which| shifts(1, which).iter().filter(|&&by| by != 0).count();
            assert!(stored != 0 || [shifted(0), shifted(1)] == [2, 1]);
            assert!(cache.windows[4..8].iter().all(|&window| (100..=120).contains(&window)));
            let chosen = cache.windows.to_vec();
            cache
                .append(
                    1,
                    HostRows { keys: &keys[stored * ROW..], values: &values[stored * ROW..], stride: ROW },
                    &slots[stored..48],
                )
                .unwrap();
            cache.train(1, HostRows { keys: &values, values: &keys, stride: ROW }, &slots).unwrap();
            assert!(*cache.windows == *chosen, "what is chosen stays");
            assert!(read(&cache, 1, &[0, 1, 2], (0, 48)) == [&keys[..48 * ROW], &values[..48 * ROW]]);
        }
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
