//! Iteration time: waves of tiles, traffic at L2 and device memory, launches.
//!
//! After Paleo and DeLTA, like the paper's own model: a product is cut into tiles, and the SMs run
//! them in waves, so a partly filled last wave is wasted. The fastest tile shape is chosen, as
//! libraries do. All other kernels are memory-bound. Launch gaps dominate small batches.

use serde::{Deserialize, Serialize};

use crate::{
    Network, Spec,
    work::{Product, Work},
};

/// Time of one training iteration and its components.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Time {
    /// Seconds of the whole iteration.
    pub seconds: f64,
    /// Seconds in convolutions and matrix products.
    pub product_seconds: f64,
    /// Seconds in memory-bound kernels.
    pub sweep_seconds: f64,
    /// Seconds between kernels.
    pub launch_seconds: f64,
    /// Number of kernels.
    pub kernels: u64,
    /// Images or words per second.
    pub throughput: f64,
}

/// Returns the time of one training iteration of a network at a batch size.
pub fn time(spec: &Spec, network: &Network, batch: u64) -> Time {
    let mut time = Time::default();
    for work in network.work(batch) {
        let seconds = match work {
            Work::Product(product) => spec.product_seconds(&product),
            Work::Sweep(bytes) => bytes as f64 / spec.dram_bytes_per_s(),
        };
        match work {
            Work::Product(_) => time.product_seconds += seconds,
            Work::Sweep(_) => time.sweep_seconds += seconds,
        }
        time.kernels += 1;
    }
    time.launch_seconds = time.kernels as f64 * spec.model.launch_us * 1e-6;
    time.seconds = time.product_seconds + time.sweep_seconds + time.launch_seconds;
    time.throughput = (batch * network.units_per_sample()) as f64 / time.seconds;
    time
}

/// Rows and columns of the tile shapes that libraries offer.
const TILES: [[u64; 2]; 5] = [[128, 128], [128, 64], [64, 64], [128, 32], [32, 32]];
/// Split-K factors that libraries use for products with few tiles.
const SPLITS: [u64; 6] = [1, 2, 4, 8, 16, 32];

impl Spec {
    fn dram_bytes_per_s(&self) -> f64 {
        self.gpu.dram_gb_per_s * 1e9 * self.model.dram_share
    }

    /// Returns the seconds of a product in its best tiling.
    fn product_seconds(&self, product: &Product) -> f64 {
        let shapes = TILES.iter().flat_map(|&[rows, columns]| [[rows, columns], [columns, rows]]);
        let tilings = shapes.flat_map(|tile| SPLITS.map(|split| (tile, split)));
        tilings.map(|(tile, split)| self.tiled_seconds(product, tile, split)).fold(f64::INFINITY, f64::min)
    }

    /// Returns the seconds of a product with this tile shape and split-K factor: the slowest of
    /// arithmetic, L2 and device memory.
    fn tiled_seconds(&self, product: &Product, [rows, columns]: [u64; 2], split: u64) -> f64 {
        let Self { gpu, model } = self;
        let [down, across] = [product.m.div_ceil(rows), product.n.div_ceil(columns)];
        let tiles = down * across * product.count * split;
        let depth = product.k.div_ceil(split) as f64;
        let saved = if product.fast { model.fast_gain } else { 1.0 };
        let math = (rows * columns) as f64 / (gpu.lanes as f64 * model.math_share * saved);
        let l2 = ((rows + columns) * crate::VALUE_BYTES) as f64 / gpu.l2_bytes_per_cycle;
        let cycles = depth * math.max(l2) + model.tile_cycles;
        let waves = tiles.div_ceil(gpu.sms) as f64;
        let seconds = waves * cycles / (gpu.clock_mhz * 1e6);
        seconds.max(self.traffic(product, [down, across], split) / self.dram_bytes_per_s())
    }

    /// Returns the bytes at device memory. Tiles run in rows. An input shared by a row of tiles is
    /// read once; the other once per row unless L2 still holds it.
    fn traffic(&self, product: &Product, [down, across]: [u64; 2], split: u64) -> f64 {
        let [a, b, c] = product.bytes.map(|bytes| bytes as f64);
        let l2 = self.gpu.l2_bytes as f64;
        // Concurrent rows of tiles share their reads.
        let together = (self.gpu.sms as f64 / across as f64).max(1.0);
        let again = if b / split as f64 <= l2 { 1.0 } else { (down as f64 / together).max(1.0) };
        let parts = if split > 1 { 2.0 * split as f64 + 1.0 } else { 1.0 };
        let along_rows = a + b * again;
        // The library walks along the other side if that is cheaper.
        let together = (self.gpu.sms as f64 / down as f64).max(1.0);
        let again = if a / split as f64 <= l2 { 1.0 } else { (across as f64 / together).max(1.0) };
        along_rows.min(a * again + b) + c * parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(name: &str) -> Network {
        Network::named(name).unwrap()
    }

    #[test]
    fn components_sum_to_the_iteration_time() {
        let time = time(&Spec::named("v100").unwrap(), &network("resnet50"), 32);
        let sum = time.product_seconds + time.sweep_seconds + time.launch_seconds;
        assert!((sum - time.seconds).abs() < 1e-12 && time.launch_seconds > 0.0);
        assert!((time.throughput - 32.0 / time.seconds).abs() < 1e-6);
    }

    #[test]
    fn a_last_wave_costs_as_much_as_a_full_one() {
        let spec = Spec::named("titan-xp").unwrap();
        let seconds = |tiles: u64| {
            let bytes = [1; 3];
            let product = Product { m: tiles * 128, n: 128, k: 1 << 16, count: 1, bytes, fast: false };
            spec.tiled_seconds(&product, [128, 128], 1)
        };
        assert_eq!(seconds(1), seconds(30));
        assert_eq!(seconds(31), 2.0 * seconds(30));
    }

    #[test]
    fn products_never_exceed_the_arithmetic_peak() {
        for name in crate::spec::names() {
            let spec = Spec::named(name).unwrap();
            let peak = spec.gpu.sms as f64 * spec.gpu.lanes as f64 * spec.gpu.clock_mhz * 1e6;
            for network in Network::all() {
                let time = time(&spec, &network, 256);
                let least = 2.8 * 256.0 * network.multiply_adds() as f64 / peak / spec.model.fast_gain;
                assert!(time.product_seconds > least, "{name} {}", network.name);
            }
        }
    }

    #[test]
    fn throughput_grows_with_the_batch_until_the_gpu_is_full() {
        let spec = Spec::named("titan-xp").unwrap();
        for network in Network::all() {
            let at = |batch| time(&spec, &network, batch).throughput;
            assert!(at(8) > 1.15 * at(1), "{}: {} {}", network.name, at(1), at(8));
            assert!((at(512) / at(256) - 1.0).abs() < 0.15, "{}: {} {}", network.name, at(256), at(512));
        }
    }
}
