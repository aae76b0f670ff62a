//! A folder for one writer at a time.

use std::{
    fs::{File, TryLockError},
    path::Path,
};

use crate::Error;

/// A folder that this process writes to; another one that claims it is refused while this lives.
/// The lock is the system's, on the folder itself: nothing lies in it, and nothing stays behind
/// after a crash.
#[derive(Debug)]
#[must_use = "the folder is free again when this is dropped"]
pub struct Claim(#[expect(dead_code, reason = "held for its lock")] File);

impl Claim {
    /// Claims a folder that exists.
    ///
    /// # Errors
    /// [`Error::Claimed`] if another writer has it, or if it cannot be opened.
    pub fn new(dir: &Path) -> Result<Self, Error> {
        let claim = || {
            let folder = File::open(dir)?;
            match folder.try_lock() {
                Err(TryLockError::WouldBlock) => Err(Error::Claimed),
                // A file system without locks: nobody can be kept out, and that is no reason not to
                // write.
                Ok(()) | Err(TryLockError::Error(_)) => Ok(Self(folder)),
            }
        };
        claim().map_err(|error| error.at(dir.display()))
    }
}
