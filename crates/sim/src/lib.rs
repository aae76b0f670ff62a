//! A model GPU: computes the time and memory traffic of a trace, with memory compressed and split
//! over a link.
//!
//! A [`Simulator`] runs [kernels](buddy_trace::Kernel) on a [GPU](spec::Gpu) with a
//! [link](spec::Link) in a [`Mode`]. A [`ClassMap`] gives the size class of each entry; no codec is
//! called. The result is a [`Report`]. The model follows the paper's "Performance Evaluation";
//! `docs/explain/model-gpu.md` explains it.
//!
//! A simulation skips cycles without events. Its result is the same to the bit on any number of
//! threads ([`Config::threads`]).

#![forbid(unsafe_code)]

mod bandwidth;
mod bind;
mod by_kernel;
mod cache;
mod coalesce;
mod config;
mod crew;
mod dram;
mod error;
mod gpu;
mod l2;
mod link;
mod lru;
mod map;
mod memory;
mod params;
mod request;
mod sm;
mod sorted;
mod stats;
mod sync;
mod targets;
mod timeline;
mod tlb;
mod totals;
mod um;

pub use buddy_record::spec;
pub use by_kernel::KernelSum;
pub use config::Config;
pub use error::Error;
pub use gpu::Simulator;
pub use map::{Allocation, ClassMap, Classes, Home};
pub use memory::Mode;
pub use stats::{
    BuddyReport, DramReport, KernelReport, L1Report, L2Report, Limit, LinkReport, Report, StallReport,
    UmReport,
};
pub use targets::{TargetsFile, uniform_map};
pub use timeline::Timeline;
