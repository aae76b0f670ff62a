//! Everything that decides a simulation besides its kernels.

use crate::{ClassMap, Mode, spec};

/// What to simulate on.
#[derive(Debug, Clone)]
pub struct Config {
    /// The GPU that is modelled, as `specs/` describes it.
    pub gpu: spec::Gpu,
    /// The link to buddy or host memory.
    pub link: spec::Link,
    /// How its memory works.
    pub mode: Mode,
    /// The allocations and the size classes of their entries.
    pub map: ClassMap,
    /// With Unified Memory, the share of the allocations that does not fit device memory: 0 to 0.5.
    pub oversubscription: f64,
    /// Whether copies from the host take time.
    pub timed_copies: bool,
    /// Cycles between two samples of the timeline; none without.
    pub sample_cycles: Option<u64>,
}

impl Config {
    /// The ideal mode without allocations.
    pub fn new(gpu: spec::Gpu, link: spec::Link) -> Self {
        Self {
            gpu,
            link,
            mode: Mode::Ideal,
            map: ClassMap::default(),
            oversubscription: 0.0,
            timed_copies: false,
            sample_cycles: None,
        }
    }
}
