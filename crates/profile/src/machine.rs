//! What a plan must know of a GPU and a link: `specs/*.toml`, of which the simulator reads the rest.

use std::path::Path;

use buddy_core::specs::{GPUS, LINKS};
use serde::{Deserialize, de::DeserializeOwned};

use crate::Error;

/// A GPU, as far as memory goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// GB/s of its memory, at the peak.
    pub gb_per_s: f64,
}

/// A link to buddy memory.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// GB/s in each direction.
    pub gb_per_s: f64,
}

/// The fields of a GPU's file that are read.
#[derive(Deserialize)]
struct GpuFile {
    name: String,
    dram: Dram,
}

#[derive(Deserialize)]
struct Dram {
    capacity_bytes: u64,
    channels: u32,
    clock_mhz: f64,
    bytes_per_clock: f64,
}

impl Gpu {
    /// A GPU by its name, or by the path of its file.
    ///
    /// # Errors
    /// A name that is none, or a file that does not have the fields.
    pub fn named(name: &str) -> Result<Self, Error> {
        let GpuFile { name: called, dram } = find("GPU", name, &GPUS)?;
        let gb_per_s = f64::from(dram.channels) * dram.clock_mhz * dram.bytes_per_clock / 1000.0;
        positive(name, "the bandwidth of its memory", gb_per_s)?;
        Ok(Self { name: called, memory_bytes: dram.capacity_bytes, gb_per_s })
    }
}

impl Link {
    /// A link by its name, or by the path of its file.
    ///
    /// # Errors
    /// A name that is none, or a file that does not have the fields.
    pub fn named(name: &str) -> Result<Self, Error> {
        let link: Self = find("link", name, &LINKS)?;
        positive(name, "gb_per_s", link.gb_per_s)?;
        Ok(link)
    }
}

fn find<T: DeserializeOwned>(what: &'static str, name: &str, known: &[(&str, &str)]) -> Result<T, Error> {
    let wrong = |what: String| Error::File { path: name.to_owned(), what };
    let text = match known.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => (*text).to_owned(),
        None if Path::new(name).extension().is_some_and(|extension| extension == "toml") => {
            std::fs::read_to_string(name).map_err(|error| wrong(error.to_string()))?
        }
        None => {
            let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            return Err(Error::UnknownSpec { what, name: name.to_owned(), known: known.join(", ") });
        }
    };
    toml::from_str(&text).map_err(|error| wrong(format!("not the file of a {what}: {}", error.message())))
}

fn positive(path: &str, field: &str, value: f64) -> Result<(), Error> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(Error::File { path: path.to_owned(), what: format!("{field} is {value}; it must be above 0") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_read() {
        for (name, _) in GPUS {
            let gpu = Gpu::named(name).unwrap();
            assert!(gpu.memory_bytes > 1 << 30 && gpu.gb_per_s > 100.0, "{gpu:?}");
        }
        for (name, _) in LINKS {
            assert!(Link::named(name).unwrap().gb_per_s > 1.0);
        }
        let h200 = Gpu::named("h200").unwrap();
        assert!((4700.0..4900.0).contains(&h200.gb_per_s) && h200.memory_bytes > 130 << 30, "{h200:?}");
    }

    #[test]
    fn what_is_no_machine_is_refused() {
        let error = Gpu::named("h2000").unwrap_err().to_string();
        assert!(error.starts_with("unknown GPU 'h2000'; known are paper, p100"), "{error}");
        assert!(Link::named("pcie9").unwrap_err().to_string().contains("pcie5, c2c"));
        assert!(Gpu::named("/no/such.toml").unwrap_err().to_string().contains("No such file"));
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(file.path(), "name = \"x\"\ngb_per_s = -1.0\n").unwrap();
        let path = file.path().to_str().unwrap();
        assert!(Link::named(path).unwrap_err().to_string().contains("gb_per_s is -1"));
        assert!(Gpu::named(path).unwrap_err().to_string().contains("missing field `dram`"));
    }
}
