//! Configuration of a simulation, apart from its kernels.

use crate::{ClassMap, Mode, spec};

/// GPU, link, memory mode and data of a simulation.
#[derive(Debug, Clone)]
pub struct Config {
    /// GPU model, from `specs/`.
    pub gpu: spec::Gpu,
    /// The link to buddy or host memory.
    pub link: spec::Link,
    /// Memory system behind L2.
    pub mode: Mode,
    /// Allocations and the size classes of their entries.
    pub map: ClassMap,
    /// In mode `Um`, the share of the allocations that does not fit device memory: 0 to 0.5.
    pub oversubscription: f64,
    /// If true, copies from the host take time.
    pub timed_copies: bool,
    /// Cycles between two timeline samples; no timeline if `None`.
    pub sample_cycles: Option<u64>,
    /// Threads of the simulation, at most one per SM; the result does not depend on it. They wait for
    /// each other every few microseconds, so each needs a core of its own.
    pub threads: usize,
}

impl Config {
    /// Returns the ideal mode without allocations.
    pub fn new(gpu: spec::Gpu, link: spec::Link) -> Self {
        Self {
            gpu,
            link,
            mode: Mode::Ideal,
            map: ClassMap::default(),
            oversubscription: 0.0,
            timed_copies: false,
            sample_cycles: None,
            threads: 1,
        }
    }
}
