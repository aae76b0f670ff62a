//! A sample of a kernel's blocks.

use crate::{At, Code, Error, Kernel, Launch};

/// Some blocks of a generated kernel: short runs of consecutive blocks, which share data, evenly
/// spread over the grid. Each block runs whole.
#[derive(Debug, Clone)]
pub struct Sampled<K> {
    inner: K,
    launch: Launch,
    blocks: u64,
}

/// Consecutive blocks that are kept or dropped together.
const RUN: u64 = 8;

impl<K: Kernel> Sampled<K> {
    /// Keeps `blocks` of the kernel's blocks, or all if it has fewer. The kernel must not depend on
    /// the order of block requests; generated ones do not.
    pub fn new(inner: K, blocks: u64) -> Self {
        let all = inner.launch().blocks();
        let kept = blocks.clamp(1, all);
        let grid = [u32::try_from(kept).expect("fewer blocks than 2^32 are kept"), 1, 1];
        let launch = Launch { grid, ..inner.launch().clone() };
        Self { inner, launch, blocks: all }
    }

    /// Returns the number of a kept block in the whole grid.
    fn original(&self, block: u64) -> u64 {
        let (runs, kept) = (self.blocks / RUN, self.launch.blocks().div_ceil(RUN));
        if runs < kept { block } else { block / RUN * runs / kept * RUN + block % RUN }
    }
}

impl<K: Kernel> Kernel for Sampled<K> {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        let block = self.original(at.block);
        self.inner.fill(At { block, ..at }, code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, pattern::Arithmetic};

    #[test]
    fn sampled_blocks_are_distinct_runs_over_the_grid() {
        for (all, kept) in [(1000, 100), (1000, 999), (100, 99), (17, 9), (5, 3), (5, 50), (4096, 1)] {
            let sampled = Sampled::new(Arithmetic::new(all, 32, Op::Fp32, 1, 1), kept);
            let blocks_kept: Vec<u64> =
                (0..sampled.launch().blocks()).map(|block| sampled.original(block)).collect();
            assert_eq!(blocks_kept.len() as u64, kept.min(u64::from(all)));
            assert!(blocks_kept.windows(2).all(|pair| pair[0] < pair[1]), "{blocks_kept:?}");
            assert!(blocks_kept.last().unwrap() < &u64::from(all), "{all} {kept}: {blocks_kept:?}");
        }
        let sampled = Sampled::new(Arithmetic::new(800, 32, Op::Fp32, 1, 1), 80);
        assert_eq!([7, 8, 79].map(|block| sampled.original(block)), [7, 80, 727]);
    }
}
