//! Packs, unpacks and verifies one safetensors file.

use std::{
    fs::{self, File, Permissions},
    io::{self, BufWriter},
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use buddy_codec::TightHeader;
use buddy_snapshot::{Array, write_atomic};

use crate::{
    Error, Plan, Progress, checksum,
    header::{self, Checksums, LENGTH, Original, Plain, Written, not_packed},
    matrix::{self, Layout},
};

/// Bytes of plain tensors that are copied or compared at a time.
const PIECE: usize = 8 << 20;

/// Sizes of a model, or of a file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// As plain safetensors.
    pub plain: u64,
    /// As packed.
    pub packed: u64,
}

/// Packs one file.
///
/// # Errors
/// [`Error::Packed`], or an error of a file.
pub fn pack_file(from: &Path, to: &Path, progress: Progress<'_>) -> Result<Sizes, Error> {
    pack_one(from, to, Layout::Frozen, progress).map(|(sizes, _)| sizes)
}

/// Packs one file; returns the checksum of its header too.
pub(crate) fn pack_one(
    from: &Path,
    to: &Path,
    layout: Layout,
    progress: Progress<'_>,
) -> Result<(Sizes, String), Error> {
    let plain = Plain::open(from)?;
    if plain.is_packed()? {
        return Err(Error::Packed.of(from));
    }
    let mut checksum = String::new();
    let done = whole(from, to, |out| {
        checksum = write_packed(out, &plain, layout, progress)?;
        Ok(())
    });
    done.map_err(|error| error.of_either(from, to))?;
    Ok((Sizes { plain: from.metadata()?.len(), packed: to.metadata()?.len() }, checksum))
}

/// Writes a file atomically, with the permissions of another.
pub(crate) fn whole(
    like: &Path,
    to: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut failed = None;
    let written = write_atomic(to, |out| {
        write(out).map_err(|error| {
            let said = io::Error::other(error.to_string());
            failed = Some(error);
            said
        })?;
        let mode = fs::metadata(like)?.permissions().mode() & 0o777;
        // Some file systems have no permissions.
        let _ = out.get_ref().set_permissions(Permissions::from_mode(mode));
        Ok(())
    });
    failed.map_or(written.map_err(Error::from), Err)
}

/// Writes frozen matrices, each aligned to 128 bytes, then all other tensors, and last the header,
/// once sizes are known. Returns the header's checksum.
fn write_packed(
    out: &mut BufWriter<File>,
    plain: &Plain,
    layout: Layout,
    progress: Progress<'_>,
) -> Result<String, Error> {
    let start = header::room(plain)?;
    let (mut at, mut written, mut kept) = (start as u64, Vec::new(), Vec::new());
    for array in &plain.arrays {
        let frozen = match Plan::of(array) {
            Plan::Freeze { row } => matrix::write(out.get_ref(), at, array, (row, layout), progress)
                .map_err(|error| error.at(&array.name))?,
            Plan::Keep => None,
        };
        match frozen {
            Some((bytes, checksum)) => {
                let checksum = checksum::text(checksum);
                written.push(Written { array, frozen: true, bytes, checksum });
                at += bytes;
            }
            None => kept.push(array),
        }
        // Pads with zeros, and discards bytes of a matrix that did not shrink.
        out.get_ref().set_len(at).map_err(Error::Write)?;
    }
    for array in kept {
        write_pieces(out.get_ref(), at, array.bytes(), progress)?;
        let (bytes, checksum) = (array.bytes().len() as u64, checksum::of(array.bytes()));
        array.release(0..array.bytes().len());
        written.push(Written { array, frozen: false, bytes, checksum });
        at += bytes;
    }
    let (head, checksum) = header::encode(plain, &written, start)?;
    out.get_ref().write_all_at(&head, 0).map_err(Error::Write)?;
    Ok(checksum)
}

fn write_pieces(out: &File, at: u64, bytes: &[u8], progress: Progress<'_>) -> Result<(), Error> {
    for (piece, at) in bytes.chunks(PIECE).zip((at..).step_by(PIECE)) {
        out.write_all_at(piece, at).map_err(Error::Write)?;
        progress(piece.len() as u64);
    }
    Ok(())
}

/// Receives a piece of a file and its offset.
type Put<'a> = &'a (dyn Fn(u64, &[u8]) -> Result<(), Error> + Sync);

/// A packed file: the original header, and for each original tensor its size and its bytes in the
/// file.
pub(crate) struct Opened {
    pub(crate) text: String,
    checksums: Option<Checksums>,
    tensors: Vec<(u64, Array)>,
}

/// Returns whether a tensor is a frozen matrix of an original of some bytes. A matrix that did not
/// shrink is stored plain, with its original type and length.
fn is_frozen(array: &Array, bytes: u64) -> bool {
    array.dtype == buddy_core::Dtype::U8 && array.bytes().len() as u64 != bytes
}

