//! The lab of `buddy-cuda`, which users do not link: [`check()`] compares the GPU with the CPU bit
//! for bit; [`bench()`] compares the runtime with a copy; [`compressible()`] measures
//! memory that the GPU itself compresses; [`fused()`] compares kernels in
//! compressed memory with the same work in plain memory and with cuBLASLt; [`large()`] runs a wave
//! larger than device memory; [`soak()`] writes and reads for a long time; [`micro()`] times and
//! traces small kernels for comparison with the simulator.
//!
//! They share [`Lab`]: timing, comparison, and data made on the GPU. Its kernels are in `kernels/`.

mod attention;
mod bench;
mod cg;
mod check;
mod compressible;
mod data;
mod error;
mod fused;
mod lab;
mod large;
mod matrix;
mod micro;
mod nvcomp;
mod soak;
mod testing;
mod vendor;

pub use attention::{AttentionReport, AttentionRow, attention, check_attention, check_small_attention};
pub use bench::{BenchReport, BenchRow, bench};
pub use cg::{CG_CELLS, CgAsk, CgReport, CgRun, cg};
pub use check::{CheckCase, CheckReport, check};
pub use compressible::{
    CompressibleCase, CompressibleReport, CompressibleRow, alternating, compressible, compressible_cases,
};
pub use data::Fill;
pub use error::Error;
pub use fused::{
    Example, FusedReport, FusedRow, LLAMA, LinearTrials, Shapes, SpmvShape, StencilShape, Summary, TrialTime,
    Wrong, check_linear, check_linear_shapes, fused, tune,
};
pub use lab::{HEADERS, Lab, sources};
pub use large::{
    AllAlive, Grid, LargeAsk, LargeCheck, LargeNews, LargePicture, LargeReport, LargeRun, Moment, Plan,
    Reference, WaveProblem, Way, large,
};
pub use micro::{MicroRow, micro, micro_once, micro_sources};
pub use soak::{SoakAsk, SoakReport, soak};
pub use testing::on_gpu;
