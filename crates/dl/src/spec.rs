//! GPU figures and constants of the throughput model.

use buddy_record::spec;

use crate::Error;

/// A GPU, and the constants of the throughput model.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// GPU that runs the iteration.
    pub gpu: Gpu,
    /// Constants, the same for every GPU and network.
    pub model: Model,
}

/// GPU figures of the throughput model: from its file in `specs/`, at the clock of its `[training]`
/// table.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// Name in records.
    pub name: String,
    /// Device memory available to programs, in bytes.
    pub device_bytes: u64,
    /// Number of SMs; each runs one tile at a time.
    pub sms: u64,
    /// Single-precision multiply-adds per SM and cycle.
    pub lanes: u64,
    /// SM clock in training, in MHz.
    pub clock_mhz: f64,
    /// L2 bytes over all slices.
    pub l2_bytes: u64,
    /// Bytes per cycle from L2 to an SM.
    pub l2_bytes_per_cycle: f64,
    /// Peak bandwidth of device memory in GB/s.
    pub dram_gb_per_s: f64,
}

/// Constants of the throughput model; `docs/notes/case-study.md` gives their sources.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Share of peak that an SM reaches in the inner loop of a matrix product.
    pub math_share: f64,
    /// Share of peak bandwidth that device memory reaches.
    pub dram_share: f64,
    /// Speedup of stride-1 convolutions with 3 by 3 or larger filters by Winograd or FFT, all costs
    /// included.
    pub fast_gain: f64,
    /// Microseconds between two kernels: framework, driver and GPU.
    pub launch_us: f64,
    /// Cycles of a tile outside its inner loop.
    pub tile_cycles: f64,
}

impl Default for Model {
    /// The first three are fitted to the published throughputs (example `fit`).
    fn default() -> Self {
        Self { math_share: 0.585, fast_gain: 2.06, launch_us: 44.6, dram_share: 0.85, tile_cycles: 2000.0 }
    }
}

impl Spec {
    /// Returns a GPU with a `[training]` table, by name or file.
    ///
    /// # Errors
    /// [`Error::Spec`] if the file cannot be read, [`Error::NoTraining`] if it has no such table.
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

/// Returns the names of the GPUs with a `[training]` table.
pub(crate) fn names() -> Vec<&'static str> {
    spec::Gpu::names().filter(|name| Spec::named(name).is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_of_the_published_tables_have_training_figures() {
        assert_eq!(names(), ["p100", "titan-x", "titan-xp", "v100"]);
        let Gpu { sms, lanes, clock_mhz, dram_gb_per_s, .. } = Spec::named("titan-xp").unwrap().gpu;
        assert_eq!((sms, lanes, clock_mhz, dram_gb_per_s.round()), (30, 128, 1582.0, 548.0));
        let v100 = Spec::named("v100").unwrap().gpu;
        assert_eq!((v100.lanes, v100.clock_mhz, v100.l2_bytes_per_cycle), (64, 1530.0, 64.0));
    }

    #[test]
    fn a_gpu_without_training_figures_is_an_error_that_lists_the_others() {
        assert!(Spec::named("voodoo").unwrap_err().to_string().contains("unknown GPU 'voodoo'"));
        let error = Spec::named("h200").unwrap_err().to_string();
        assert_eq!(error, "h200 has no [training] table; p100, titan-x, titan-xp, v100 have one");
    }
}
