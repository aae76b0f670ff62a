//! A fixed set of entries, for tests that must see the same data each time.

use buddy_core::{ENTRY_BYTES, Entry, ZERO_ENTRY};

/// Entries of every kind that programs hold: zeros, ramps, floats, pointers, sparse, noise. The same each time.
pub fn samples() -> Vec<Entry> {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut entries = vec![ZERO_ENTRY, [0xff; ENTRY_BYTES], [0x80; ENTRY_BYTES]];
    for round in 0..8u64 {
        let (base, step) = (noise.next(), noise.next() >> (8 * round).min(56));
        let smooth = |i: u64| (0.3 * (i + 64 * round) as f64).sin();
        entries
            .push(fill(|i| (base as u32).wrapping_add((step as u32).wrapping_mul(i as u32)).to_le_bytes()));
        entries.push(fill(|i| base.wrapping_add(step.wrapping_mul(i)).to_le_bytes()));
        entries.push(fill(|i| smooth(i).to_le_bytes()));
        entries.push(fill(|i| (smooth(i) as f32).to_le_bytes()));
        entries.push(fill(|i| (((smooth(i) as f32).to_bits() >> 16) as u16).to_le_bytes()));
        entries.push(fill(|i| (0x7f00_0000_0000 + ((i * 64) << round)).to_le_bytes()));
        entries.push(fill(|_| noise.next().to_le_bytes()));
        entries.push(fill(|i| (if i == 9 { 0 } else { noise.next() as u16 | 0x21 }).to_le_bytes()));
        let sparse = noise.next() & noise.next();
        entries.push(fill(|i| (if sparse >> i & 1 == 1 { noise.next() as u32 } else { 0 }).to_le_bytes()));
        let mut one = ZERO_ENTRY;
        one[noise.next() as usize % ENTRY_BYTES] = 1 << round;
        entries.push(one);
    }
    entries
}

/// An entry of `N`-byte values.
pub(super) fn fill<const N: usize>(mut value: impl FnMut(u64) -> [u8; N]) -> Entry {
    let mut entry = ZERO_ENTRY;
    for (i, slot) in entry.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        *slot = value(i as u64);
    }
    entry
}

/// A xorshift generator: good enough for bytes, and the same everywhere.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
