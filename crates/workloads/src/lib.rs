//! Programs whose memory is studied: compact versions of the paper's HPC workloads, whose values evolve by real
//! numerics on any machine.
//!
//! A [`Workload`] is a running program: it steps, shows its named arrays, and checks its own answer. [`ALL`]
//! lists them; [`Info::build`] makes one at a chosen footprint and [`run`] drives it through its ten snapshots. Each
//! lives in one file or folder named for it.

#![forbid(unsafe_code)]

mod bt;
mod cg;
mod ep;
mod flow;
mod hpgmg;
mod ilbdc;
mod layout;
mod lcg;
mod lockstep;
mod lulesh;
mod palm;
mod random;
mod run;
mod seismic;
mod sp;
mod workload;

pub use run::{SNAPSHOTS, Step, describe, run};
pub use workload::{Allocation, Check, Info, Workload};

/// Every workload, in the paper's order.
#[rustfmt::skip]
pub const ALL: &[Info] = &[
    palm::INFO,
    ep::INFO,
    cg::INFO,
    seismic::INFO,
    sp::INFO,
    sp::CSP_INFO,
    ilbdc::INFO,
    bt::INFO,
    hpgmg::INFO,
    lulesh::INFO,
];
