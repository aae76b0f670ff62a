//! GPUs for training as data: `specs/training/*.toml`, validated once.

use serde::{Deserialize, Serialize};

use crate::Error;

/// A GPU, and the constants of the throughput model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The GPU.
    pub gpu: Gpu,
    /// The constants, the same for every GPU and network.
    pub model: Model,
}

/// What the throughput model knows of a GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Its name in records.
    pub name: String,
    /// Device memory that programs may use.
    pub device_bytes: u64,
    /// Multiprocessors.
    pub sms: u64,
    /// Multiply-adds in single precision of an SM in a cycle.
    pub lanes: u64,
    /// Clock of the SMs.
    pub clock_mhz: f64,
    /// Bytes of L2.
    pub l2_bytes: u64,
    /// Bytes that an SM receives from L2 in a cycle.
    pub l2_bytes_per_cycle: f64,
    /// Peak bandwidth of device memory.
    pub dram_gb_per_s: f64,
}

/// The constants of the throughput model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// Name and text of each GPU.
const GPUS: [(&str, &str); 4] = [
    ("titan-x", include_str!("../../../specs/training/titan-x.toml")),
    ("titan-xp", include_str!("../../../specs/training/titan-xp.toml")),
    ("p100", include_str!("../../../specs/training/p100.toml")),
    ("v100", include_str!("../../../specs/training/v100.toml")),
];

/// Names of the GPUs that there are figures for.
pub(crate) fn names() -> Vec<&'static str> {
    GPUS.iter().map(|(name, _)| *name).collect()
}

impl Spec {
    /// A GPU of `specs/training` by its name: `titan-x` (Maxwell), `titan-xp`, `p100` or `v100`.
    ///
    /// # Errors
    /// [`Error::Gpu`] if there is none of that name.
    pub fn named(name: &str) -> Result<Self, Error> {
        let (file, text) =
            GPUS.iter().find(|(known, _)| *known == name).ok_or(Error::Gpu(name.to_owned()))?;
        Self::parse(file, text, include_str!("../../../specs/training/model.toml"))
    }

    /// Reads and checks a GPU and the constants.
    ///
    /// # Errors
    /// [`Error::Spec`] that names the file and the field.
    pub fn parse(file: &str, gpu: &str, model: &str) -> Result<Self, Error> {
        let error = |why: String| Error::Spec { file: file.to_owned(), why };
        let read = |error: toml::de::Error| error.to_string().trim_end().replace('\n', " ");
        let spec = Self {
            gpu: toml::from_str(gpu).map_err(|why| error(read(why)))?,
            model: toml::from_str(model).map_err(|why| error(read(why)))?,
        };
        spec.check().map_err(error)?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), String> {
        let Self { gpu, model } = self;
        for (field, value, most) in [
            ("device_bytes", gpu.device_bytes as f64, 1e13),
            ("sms", gpu.sms as f64, 1e3),
            ("lanes", gpu.lanes as f64, 1e3),
            ("clock_mhz", gpu.clock_mhz, 1e4),
            ("l2_bytes", gpu.l2_bytes as f64, 1e10),
            ("l2_bytes_per_cycle", gpu.l2_bytes_per_cycle, 1e3),
            ("dram_gb_per_s", gpu.dram_gb_per_s, 1e5),
            ("math_share", model.math_share, 1.0),
            ("dram_share", model.dram_share, 1.0),
            ("fast_gain", model.fast_gain, 4.0),
            ("launch_us", model.launch_us, 1e3),
            ("tile_cycles", model.tile_cycles, 1e6),
        ] {
            if !(value > 0.0 && value <= most) {
                return Err(format!("{field} is {value}; it must lie above 0 and be at most {most}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_valid_and_named_for_its_file() {
        for name in names() {
            assert_eq!(Spec::named(name).unwrap().gpu.name, name);
        }
        assert!(Spec::named("voodoo").unwrap_err().to_string().contains("titan-xp"));
    }

    #[test]
    fn a_defect_is_named_on_one_line() {
        let (gpu, model) = (GPUS[0].1, include_str!("../../../specs/training/model.toml"));
        let error = |gpu: &str| Spec::parse("x", gpu, model).unwrap_err().to_string();
        assert!(error(&gpu.replace("sms = 24", "sms = 0")).contains("sms is 0"));
        let unknown = error(&format!("{gpu}colour = 1\n"));
        assert!(unknown.contains("colour") && !unknown.contains('\n'), "{unknown}");
    }
}
