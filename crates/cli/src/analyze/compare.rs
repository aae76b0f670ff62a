//! General compressors beside our codecs, for `buddy analyze --compare`.

use std::collections::BTreeMap;

use buddy_snapshot::Array;
use rayon::prelude::*;

/// Bytes of a block, which a program would have to decompress to read one value of it.
const BLOCK: usize = 64 << 10;
/// Blocks of an array that are compressed, spread evenly.
const MOST_BLOCKS: usize = 1024;

/// Element sizes of the byte shuffles that are tried on each block; 1 leaves it as it is.
const SHUFFLES: [usize; 4] = [1, 2, 4, 8];

/// Returns a block with all first bytes of its elements, then all second ones, and so on, as HDF5's
/// shuffle filter does. Bytes past the last whole element stay at the end.
fn shuffle(block: &[u8], size: usize) -> Vec<u8> {
    let (whole, rest) = block.split_at(block.len() / size * size);
    let plane = |byte: usize| whole.iter().skip(byte).step_by(size);
    (0..size).flat_map(plane).chain(rest).copied().collect()
}

/// Returns the bytes of an array with each compressor, scaled up from the sampled blocks. A block has
/// the shuffle with which it is smallest: without one, a compressor finds little in numbers.
pub(super) fn peers(array: &Array) -> BTreeMap<String, u64> {
    let blocks: Vec<&[u8]> = array.bytes().chunks(BLOCK).collect();
    let sampled: Vec<&[u8]> =
        blocks.iter().step_by(blocks.len().div_ceil(MOST_BLOCKS).max(1)).copied().collect();
    let plain: usize = sampled.iter().map(|block| block.len()).sum();
    let estimate = |name: &str, compress: fn(&[u8]) -> usize| {
        let least = |block: &[u8]| {
            let sizes = SHUFFLES.map(|size| compress(&shuffle(block, size)));
            sizes.into_iter().fold(block.len(), usize::min)
        };
        let packed: usize = sampled.par_iter().map(|block| least(block)).sum();
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

    #[test]
    fn a_shuffle_gathers_equal_bytes() {
        assert_eq!(shuffle(b"abcABCx", 3), b"aAbBcCx");
        assert_eq!(shuffle(b"abcABCx", 1), b"abcABCx");
        // Doubles whose upper half is constant and whose lower half is noise: half remains.
        let mut noise = 7u64;
        let mut value = || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (0x3ff0_1234 << 32) | (noise >> 32)
        };
        let bytes: Vec<u8> = (0..BLOCK / 8).flat_map(|_| value().to_le_bytes()).collect();
        let found = peers(&Array::from_memory("a", Dtype::F64, bytes).unwrap());
        for (name, packed) in found {
            assert!(packed.abs_diff(BLOCK as u64 / 2) < 600, "{name}: {packed}");
        }
    }
}
