//! Why a simulation cannot be run.

/// What is wrong with a specification, an allocation or a kernel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A GPU or a link that does not exist, or whose file cannot be used.
    #[error(transparent)]
    Spec(#[from] buddy_core::spec::SpecError),
    /// A file of targets that is no TOML, has an unknown or missing field, or a value out of range.
    #[error("{file}: {why}")]
    Targets {
        /// Its path.
        file: String,
        /// The field and what is wrong with it.
        why: String,
    },
    /// An allocation that is crooked or overlaps another.
    #[error("the allocation of {bytes} bytes at {base:#x} is empty, not aligned to 128, or overlaps another")]
    Allocation {
        /// First address of the allocation; it must be a multiple of 128.
        base: u64,
        /// Length of the allocation in bytes; it must not be 0.
        bytes: u64,
    },
    /// Allocations that are larger than any memory.
    #[error("the allocations have {bytes} bytes together; at most 2^40 bytes, 1 TiB, can be simulated")]
    TooLarge {
        /// Bytes of all of them, as far as they were added up.
        bytes: u64,
    },
    /// A table of targets that contradicts itself, or is for pages that an allocation does not have.
    #[error(transparent)]
    Table(#[from] buddy_core::TargetsError),
    /// A block that needs more than an SM has.
    #[error("a block of {kernel} needs {needs} {what}; an SM has {has}")]
    BlockTooBig {
        /// Name of the kernel, as its launch gives it.
        kernel: String,
        /// What there is too little of.
        what: &'static str,
        /// What the block needs.
        needs: u64,
        /// How much of it an SM has.
        has: u64,
    },
    /// Warps that wait for each other.
    #[error(
        "the warps of {kernel} wait for each other at cycle {cycle}: a barrier that not all of them reach"
    )]
    Deadlock {
        /// The kernel.
        kernel: String,
        /// Cycle of the core at which nothing could happen any more.
        cycle: u64,
    },
    /// The kernel's trace cannot be read.
    #[error(transparent)]
    Trace(#[from] buddy_trace::Error),
}

impl Error {
    /// An error of the TOML reader, on one line.
    pub(crate) fn toml(file: &str, error: &toml::de::Error) -> Self {
        let why = error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
        Self::Targets { file: file.to_owned(), why }
    }
}
