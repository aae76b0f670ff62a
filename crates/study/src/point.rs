//! One simulation: which program on which GPU, over which link, with which memory.

use buddy_core::spec::{Gpu, Link, SpecError};
use buddy_sim::{Config, Mode};
use serde::{Deserialize, Serialize};

/// What decides a simulation, besides the program's memory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The HPC program or the network.
    pub program: String,
    /// The GPU.
    pub gpu: String,
    /// GB/s of the link, in each direction.
    pub link: u32,
    /// How memory works.
    pub mode: Mode,
    /// Bytes of metadata cache in each slice, if not the GPU's own.
    pub metadata_bytes: Option<u32>,
    /// With Unified Memory, percent of the memory that does not fit.
    pub oversubscription: u32,
}

impl Point {
    /// A simulation on the paper's GPU with its link.
    pub fn new(program: &str, mode: Mode) -> Self {
        let (program, gpu) = (program.to_owned(), "paper".to_owned());
        Self { program, gpu, link: 150, mode, metadata_bytes: None, oversubscription: 0 }
    }

    /// With another link.
    #[must_use]
    pub fn link(self, link: u32) -> Self {
        Self { link, ..self }
    }

    /// Its name in messages.
    pub fn name(&self) -> String {
        let metadata = self.metadata_bytes.map(|bytes| format!(", {bytes} B of metadata a slice"));
        let over = if self.oversubscription > 0 {
            format!(", {}% over", self.oversubscription)
        } else {
            String::new()
        };
        format!(
            "{} {} at {} GB/s{}{over}",
            self.program,
            self.mode.name(),
            self.link,
            metadata.unwrap_or_default()
        )
    }

    /// The configuration, without the program's allocations.
    ///
    /// # Errors
    /// If there is no such GPU, or a metadata cache of this size cannot be.
    pub fn config(&self) -> Result<Config, buddy_sim::Error> {
        let mut gpu = Gpu::named(&self.gpu)?;
        if let Some(bytes) = self.metadata_bytes {
            gpu.buddy.metadata_bytes = bytes;
            gpu.check().map_err(|why| SpecError::File { file: self.gpu.clone(), why })?;
        }
        let link = Link::plain(&format!("{} GB/s", self.link), f64::from(self.link))?;
        let oversubscription = f64::from(self.oversubscription) / 100.0;
        Ok(Config { mode: self.mode, oversubscription, ..Config::new(gpu, link) })
    }
}
