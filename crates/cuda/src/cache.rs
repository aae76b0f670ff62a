//! Compiled kernels on disk, one file for each source, option and driver.
//!
//! A file begins with its whole key, everything that the kernel was compiled from, and ends with a
//! checksum. Both are compared on load, so that neither a hash collision nor a damaged file gives a
//! wrong kernel.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use buddy_core::checksum;

/// Ends the key in a file; no source contains it.
const END: &[u8] = b"\0buddy kernels end of key\0";

/// Returns the folder of compiled kernels: `$BUDDY_CACHE_DIR`, or `buddy` in the user's cache
/// folder. Returns `None` if neither is known; kernels are then compiled each time.
pub fn cache_dir() -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = || var("XDG_CACHE_HOME").or_else(|| Some(var("HOME")?.join(".cache")));
    var("BUDDY_CACHE_DIR").or_else(|| Some(user()?.join("buddy")))
}

fn file_of(dir: &Path, key: &str) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    dir.join(format!("{:016x}.cubin", hasher.finish()))
}

/// Loads the image stored under a key.
pub(crate) fn load(dir: &Path, key: &str) -> Option<Vec<u8>> {
    let file = fs::read(file_of(dir, key)).ok()?;
    let (file, stated) = file.split_last_chunk()?;
    if checksum(file) != u32::from_le_bytes(*stated) {
        return None;
    }
    let image = file.strip_prefix(key.as_bytes())?.strip_prefix(END)?;
    (!image.is_empty()).then(|| image.to_vec())
}

/// Stores an image under a key. An unwritable cache is no error: the next run compiles again.
pub(crate) fn store(dir: &Path, key: &str, image: &[u8]) {
    let file = file_of(dir, key);
    let part = file.with_extension(format!("{}.part", std::process::id()));
    let mut whole = [key.as_bytes(), END, image].concat();
    whole.extend(checksum(&whole).to_le_bytes());
    let written = fs::create_dir_all(dir).and_then(|()| fs::write(&part, whole));
    // A rename is atomic, also between two processes.
    if written.and_then(|()| fs::rename(&part, &file)).is_err() {
        let _ = fs::remove_file(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_finds_the_image() {
        let dir = std::env::temp_dir().join(format!("buddy-cache-test-{}", std::process::id()));
        assert_eq!(load(&dir, "source and options"), None);
        store(&dir, "source and options", b"machine code");
        assert_eq!(load(&dir, "source and options").as_deref(), Some(&b"machine code"[..]));
        assert_eq!(load(&dir, "other options"), None);
        // A file with another key under this one's name, and a truncated one.
        fs::copy(file_of(&dir, "source and options"), file_of(&dir, "other options")).unwrap();
        assert_eq!(load(&dir, "other options"), None);
        let file = file_of(&dir, "source and options");
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() - 6;
        bytes[middle] ^= 1;
        fs::write(&file, bytes).unwrap();
        assert_eq!(load(&dir, "source and options"), None, "a bit of the machine code was turned");
        fs::write(file_of(&dir, "source and options"), b"source and opt").unwrap();
        assert_eq!(load(&dir, "source and options"), None);
        fs::remove_dir_all(dir).unwrap();
    }
}
