//! Deterministic sample entries for tests and benches.

use buddy_core::{ENTRY_BYTES, Entry, ZERO_ENTRY};

/// Returns entries typical of programs: zeros, ramps, floats, pointers, sparse, noise.
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

/// Returns `entries` entries in eight equal parts, each of another kind.
pub fn mixed(entries: usize) -> Vec<Entry> {
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

/// Creates an entry of `N`-byte values from their indices.
pub fn fill<const N: usize>(mut value: impl FnMut(u64) -> [u8; N]) -> Entry {
    let mut entry = ZERO_ENTRY;
    for (i, slot) in entry.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        *slot = value(i as u64);
    }
    entry
}

/// A xorshift generator, for deterministic test data. The state must not be 0.
#[derive(Debug, Clone)]
pub struct Noise(pub u64);

impl Noise {
    /// Returns the next 64 pseudo-random bits.
    #[allow(clippy::should_implement_trait)] // infinite, so no Option
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns an approximately normal deviate: the sum of twelve uniform ones.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }
}
