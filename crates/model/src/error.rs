//! Errors of packing, unpacking and verifying models, one line each.

use std::{io, path::Path};

/// Why a model was not packed, unpacked or verified.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Adds the file to another error.
    #[error("{place}: {what}")]
    At {
        /// The path, or the tensor's name.
        place: String,
        /// The error.
        what: Box<Error>,
    },
    /// A file that is not safetensors, or cannot be read or written.
    #[error(transparent)]
    File(#[from] buddy_snapshot::Error),
    /// An error of the operating system.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The result could not be written.
    #[error(transparent)]
    Write(io::Error),
    /// An invalid frozen matrix.
    #[error(transparent)]
    Frozen(#[from] buddy_codec::Error),
    /// Nothing to pack.
    #[error(
        "no tensor here is a bf16 matrix with rows of a multiple of 64 values, so nothing would get smaller ({found}). Use \
         the model as it is, or a bf16 version that its authors published; converting fp32 or fp16 weights to bf16 loses precision"
    )]
    NoMatrix {
        /// The types present, with the number of tensors of each.
        found: String,
    },
    /// A model with quantised weights.
    #[error("config.json says that the weights are quantised ({method}); Buddy packs plain bf16 weights")]
    Quantised {
        /// The method that config.json names.
        method: String,
    },
    /// A packed file or folder instead of a plain one.
    #[error("this is packed already; unpack it first")]
    Packed,
    /// A plain file or folder instead of a packed one.
    #[error("this was not packed by Buddy: {why}")]
    NotPacked {
        /// The missing or invalid part.
        why: String,
    },
    /// A path that does not exist.
    #[error("there is no such file or folder; give a safetensors file or the folder of a model")]
    Missing,
    /// A path without a model.
    #[error("no .safetensors file here; give a safetensors file or the folder of a model")]
    NoModel,
    /// Input and output are the same.
    #[error("this would be written over itself; give another --out")]
    Same,
    /// A file in a model's folder that cannot be copied.
    #[error("this is {what}, which cannot be copied; remove it from the model's folder")]
    Special {
        /// A dangling link, a special file, or a name that is not UTF-8.
        what: &'static str,
    },
    /// An output folder that holds other files.
    #[error("{name} is there, which is no part of this model; remove it, or give a new folder as --out")]
    Occupied {
        /// The first file that does not belong.
        name: String,
    },
    /// An output folder that holds another model with the same file names.
    #[error("another model was packed here: its tensors differ; give a new folder as --out")]
    Another,
    /// A packed folder that is not complete.
    #[error("packing did not finish here; run `buddy pack` on the original with this --out, which continues")]
    Unfinished,
    /// A plain folder that is not complete.
    #[error("unpacking did not finish here; run `buddy unpack` on the packed model with this --out again")]
    HalfUnpacked,
    /// A file that is listed but missing.
    #[error("buddy.json lists this file, but it is missing; copy it again, or pack the original again")]
    Lost,
    /// A shard that is not listed.
    #[error("buddy.json does not list this file; remove it if it belongs to another model")]
    Unlisted,
    /// Bytes that changed after packing.
    #[error("its bytes do not match its checksum: copy it again, or pack the original again")]
    Damaged,
    /// The packed file does not restore the original.
    #[error(
        "byte {at} differs from the original: the packed file is damaged, or the original changed; pack it again"
    )]
    Differs {
        /// Offset in the plain file.
        at: u64,
    },
}

impl Error {
    /// Adds a file to the error.
    pub(crate) fn of(self, path: &Path) -> Self {
        self.at(path.display())
    }

    /// Adds a place to the error.
    pub(crate) fn at(self, place: impl ToString) -> Self {
        Self::At { place: place.to_string(), what: Box::new(self) }
    }

    /// Adds the file that the error is about: `to` if it could not be written, else `from`.
    pub(crate) fn of_either(self, from: &Path, to: &Path) -> Self {
        match self {
            Self::Write(_) => self.of(to),
            // The place is a tensor.
            Self::At { what, .. } if matches!(*what, Self::Write(_)) => what.of(to),
            // It names its file.
            Self::File(_) => self,
            other => other.of(from),
        }
    }
}
