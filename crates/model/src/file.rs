//! One safetensors file: packed, unpacked, verified.

use std::{
    fs::File,
    io::{self, BufWriter},
    os::unix::fs::FileExt,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use buddy_snapshot::{Array, write_atomic};

use crate::{
    Error, Plan, Progress,
    header::{self, LENGTH, Plain, Written, not_packed},
    matrix,
};

/// Bytes of plain tensors that are copied or compared at a time.
const PIECE: usize = 8 << 20;

/// Bytes of a model, or of a file, before and after.
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
/// [`Error::Packed`], or what is wrong with a file.
pub fn pack_file(from: &Path, to: &Path, progress: Progress<'_>) -> Result<Sizes, Error> {
    let plain = Plain::open(from)?;
    if plain.original()?.is_some() {
        return Err(Error::Packed.of(from));
    }
    let done = whole(to, |out| write_packed(out, &plain, progress));
    done.map_err(|error| error.of(from))?;
    Ok(Sizes { plain: from.metadata()?.len(), packed: to.metadata()?.len() })
}

/// Writes a file, whole or not at all.
fn whole(to: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<(), Error>) -> Result<(), Error> {
    let mut failed = None;
    let written = write_atomic(to, |out| {
        write(out).map_err(|error| {
            let said = io::Error::other(error.to_string());
            failed = Some(error);
            said
        })
    });
    failed.map_or(written.map_err(Error::from), Err)
}

/// Frozen matrices first, each at a multiple of 128 bytes; then everything else; and the header
/// last, when sizes are known.
fn write_packed(out: &mut BufWriter<File>, plain: &Plain, progress: Progress<'_>) -> Result<(), Error> {
    let start = header::room(plain)?;
    let (mut at, mut written, mut kept) = (start as u64, Vec::new(), Vec::new());
    for array in &plain.arrays {
        let frozen = match Plan::of(array) {
            Plan::Freeze { row } => matrix::write(out.get_ref(), at, array, row, progress)
                .map_err(|error| error.at(&array.name))?,
            Plan::Keep => None,
        };
        match frozen {
            Some(bytes) => {
                written.push(Written { array, frozen: true, bytes });
                at += bytes;
            }
            None => kept.push(array),
        }
        // Zeros to the end of it, and none of what a matrix left that did not get smaller.
        out.get_ref().set_len(at)?;
    }
    for array in kept {
        write_pieces(out.get_ref(), at, array.bytes(), progress)?;
        array.release(0..array.bytes().len());
        let bytes = array.bytes().len() as u64;
        written.push(Written { array, frozen: false, bytes });
        at += bytes;
    }
    Ok(out.get_ref().write_all_at(&header::encode(plain, &written, start)?, 0)?)
}

fn write_pieces(out: &File, at: u64, bytes: &[u8], progress: Progress<'_>) -> Result<(), Error> {
    for (piece, at) in bytes.chunks(PIECE).zip((at..).step_by(PIECE)) {
        out.write_all_at(piece, at)?;
        progress(piece.len() as u64);
    }
    Ok(())
}

/// Takes a piece of a file, with its place there.
type Put<'a> = &'a (dyn Fn(u64, &[u8]) -> Result<(), Error> + Sync);

/// A packed file, opened: the original header, and of each original tensor its bytes and what is in
/// the file.
struct Opened {
    text: String,
    tensors: Vec<(u64, Array)>,
}

impl Opened {
    /// Errors name the file.
    fn open(path: &Path) -> Result<Self, Error> {
        let packed = Plain::open(path)?;
        Self::of(packed).map_err(|error| error.of(path))
    }

    fn of(packed: Plain) -> Result<Self, Error> {
        let text = packed.original()?.ok_or_else(|| not_packed("its metadata hold no original header"))?;
        let mut arrays: std::collections::HashMap<String, Array> =
            packed.arrays.into_iter().map(|array| (array.name.clone(), array)).collect();
        let each = header::tensors(&text)?.into_iter().map(|(name, bytes)| {
            let array = arrays.remove(&name);
            array.map(|array| (bytes, array)).ok_or_else(|| not_packed(format!("{name} is missing")))
        });
        let tensors = each.collect::<Result<_, Error>>()?;
        match arrays.into_keys().next() {
            Some(name) => Err(not_packed(format!("{name} is not in the original header"))),
            None => Ok(Self { text, tensors }),
        }
    }

    /// Gives every piece of the original file, with its place there, in any order.
    fn each(&self, put: Put<'_>) -> Result<(), Error> {
        let mut at = (LENGTH + self.text.len()) as u64;
        put(0, &(self.text.len() as u64).to_le_bytes())?;
        put(LENGTH as u64, self.text.as_bytes())?;
        for (bytes, array) in &self.tensors {
            // A matrix that did not get smaller stayed as it was: of the type and length that it
            // had.
            if array.dtype == buddy_core::Dtype::U8 && array.bytes().len() as u64 != *bytes {
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

/// Fails unless a file is a packed one. Reads its header alone.
pub(crate) fn require_packed(path: &Path) -> Result<(), Error> {
    Opened::open(path).map(drop)
}

/// Unpacks one file.
///
/// # Errors
/// [`Error::NotPacked`], or what is wrong with a file. Any bytes give an error or a file.
pub fn unpack_file(from: &Path, to: &Path, progress: Progress<'_>) -> Result<Sizes, Error> {
    let packed = Opened::open(from)?;
    let done = whole(to, |out| {
        packed.each(&|at, piece| {
            out.get_ref().write_all_at(piece, at)?;
            progress(piece.len() as u64);
            Ok(())
        })
    });
    done.map_err(|error| error.of(from))?;
    Ok(Sizes { plain: to.metadata()?.len(), packed: from.metadata()?.len() })
}

/// Unpacks a file without writing, and compares every byte with the original.
///
/// # Errors
/// [`Error::Differs`], or as [`unpack_file`].
pub fn verify_file(original: &Path, packed: &Path, progress: Progress<'_>) -> Result<(), Error> {
    let opened = Opened::open(packed)?;
    let (file, compared) = (File::open(original)?, AtomicU64::new(0));
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
