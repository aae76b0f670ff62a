//! Arrays in files, memory-mapped (feature `models`): raw dumps, `.npy`, `.npz`, `.safetensors`,
//! HDF5, GGUF and PyTorch.
//!
//! ```
//! let path = std::env::temp_dir().join(format!("buddy-files-{}.bin", std::process::id()));
//! std::fs::write(&path, [0; 4096])?;
//! for array in buddy::files::open(&path, Some(buddy::files::Dtype::F32))? {
//!     let packed = buddy::compress(array.bytes(), buddy::Options::default())?;
//!     println!("{}: {:.2}x", array.name, packed.ratio());
//! }
//! std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use buddy_core::Dtype;
pub use buddy_snapshot::{Array, Contents, Error, Format, Skipped, open, open_contents, open_raw};
