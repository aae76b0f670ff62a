//! Data of the benchmark.

use buddy_core::{Entry, ZERO_ENTRY};

/// Returns entries of every size class in runs of eight: zeros, counters, floats, noise of three
/// widths.
pub(super) fn entries(count: u64) -> Vec<Entry> {
    let mut noise = 0x2545_f491_4f6c_dd1du64;
    (0..count)
        .map(|i| {
            let mut entry = ZERO_ENTRY;
            for (k, word) in entry.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                let x = (i * 32 + k as u64) as f32 * 1e-4;
                *word = match i / 8 % 7 {
                    0 => 0,
                    1 => (i * 32 + k as u64) as u32,
                    2 => x.sin().to_bits() & 0xffff_0000,
                    3 => (x.sin() + 2.0).to_bits(),
                    4 => noise as u32 & 0xfff,
                    5 => noise as u32 & 0xf_ffff,
                    _ => noise as u32,
                }
                .to_le_bytes();
            }
            entry
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use buddy_codec::CodecKind;

    use super::*;

    #[test]
    fn the_sample_has_every_class() {
        let entries = entries(64);
        let codec = CodecKind::Bpc.train(&entries);
        let classes: std::collections::BTreeSet<_> = entries.iter().map(|entry| codec.class(entry)).collect();
        assert_eq!(classes.len(), 6, "{classes:?}");
    }
}
