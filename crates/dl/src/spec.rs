//! What the throughput model takes of a GPU, and its own constants.

use buddy_core::spec;

use crate::Error;

/// A GPU, and the constants of the throughput model.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The GPU that an iteration runs on.
    pub gpu: Gpu,
    /// The constants, the same for every GPU and network.
    pub model: Model,
}

/// What the throughput model knows of a GPU: figures of its file in `specs/`, at the clock of its `[training]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// Its name in records.
    pub name: String,
    /// Device memory that programs may use.
    pub device_bytes: u64,
    /// Multiprocessors, each of which takes one tile at a time.
    pub sms: u64,
    /// Multiply-adds in single precision of an SM in a cycle.
    pub lanes: u64,
    /// Clock of the SMs in training.
    pub clock_mhz: f64,
    /// Bytes of L2, all slices together.
    pub l2_bytes: u64,
    /// Bytes that an SM receives from L2 in a cycle.
    pub l2_bytes_per_cycle: f64,
    /// Peak bandwidth of device memory.
    pub dram_gb_per_s: f64,
}

/// The constants of the throughput model. `docs/notes/case-study.md` says where each comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Share of its peak that an SM reaches in the inner loop of a matrix product.
    pub math_share: f64,
    /// Share of its peak bandwidth that device memory reaches.
    pub dram_share: f64,
    /// How many times faster convolutions of stride 1 with filters of 3 by 3 or more are by Winograd's algorithm
    /// or Fourier transforms, all costs counted.
    pub fast_gain: f64,
    /// Time between the end of a kernel and the beginning of the next: the framework's, the driver's and the GPU's.
    pub launch_us: f64,
    /// Cycles of a tile before and after its inner loop.
    pub tile_cycles: f64,
}

impl Default for Model {
    /// The first three are fitted to the published throughputs (example `fit`), the others are not.
    fn default() -> Self {
        Self { math_share: 0.585, fast_gain: 2.06, launch_us: 44.6, dram_share: 0.85, tile_cycles: 2000.0 }
    }
}

impl Spec {
    /// A GPU of `specs/` by its name, or a file: one that has a `[training]` table.
    ///
    /// # Errors
    /// [`Error::Spec`] if it cannot be read, [`Error::NoTraining`] if it has no such table.
    pub fn named(name: &str) -> Result<Self, Error> {
        let gpu = spec::Gpu::named(name)?;
        let training = gpu.training.as_ref().ok_or_else(|| Error::NoTraining(name.to_owned()))?;
        let gpu = Gpu {
            device_bytes: training.usable_bytes,
            sms: gpu.core.sms.into(),
            lanes: (32 * gpu.core.schedulers / gpu.interval.fp32).into(),
            clock_mhz: training.clock_mhz,
            l2_bytes: gpu.l2.bytes,
            l2_bytes_per_cycle: gpu.interconnect.reply_bytes_per_cycle.into(),
            dram_gb_per_s: gpu.dram_gb_per_s(),
            name: gpu.name,
        };
        Ok(Self { gpu, model: Model::default() })
    }
}

/// Names of the GPUs that have figures for training.
pub(crate) fn names() -> Vec<&'static str> {
    spec::Gpu::names().filter(|name| Spec::named(name).is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gpus_of_the_published_tables() {
        assert_eq!(names(), ["p100", "titan-x", "titan-xp", "v100"]);
        let Gpu { sms, lanes, clock_mhz, dram_gb_per_s, .. } = Spec::named("titan-xp").unwrap().gpu;
        assert_eq!((sms, lanes, clock_mhz, dram_gb_per_s.round()), (30, 128, 1582.0, 548.0));
        let v100 = Spec::named("v100").unwrap().gpu;
        assert_eq!((v100.lanes, v100.clock_mhz, v100.l2_bytes_per_cycle), (64, 1530.0, 64.0));
    }

    #[test]
    fn another_gpu_is_refused_with_those_there_are() {
        assert!(Spec::named("voodoo").unwrap_err().to_string().contains("no GPU 'voodoo'"));
        let error = Spec::named("h200").unwrap_err().to_string();
        assert_eq!(error, "h200 has no [training] table; p100, titan-x, titan-xp, v100 have one");
    }
}
