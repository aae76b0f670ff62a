//! Files that appear whole or not at all.
//!
//! A file is written under another name beside its own and renamed when it is complete and on the
//! disk, so that not even a power cut leaves half of it. Whoever is interrupted calls
//! [`discard_partial`] before the end, so that not even the other name stays behind.

use std::{
    collections::{BTreeSet, hash_map::RandomState},
    fs::File,
    hash::{BuildHasher, Hasher},
    io::{self, BufWriter, Write},
    mem,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::Error;

/// Files that are being written now, under their temporary names.
static PARTIAL: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn partial() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PARTIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a file through `write` and puts it in place when it is complete. Something that is no
/// regular file, such as a pipe, is written to directly; of a symbolic link, what it names is
/// written, and the link stays.
///
/// # Errors
/// Whatever went wrong, with the path; nothing is left behind, and what was there before stays.
pub fn write_atomic(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Error> {
    let special = std::fs::metadata(path).is_ok_and(|meta| !meta.is_file());
    let result = match special {
        true => write_direct(path, write),
        false => behind_links(path).and_then(|path| write_beside(&path, write)),
    };
    result.map_err(|error| Error::Io(error).at(path.display()))
}

/// The most links that lead from one to the next, as Linux has it.
const MOST_LINKS: usize = 40;

/// The file that a path names behind symbolic links, whether it is there yet or not.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match std::fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links lead from one to the next"))
}

fn write_direct(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(File::options().write(true).open(path)?);
    write(&mut out)?;
    out.flush()
}

fn write_beside(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{:016x}.{}.part", process(), next()));
    let created = {
        // Held while the file is made, so that an interruption sees both or neither.
        let mut partial = partial();
        partial.insert(beside.clone());
        File::create(&beside)
    };
    let written = created.and_then(|file| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        write(&mut out)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        std::fs::rename(&beside, path)?;
        sync_folder(path);
        Ok(())
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    partial().remove(&beside);
    written
}

/// Brings the new name to the disk. The file is whole either way, so a file system that cannot is
/// no error.
fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// A number of this process that no other has, on any machine that shares the directory.
fn process() -> u64 {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    *PROCESS.get_or_init(|| {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        hasher.finish()
    })
}

/// A number that no other file of this process has.
fn next() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

/// Removes every file that is not complete, and lets no new one begin. For the end of an
/// interrupted process, and only there: writers that go on will wait for ever.
pub fn discard_partial() {
    let partial = partial();
    for path in partial.iter() {
        let _ = std::fs::remove_file(path);
    }
    mem::forget(partial);
}
