//! Packs, unpacks and verifies one safetensors file.

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
    let plain = Plain::open(from)?;
    if plain.original()?.is_some() {
        return Err(Error::Packed.of(from));
    }
    let done = whole(to, |out| write_packed(out, &plain, progress));
    done.map_err(|error| error.of(from))?;
    Ok(Sizes { plain: from.metadata()?.len(), packed: to.metadata()?.len() })
}

/// Writes a file atomically.
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

/// Writes frozen matrices, each aligned to 128 bytes, then all other tensors, and last the header,
/// once sizes are known.
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
        // Pads with zeros, and discards bytes of a matrix that did not shrink.
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

/// Receives a piece of a file and its offset.
type Put<'a> = &'a (dyn Fn(u64, &[u8]) -> Result<(), Error> + Sync);

/// A packed file: the original header, and for each original tensor its size and its bytes in the
/// file.
struct Opened {
    text: String,
    tensors: Vec<(u64, Array)>,
}

impl Opened {
    /// Opens a file; errors name it.
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

    /// Passes every piece of the original file to `put`, in any order.
    fn each(&self, put: Put<'_>) -> Result<(), Error> {
        let mut at = (LENGTH + self.text.len()) as u64;
        put(0, &(self.text.len() as u64).to_le_bytes())?;
        put(LENGTH as u64, self.text.as_bytes())?;
        for (bytes, array) in &self.tensors {
            // A matrix that did not shrink is stored plain, with its original type and length.
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

/// Fails unless a file is packed. Reads its header only.
pub(crate) fn require_packed(path: &Path) -> Result<(), Error> {
    Opened::open(path).map(drop)
}

/// Unpacks one file.
///
/// # Errors
/// [`Error::NotPacked`], or an error of a file. Any input gives an error or a file.
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

/// Unpacks a file without writing it, and compares every byte with the original.
///
/// # Errors
/// [`Error::Differs`], or as for [`unpack_file`].
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
