//! Data whose compressibility in hardware is measured.

use buddy_core::ENTRY_BYTES;
use buddy_cuda::DeviceBytes;

use crate::{Error, Fill, Lab};

/// Data of a measurement.
#[derive(Debug, Clone)]
pub enum CompressibleCase {
    /// Data that the GPU makes.
    Made(Fill),
    /// Bytes of a name, at least one entry of 128.
    Bytes(String, Vec<u8>),
}

/// Returns the usual cases: kinds of data, and blocks of noise that alternate with zeros, which
/// show the size that the hardware compresses as one.
pub fn compressible_cases() -> Vec<CompressibleCase> {
    let made = [
        Fill::Zeros,
        Fill::Ramp,
        Fill::Values,
        Fill::Corners,
        Fill::Field64,
        Fill::Relu,
        Fill::Halves,
        Fill::Weights,
        Fill::Noise,
    ];
    let blocks = [32, 64, 128, 256, 512, 4096];
    let alternating = |block| {
        let name = format!("noise, zeros by {block} B");
        CompressibleCase::Bytes(name, alternating(block, 1 << 20))
    };
    made.into_iter().map(CompressibleCase::Made).chain(blocks.into_iter().map(alternating)).collect()
}

/// Returns `bytes` in which blocks of `block` random bytes alternate with blocks of zeros.
pub fn alternating(block: usize, bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut noise = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 56
    };
    (0..bytes).map(|i| if (i / block).is_multiple_of(2) { noise() as u8 } else { 0 }).collect()
}

impl CompressibleCase {
    /// Returns the name of the data.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Made(fill) => format!("{fill:?}").to_lowercase(),
            Self::Bytes(name, _) => name.clone(),
        }
    }

    /// Copies at most `most` bytes of the data to the GPU, in whole entries.
    pub(super) fn tile(&self, lab: &Lab, most: u64) -> Result<DeviceBytes, Error> {
        let whole = |bytes: u64| bytes.min(most) / ENTRY_BYTES as u64 * ENTRY_BYTES as u64;
        match self {
            Self::Made(fill) => {
                let tile = lab.bytes(whole(most))?;
                lab.make(tile.all(), *fill, 1, 0.0)?;
                Ok(tile)
            }
            Self::Bytes(_, bytes) => {
                let tile = lab.bytes(whole(bytes.len() as u64))?;
                tile.upload(&bytes[..tile.len() as usize])?;
                Ok(tile)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_noise_alternate_with_zeros() {
        let bytes = alternating(64, 256);
        for (i, block) in bytes.chunks(64).enumerate() {
            assert_eq!(block.iter().all(|&byte| byte == 0), i % 2 == 1, "block {i}");
        }
    }

    #[test]
    fn the_usual_cases_have_different_names() {
        let mut names: Vec<_> = compressible_cases().iter().map(CompressibleCase::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), compressible_cases().len());
    }
}
