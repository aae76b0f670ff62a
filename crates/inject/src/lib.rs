//! Measures the memory of any CUDA program while it runs.
//!
//! A library that the program loads when CUDA starts ([`INJECTED`]) follows its allocations through
//! NVIDIA's CUPTI, and surveys them in place with the size kernels. It writes a log; [`watch`] runs
//! the program and reads the log of each of its processes ([`Watched`]), from which
//! [`record`](Watched::record) makes a run record. `docs/guide/hpc-programs.md` is the guide.

#![forbid(unsafe_code)]

mod child;
mod dump;
mod error;
mod log;
mod looks;
mod record;
mod report;
mod run;
#[cfg(test)]
mod tests;
mod training;

pub use dump::collect;
pub use error::Error;
pub use log::{Slot, Totals, Watched, parse};
pub use looks::{Look, Seen};
pub use report::report;
pub use run::{Request, When, cupti_files, prepare, run_unwatched, watch};
pub use training::{Learned, Train, TrainedCodec, UNTRAINED};

/// The library that a watched program loads.
pub const INJECTED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libbuddy_watch.so"));
