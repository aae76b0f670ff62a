//! Compact versions of the paper's HPC workloads, computing real values on any machine.
//!
//! A [`Workload`] is a running program: it steps, exposes its named arrays, and checks its own
//! answer. [`ALL`] lists them; [`Info::build`] creates one at a chosen footprint and [`run`] drives
//! it through its ten snapshots. Each is in a file or folder of its own.

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

/// All workloads, in the paper's order.
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
