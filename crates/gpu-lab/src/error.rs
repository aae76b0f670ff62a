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
    /// A GPU that does what a CPU does not.
    #[error("the GPU differs from the CPU: {0}")]
    Differs(String),
}
