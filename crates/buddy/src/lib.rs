//! Buddy Compression: lossless compression of memory with random access.
//!
//! Data is divided into 128-byte [entries](Entry), and each entry is compressed on its own. One
//! entry can be read without its neighbours. The method is that of *Buddy Compression: Enabling
//! Larger Memory for Deep Learning and HPC Workloads on GPUs* (ISCA 2020).
//!
//! # Quick start
//!
//! [`compress`] chooses a codec and a target from the data:
//!
//! ```
//! let data: Vec<u8> = (0..50_000_u32).flat_map(|i| (3 * i).to_le_bytes()).collect();
//!
//! let packed = buddy::compress(&data, buddy::Options::default())?;
//! assert!(packed.ratio() > 2.0);
//! assert_eq!(packed.entry(7)?[..], data[7 * 128..8 * 128]);
//! assert_eq!(packed.decompress()?, data);
//! # Ok::<(), buddy::Error>(())
//! ```
//!
//! The packed bytes are self-describing and can be stored:
//!
//! ```
//! use buddy::{Options, Packed};
//!
//! let packed = buddy::compress(&[7; 1 << 16], Options::default())?;
//! let stored: Vec<u8> = packed.into_bytes();
//! assert_eq!(Packed::from_bytes(stored)?.decompress()?, [7; 1 << 16]);
//! # Ok::<(), buddy::Error>(())
//! ```
//!
//! # Writable compressed memory
//!
//! [`Memory`] holds allocations that are read and written at any offset. A target fixes the device
//! bytes of every entry; entries that need more overflow to buddy memory.
//!
//! ```
//! use buddy::memory::{Request, Spec};
//! use buddy::{CodecKind, Memory, Target};
//!
//! let memory = Memory::new(Spec::new(1 << 20))?;
//! let codec = CodecKind::Bpc.train(&[]);
//! let ramp = memory.allocate(&Request::new(1 << 18, codec, Target::X2))?;
//!
//! let data: Vec<u8> = (0..1_u32 << 16).flat_map(u32::to_le_bytes).collect();
//! memory.write(ramp, 0, &data)?;
//! let mut some = [0; 1000];
//! memory.read(ramp, 500, &mut some)?;
//! assert_eq!(some[..], data[500..1500]);
//!
//! // The entries take at most 32 bytes, so a larger target fits.
//! let moved = memory.retarget(ramp, &Target::X4.into())?;
//! assert_eq!(moved.device_bytes_before, 2 * moved.device_bytes_after);
//!
//! let usage = memory.report_allocation(ramp)?.usage;
//! assert_eq!((usage.ratio, usage.entries_overflowing), (Some(4.0), 0));
//! memory.free(ramp)?;
//! # Ok::<(), buddy::memory::Error>(())
//! ```
//!
//! # Features
//!
//! | feature | module | contents |
//! |---|---|---|
//! | `gpu` | `buddy::gpu` | compressed memory on an NVIDIA GPU; needs the driver at run time only |
//! | `models` | `buddy::files`, `buddy::models` | readers of array files; safetensors models packed and unpacked |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod choose;
#[cfg(feature = "models")]
pub mod files;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod memory;
#[cfg(feature = "models")]
pub mod models;
mod packed;

pub use buddy_codec::{Codec, CodecKind, Error};
pub use buddy_core::{ENTRY_BYTES, Entry, Target};
pub use buddy_memory::BuddyMemory as Memory;
pub use choose::Options;
pub use packed::{Packed, compress};

// Its examples are tests of this crate.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
