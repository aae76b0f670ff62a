//! Models in safetensors files, with packed bf16 matrices (feature `models`).
//!
//! ```
//! use buddy::models::{pack_file, unpack_file};
//!
//! let folder = std::env::temp_dir().join(format!("buddy-models-{}", std::process::id()));
//! std::fs::create_dir_all(&folder)?;
//! let [plain, packed, back] =
//!     ["plain", "packed", "back"].map(|name| folder.join(name).with_extension("safetensors"));
//!
//! // A matrix of 64 x 64 values, each 1.0 in bf16.
//! let mut file = br#"{"weight":{"dtype":"BF16","shape":[64,64],"data_offsets":[0,8192]}}"#.to_vec();
//! file.splice(0..0, (file.len() as u64).to_le_bytes());
//! file.extend([0x80, 0x3f].repeat(64 * 64));
//! std::fs::write(&plain, &file)?;
//!
//! let sizes = pack_file(&plain, &packed, &|_| ())?;
//! assert!(sizes.packed < sizes.plain);
//! unpack_file(&packed, &back, &|_| ())?;
//! assert_eq!(std::fs::read(&back)?, file);
//! std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use buddy_model::{
    Checked, Error, Job, Progress, Report, Sizes, pack, pack_file, unpack, unpack_file, verify, verify_file,
    verify_shards,
};
