//! General compressors beside our codecs, for `buddy analyze --compare`.

use std::collections::BTreeMap;

use buddy_snapshot::Array;
use rayon::prelude::*;

/// Bytes of a block, which a program would have to decompress to read one value of it.
const BLOCK: usize = 64 << 10;
/// Blocks of an array that are compressed, spread evenly.
const MOST_BLOCKS: usize = 1024;

/// Returns the bytes of an array with each compressor, scaled up from the sampled blocks.
pub(super) fn peers(array: &Array) -> BTreeMap<String, u64> {
    let blocks: Vec<&[u8]> = array.bytes().chunks(BLOCK).collect();
    let sampled: Vec<&[u8]> =
        blocks.iter().step_by(blocks.len().div_ceil(MOST_BLOCKS).max(1)).copied().collect();
    let plain: usize = sampled.iter().map(|block| block.len()).sum();
    let estimate = |name: &str, compress: fn(&[u8]) -> usize| {
        let packed: usize = sampled.par_iter().map(|block| compress(block).min(block.len())).sum();
        let scale = array.bytes().len() as f64 / plain.max(1) as f64;
        (name.to_owned(), (packed as f64 * scale).round() as u64)
    };
    let zstd = |block: &[u8]| zstd::bulk::compress(block, 3).map_or(block.len(), |packed| packed.len());
    [estimate("lz4", |block| lz4_flex::block::compress(block).len()), estimate("zstd", zstd)].into()
}

#[cfg(test)]
mod tests {
    use buddy_core::Dtype;

    use super::*;

    #[test]
    fn blocks_are_independent_and_never_grow() {
        let mut noise = 1u64;
        let mut byte = || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (noise >> 56) as u8
        };
        let block: Vec<u8> = (0..BLOCK).map(|_| byte()).collect();
        let of = |bytes: Vec<u8>| peers(&Array::from_memory("a", Dtype::U8, bytes).unwrap());
        // The second block equals the first, which a stream would find.
        let twice = of([&block[..], &block].concat());
        assert!(twice.values().all(|&bytes| bytes == 2 * BLOCK as u64), "{twice:?}");
        let zeros = of(vec![0; 3 * BLOCK]);
        assert!(zeros["zstd"] < 200 && zeros["lz4"] < 2000, "{zeros:?}");
        assert_eq!(of(Vec::new())["lz4"], 0);
    }
}
