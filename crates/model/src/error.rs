//! Everything that can be wrong with a model, in one line each.

use std::path::Path;

/// Why a model was not packed, unpacked or verified.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Which file another error is about.
    #[error("{place}: {what}")]
    At {
        /// The path, or the tensor's name.
        place: String,
        /// What is wrong there.
        what: Box<Error>,
    },
    /// A file that is no safetensors file, or that cannot be read or written.
    #[error(transparent)]
    File(#[from] buddy_snapshot::Error),
    /// The operating system said no.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A frozen matrix that is none.
    #[error(transparent)]
    Frozen(#[from] buddy_codec::Error),
    /// Nothing to pack.
    #[error(
        "no tensor here is a bf16 matrix with rows of a multiple of 64 values, so nothing would get smaller ({found}). Use \
         the model as it is, or a bf16 version that its authors published; converting fp32 or fp16 weights to bf16 loses precision"
    )]
    NoMatrix {
        /// What there is instead: types and how many tensors have each.
        found: String,
    },
    /// A model whose weights are quantised already.
    #[error("config.json says that the weights are quantised ({method}); Buddy packs plain bf16 weights")]
    Quantised {
        /// The method that it names.
        method: String,
    },
    /// A packed file or folder where a plain one was asked for.
    #[error("this is packed already; unpack it first")]
    Packed,
    /// A plain file or folder where a packed one was asked for.
    #[error("this was not packed by Buddy: {why}")]
    NotPacked {
        /// What is missing or wrong.
        why: String,
    },
    /// A path that leads nowhere.
    #[error("there is no such file or folder; give a safetensors file or the folder of a model")]
    Missing,
    /// No model at all.
    #[error("no .safetensors file here; give a safetensors file or the folder of a model")]
    NoModel,
    /// Input and output are the same.
    #[error("this would be written over itself; give another --out")]
    Same,
    /// What was packed does not give back what was read.
    #[error(
        "byte {at} differs from the original: the packed file is damaged, or the original changed; pack it again"
    )]
    Differs {
        /// Where, in the plain file.
        at: u64,
    },
}

impl Error {
    /// The same error, of this file.
    pub(crate) fn of(self, path: &Path) -> Self {
        self.at(path.display())
    }

    /// The same error, of this place.
    pub(crate) fn at(self, place: impl ToString) -> Self {
        Self::At { place: place.to_string(), what: Box::new(self) }
    }
}
