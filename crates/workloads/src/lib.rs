//! Programs whose memory is studied: compact versions of the paper's HPC workloads, whose values evolve by real
//! numerics on any machine.
//!
//! A [`Workload`] is a running program: it steps, shows its named arrays, and checks its own answer. [`ALL`]
//! lists them; [`Info::build`] makes one at a chosen footprint. Each lives in one file or folder named for it.

#![forbid(unsafe_code)]

pub mod hpgmg;
pub mod ilbdc;
mod lockstep;
pub mod lulesh;
pub mod palm;
mod random;
pub mod seismic;
mod workload;

pub use workload::{Allocation, Check, Info, Workload};

/// Every workload, in the paper's order.
pub const ALL: &[Info] = &[palm::INFO, seismic::INFO, ilbdc::INFO, hpgmg::INFO, lulesh::INFO];
