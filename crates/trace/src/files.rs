//! Which files are traces, and how each is opened.

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

/// The end of a packed kernel's name.
const PACKED: &str = ".warps";

/// Whether a file of this name is one kernel's trace.
pub fn is_kernel(name: &str) -> bool {
    [".traceg", ".traceg.xz", PACKED].iter().any(|end| name.ends_with(end))
}

/// Opens a kernel's trace: packed if its name ends in `.warps`, and else Accel-Sim's text.
///
/// # Errors
/// [`Error`] if the file cannot be read or begins wrongly.
pub fn open_kernel(path: &Path) -> Result<Box<dyn Kernel>, Error> {
    if is_packed(path) {
        Ok(Box::new(packed::Reader::open(path)?))
    } else {
        Ok(Box::new(Reader::open(path)?))
    }
}

/// Writes a kernel's trace in the format that the file's name asks for.
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

/// The same into any writer, of which the file's name only says the format.
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

/// Opens a trace, which is a regular file: it may be read more than once.
pub(crate) fn open(path: &Path) -> Result<File, Error> {
    let failed = |error| Error { file: path.display().to_string(), line: 0, problem: Problem::Io(error) };
    // Asked before opening, which would wait at a pipe that nobody writes to.
    let kind = std::fs::metadata(path).map_err(failed)?;
    if !kind.is_file() {
        return Err(failed(io::Error::other("not a regular file; a trace may be read more than once")));
    }
    File::open(path).map_err(failed)
}
