//! Why something could not be done on a GPU.

use buddy_codec::CodecKind;

/// Why something could not be done on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There are no kernels for this codec.
    #[error("codec '{codec}' has no GPU kernels; those that have are {list}", list = names())]
    NoKernels {
        /// The codec.
        codec: CodecKind,
    },
}

fn names() -> String {
    crate::codecs().map(CodecKind::name).collect::<Vec<_>>().join(", ")
}
