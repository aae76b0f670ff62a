//! A folder for one writer at a time.

use std::{
    fs::{File, TryLockError},
    path::Path,
};

use crate::Error;

/// A folder locked by this process; other processes that claim it are refused meanwhile. The lock
/// is the system's, on the folder itself: no lock file is left after a crash.
#[derive(Debug)]
#[must_use = "the folder is free again when this is dropped"]
pub struct Claim(#[expect(dead_code, reason = "held for its lock")] File);

impl Claim {
    /// Claims an existing folder.
    ///
    /// # Errors
    /// [`Error::Claimed`] if another writer has claimed it, or if it cannot be opened.
    pub fn new(dir: &Path) -> Result<Self, Error> {
        let claim = || {
            let folder = File::open(dir)?;
            match folder.try_lock() {
                Err(TryLockError::WouldBlock) => Err(Error::Claimed),
                // A file system without locks: writing goes on unprotected.
                Ok(()) | Err(TryLockError::Error(_)) => Ok(Self(folder)),
            }
        };
        claim().map_err(|error| error.at(dir.display()))
    }
}
