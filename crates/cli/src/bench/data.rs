//! The data of the benches.

use buddy_core::{Entry, ZERO_ENTRY};

/// Eight equal parts, each of a kind that programs hold; the same each time.
pub(crate) fn mixed(entries: usize) -> Vec<Entry> {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    (0..entries)
        .map(|entry| {
            let at = (entry % (entries / 8).max(1)) as u64;
            let wave = |i: u64, lanes: u64| (0.001 * (at * lanes + i) as f64).sin();
            match entry * 8 / entries {
                0 => ZERO_ENTRY,
                1 => fill(|i| ((at * 32 + i) as u32 * 3).to_le_bytes()),
                2 => fill(|i| (300.0 + wave(i, 32) as f32).to_le_bytes()),
                3 => fill(|i| (300.0 + wave(i, 16)).to_le_bytes()),
                4 => fill(|_| (noise.normal().max(0.0) as f32).to_le_bytes()),
                5 => fill(|_| (0x7f00_1234_0000 + noise.next() % 4096 * 64).to_le_bytes()),
                6 => fill(|_| ((((0.02 * noise.normal()) as f32).to_bits() >> 16) as u16).to_le_bytes()),
                _ => fill(|_| noise.next().to_le_bytes()),
            }
        })
        .collect()
}

/// An entry of `N`-byte values.
fn fill<const N: usize>(mut value: impl FnMut(u64) -> [u8; N]) -> Entry {
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

    /// Near enough to a normal deviate: twelve uniform ones.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }
}
