//! A Buddy memory on a real GPU: compressed entries in device memory, overflow in pinned host
//! memory.
//!
//! ```no_run
//! use buddy_codec::CodecKind;
//! use buddy_core::Target;
//! use buddy_cuda::{BuddyPool, Carveout, DeviceBytes, Gpu};
//!
//! let gpu = Gpu::open(0)?;
//! let data = DeviceBytes::new(&gpu, 1 << 20)?;
//! let mut pool = BuddyPool::new(&gpu, 1 << 20, Carveout::Host, 1 << 20)?;
//! let buffer = pool.buffer(CodecKind::Bpc.train(&[]), Target::X2, 1 << 13)?;
//! let stream = gpu.stream()?;
//! buffer.write(&stream, 0, data.all())?;
//! buffer.read(&stream, 0, data.all())?;
//! buffer.stats(&stream)?;
//! gpu.wait(&stream)?;
//! println!("{} entries overflow", buffer.latest().overflowing);
//! # Ok::<(), buddy_cuda::Error>(())
//! ```
//!
//! The kernels are in `kernels/`: per-entry functions in `*.cuh`, which tests with a C++ compiler
//! prove equal to `buddy-codec`, and kernels in `*.cu`. NVRTC compiles them at first use, and a
//! cache on disk keeps them. Addresses and nibbles follow `buddy-core`, whose constants are passed
//! to the kernels.

mod activation;
mod allocation;
mod buffer;
mod bytes;
mod cache;
mod codecs;
mod csr;
mod decode;
mod driver;
mod error;
mod external;
mod frozen;
mod gpu;
mod host;
mod info;
mod kernels;
mod kv;
mod layout;
mod learned;
mod linear;
mod matrix;
mod norm;
mod pool;
mod report;
mod source;
mod survey;
#[cfg(feature = "tables")]
mod table;
mod tight;

pub use activation::{Activation, PackedActivation};
pub use allocation::Allocation;
pub use buffer::BuddyBuffer;
pub use bytes::{DeviceBytes, DeviceSpan};
pub use cache::cache_dir;
pub use codecs::{SURVEY_SHAPE, codecs, survey_groups};
pub use csr::CsrMatrix;
pub use cudarc::driver::CudaStream;
pub use decode::{Decoding, Pick, RmsNorm};
pub use driver::{Arguments, Launch};
pub use error::Error;
pub use external::{BufferBytes, BufferMemory, ExternalBuffer};
pub use frozen::FrozenBuffer;
pub use gpu::Gpu;
pub use info::{Info, architectures};
pub use kv::{
    Attend, AttentionArguments, AttentionPlan, Fresh, HostKv, HostRows, KvBytes, KvCache, KvMemory, KvRows,
    KvShape, KvView,
};
pub use layout::{BuddyView, Memory, Page};
pub use linear::{Combine, GroupedLinear, Linear, Output, Route, Trial, Weights};
pub use matrix::WritableMatrix;
pub use norm::{Channels, NormRelu};
pub use pool::{BuddyPool, Carveout};
pub use report::{Fault, FaultKind, Stats};
pub use source::{Header, Params, Source, constants, constants_header};
pub use survey::Surveyed;
#[cfg(feature = "tables")]
pub use table::Changed;
pub use tight::TightMatrix;
