//! Trace files: recognition by name, opening and writing.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

use crate::{
    Error, Kernel, Problem,
    accel::{self, Reader},
    packed,
};

/// File extension of a packed kernel.
const PACKED: &str = ".warps";

/// Returns whether a file of this name is a kernel trace.
pub fn is_kernel(name: &str) -> bool {
    [".traceg", ".traceg.xz", ".tracez", PACKED].iter().any(|end| name.ends_with(end))
}

/// Opens a kernel trace: packed if the name ends in `.warps`, else Accel-Sim's.
///
/// # Errors
/// [`Error`] if the file cannot be read or its header is malformed.
pub fn open_kernel(path: &Path) -> Result<Box<dyn Kernel>, Error> {
    if is_packed(path) {
        Ok(Box::new(packed::Reader::open(path)?))
    } else {
        Ok(Box::new(Reader::open(path)?))
    }
}

/// Writes a kernel trace in the format that the file's name implies.
///
/// # Errors
/// [`Error`] if the file cannot be written or the kernel cannot be read.
pub fn write_kernel(path: &Path, kernel: &mut dyn Kernel) -> Result<(), Error> {
    if is_packed(path) {
        packed::write_file(path, kernel).map(|_| ())
    } else {
        accel::write_file(path, kernel)
    }
}

/// Writes a kernel trace to `out`; the name of `path` implies the format.
///
/// # Errors
/// As [`write_kernel`].
pub fn write_kernel_to(path: &Path, mut out: impl Write, kernel: &mut dyn Kernel) -> Result<(), Error> {
    match is_packed(path) {
        true => packed::write(&mut out, kernel).map(|_| ()),
        false => accel::write_named(path, out, kernel),
    }
}

fn is_packed(path: &Path) -> bool {
    path.to_str().is_some_and(|name| name.ends_with(PACKED))
}

/// Opens a trace; it must be a regular file, since it may be read more than once.
pub(crate) fn open(path: &Path) -> Result<File, Error> {
    let failed = |error| Error { file: path.display().to_string(), line: 0, problem: Problem::Io(error) };
    // Checked before opening, which would block on a pipe without a writer.
    let kind = std::fs::metadata(path).map_err(failed)?;
    if !kind.is_file() {
        return Err(failed(io::Error::other("not a regular file; a trace may be read more than once")));
    }
    File::open(path).map_err(failed)
}
