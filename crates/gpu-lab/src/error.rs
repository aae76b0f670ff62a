//! Why a check or a measurement gives no result.

/// Why a check or a measurement gives no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The runtime, the driver or the compiler refused.
    #[error(transparent)]
    Gpu(#[from] buddy_cuda::Error),
    /// A shape that the kernels cannot have.
    #[error("there is no such {of}: {why}")]
    Cut {
        /// The kernel, as its users call it.
        of: &'static str,
        /// What its shape must be.
        why: &'static str,
    },
    /// The vendor's library refused a product.
    #[error("cuBLASLt refused: {0}")]
    Vendor(String),
    /// The machine code of the small kernels cannot be read.
    #[error(
        "nvdisasm, which comes with the CUDA toolkit, is needed to trace the small kernels; put it on the path or set CUDA_HOME: {why}"
    )]
    Disassembler {
        /// What went wrong.
        why: String,
    },
    /// A small kernel that cannot be traced.
    #[error("the small kernel {case} cannot be traced: {why}")]
    Trace {
        /// The case.
        case: String,
        /// What went wrong.
        why: String,
    },
    /// A file that cannot be written.
    #[error("cannot write {path}: {why}")]
    File {
        /// Which one.
        path: String,
        /// What went wrong.
        why: String,
    },
    /// A GPU that does what a CPU does not.
    #[error("the GPU differs from the CPU: {0}")]
    Differs(String),
}
