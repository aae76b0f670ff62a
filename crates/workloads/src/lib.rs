//! Programs whose memory is studied: compact versions of the paper's HPC workloads, whose values evolve by real
//! numerics on any machine.
//!
//! A [`Workload`] is a running program: it steps, shows its named arrays, and checks its own answer. [`ALL`]
//! lists them; [`Info::build`] makes one at a chosen footprint. Each lives in one file or folder named for it.

#![forbid(unsafe_code)]

mod bt;
mod cg;
mod ep;
mod flow;
mod lcg;
mod sp;
mod workload;

pub use workload::{Allocation, Check, Info, Workload};

/// Every workload, in the paper's order.
#[rustfmt::skip]
pub const ALL: &[Info] = &[
    ep::INFO,
    cg::INFO,
    sp::INFO,
    sp::CSP_INFO,
    bt::INFO,
];
