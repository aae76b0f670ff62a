//! Compressed memory on an NVIDIA GPU (feature `gpu`).
//!
//! Entries are stored in device memory and overflow to pinned host memory. The kernels are compiled
//! at first use. Without a driver, [`Gpu::open`] returns an error:
//!
//! ```
//! use buddy::gpu::{BuddyPool, Carveout, DeviceBytes, Error, Gpu};
//! use buddy::{CodecKind, Target};
//!
//! fn store(gpu: &Gpu) -> Result<(), Error> {
//!     let data = DeviceBytes::new(gpu, 1 << 20)?;
//!     let mut pool = BuddyPool::new(gpu, 1 << 20, Carveout::Host, 1 << 20)?;
//!     let buffer = pool.buffer(CodecKind::Bpc.train(&[]), Target::X2, 1 << 13)?;
//!     let stream = gpu.stream()?;
//!     buffer.write(&stream, 0, data.all())?;
//!     buffer.read(&stream, 0, data.all())?;
//!     gpu.wait(&stream)
//! }
//!
//! match Gpu::open(0) {
//!     Ok(gpu) => store(&gpu)?,
//!     Err(error) => eprintln!("no GPU: {error}"),
//! }
//! # Ok::<(), Error>(())
//! ```

pub use buddy_cuda::{
    BuddyBuffer, BuddyPool, Carveout, DeviceBytes, DeviceSpan, Error, FrozenBuffer, Gpu, Info, Stats,
};