impl Opened {
    /// Opens a file; errors name it.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let packed = Plain::open(path)?;
        Self::of(packed).map_err(|error| error.of(path))
    }

    fn of(packed: Plain) -> Result<Self, Error> {
        let Original { text, checksums } = packed.original()?;
        let mut arrays: std::collections::HashMap<String, Array> =
            packed.arrays.into_iter().map(|array| (array.name.clone(), array)).collect();
        let each = header::tensors(&text)?.into_iter().map(|(name, bytes)| {
            let array = arrays.remove(&name);
            array.map(|array| (bytes, array)).ok_or_else(|| not_packed(format!("{name} is missing")))
        });
        let tensors = each.collect::<Result<_, Error>>()?;
        match arrays.into_keys().next() {
            Some(name) => Err(not_packed(format!("{name} is not in the original header"))),
            None => Ok(Self { text, checksums, tensors }),
        }
    }

    /// Returns the checksum of the header, and so of the file; empty in version 1.
    pub(crate) fn checksum(&self) -> &str {
        self.checksums.as_ref().map_or("", |found| &found.own)
    }

    /// Returns whether packing with this layout could have given the file: a tight one has at least
    /// one tight matrix, and any other has none.
    pub(crate) fn has_layout(&self, layout: Layout) -> bool {
        let mut matrices = self.tensors.iter().filter(|(bytes, array)| is_frozen(array, *bytes)).peekable();
        let none = matrices.peek().is_none();
        let tight = matrices.any(|(_, array)| TightHeader::is_tight(array.bytes()));
        none || tight == (layout == Layout::Tight)
    }

    /// Compares every tensor with its checksum. Returns whether there are any.
    pub(crate) fn check(&self, progress: Progress<'_>) -> Result<bool, Error> {
        for (bytes, array) in &self.tensors {
            self.check_tensor(*bytes, array)?;
            array.release(0..array.bytes().len());
            progress(array.bytes().len() as u64);
        }
        Ok(self.checksums.is_some())
    }

    fn check_tensor(&self, bytes: u64, array: &Array) -> Result<(), Error> {
        let Some(checksums) = &self.checksums else { return Ok(()) };
        let check = || {
            let found = if is_frozen(array, bytes) {
                matrix::checksum(array.bytes())?.map(checksum::text)
            } else {
                Some(checksum::of(array.bytes()))
            };
            if found.as_ref() == checksums.tensors.get(&array.name) { Ok(()) } else { Err(Error::Damaged) }
        };
        check().map_err(|error: Error| error.at(&array.name))
    }

    /// Passes every piece of the original file to `put`, in any order.
    fn each(&self, put: Put<'_>) -> Result<(), Error> {
        let mut at = (LENGTH + self.text.len()) as u64;
        put(0, &(self.text.len() as u64).to_le_bytes())?;
        put(LENGTH as u64, self.text.as_bytes())?;
        for (bytes, array) in &self.tensors {
            self.check_tensor(*bytes, array)?;
            if is_frozen(array, *bytes) {
                matrix::read(array, *bytes, |start, piece| put(at + start, piece))
                    .map_err(|error| error.at(&array.name))?;
            } else if array.bytes().len() as u64 == *bytes {
                for (piece, start) in array.bytes().chunks(PIECE).zip((at..).step_by(PIECE)) {
                    put(start, piece)?;
                }
                array.release(0..array.bytes().len());
            } else {
                return Err(not_packed("its length is not the original's").at(&array.name));
            }
            at += bytes;
        }
        Ok(())
    }
}

/// Unpacks one file.
///
/// # Errors
/// [`Error::NotPacked`], or an error of a file. Any input gives an error or a file.
pub fn unpack_file(from: &Path, to: &Path, progress: Progress<'_>) -> Result<Sizes, Error> {
    unpack_one(from, to, progress).map(|(sizes, _)| sizes)
}

/// Unpacks one file; returns whether it had checksums too.
pub(crate) fn unpack_one(from: &Path, to: &Path, progress: Progress<'_>) -> Result<(Sizes, bool), Error> {
    let packed = Opened::open(from)?;
    let done = whole(from, to, |out| {
        packed.each(&|at, piece| {
            out.get_ref().write_all_at(piece, at).map_err(Error::Write)?;
            progress(piece.len() as u64);
            Ok(())
        })
    });
    done.map_err(|error| error.of_either(from, to))?;
    let sizes = Sizes { plain: to.metadata()?.len(), packed: from.metadata()?.len() };
    Ok((sizes, packed.checksums.is_some()))
}

/// Unpacks a file without writing it, and compares every byte with the original.
///
/// # Errors
/// [`Error::Differs`], or as for [`unpack_file`].
pub fn verify_file(original: &Path, packed: &Path, progress: Progress<'_>) -> Result<(), Error> {
    let opened = Opened::open(packed)?;
    let file = File::open(original).map_err(|error| Error::Io(error).of(original))?;
    let compared = AtomicU64::new(0);
    let same = opened.each(&|at, piece| {
        let mut there = vec![0; piece.len()];
        let read = file.read_exact_at(&mut there, at);
        if read.is_err() || there != piece {
            let differs = there.iter().zip(piece).position(|(a, b)| a != b).unwrap_or(0);
            return Err(Error::Differs { at: at + differs as u64 });
        }
        compared.fetch_add(piece.len() as u64, Ordering::Relaxed);
        progress(piece.len() as u64);
        Ok(())
    });
    same.map_err(|error| error.of(packed))?;
    let (all, compared) = (file.metadata()?.len(), compared.into_inner());
    if compared == all { Ok(()) } else { Err(Error::Differs { at: compared }.of(packed)) }
}
