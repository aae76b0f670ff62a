//! Files that appear complete or not at all.
//!
//! A file is written under a temporary name in the same folder, synced to disk, and renamed, so
//! that not even a power failure leaves a partial file. An interrupted process calls
//! [`discard_partial`] before it exits, which removes temporary files. Those of a killed process are
//! found by [`discard_abandoned`]: nobody holds their lock.

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

/// Temporary names of the files being written.
static PARTIAL: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn partial() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PARTIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a file through `write` and renames it when it is complete. Writes directly to anything
/// but a regular file, such as a pipe. Follows a symbolic link and keeps it.
///
/// # Errors
/// Any failure, with the path; no partial file is left, and an existing file stays unchanged.
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

/// The most links that are followed, as on Linux.
const MOST_LINKS: usize = 40;

/// Resolves symbolic links; the file need not exist.
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
        // Locked while the file is created, so that an interruption sees both or neither.
        let mut partial = partial();
        partial.insert(beside.clone());
        create_locked(&beside)
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

/// Creates a file and locks it, where the file system has locks.
fn create_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = File::create(path)?;
        let _ = file.try_lock();
        // Another process may have taken it for abandoned before it was locked.
        if path.exists() {
            return Ok(file);
        }
    }
}

/// Returns whether a file name is a temporary one of [`write_atomic`].
pub fn is_partial(name: &str) -> bool {
    let inner = name.strip_prefix('.').and_then(|name| name.strip_suffix(".part"));
    let Some((rest, count)) = inner.and_then(|name| name.rsplit_once('.')) else { return false };
    let Some((name, process)) = rest.rsplit_once('.') else { return false };
    let numbered = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    !name.is_empty()
        && numbered
        && process.len() == 16
        && process.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Removes the temporary files of killed processes from a folder.
pub fn discard_abandoned(folder: &Path) {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for path in
        names.filter(|entry| is_partial(&entry.file_name().to_string_lossy())).map(|entry| entry.path())
    {
        let abandoned = File::open(&path).is_ok_and(|file| file.try_lock().is_ok());
        if abandoned {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Syncs the folder. The file is complete either way, so failure is no error.
fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// Returns a number unique to this process on all machines that share the directory.
fn process() -> u64 {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    *PROCESS.get_or_init(|| {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        hasher.finish()
    })
}

/// Returns a number unique among this process's files.
fn next() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

/// Removes all incomplete files and blocks new ones. For the end of an interrupted process only:
/// other writers then wait for ever.
pub fn discard_partial() {
    let partial = partial();
    for path in partial.iter() {
        let _ = std::fs::remove_file(path);
    }
    mem::forget(partial);
}
