//! Errors of the simulator.

/// A specification, allocation or kernel that cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An unknown GPU or link, or an unusable specification file.
    #[error(transparent)]
    Spec(#[from] buddy_record::spec::SpecError),
    /// A targets file that is not TOML, has an unknown or missing field, or a value out of range.
    #[error("{file}: {why}")]
    Targets {
        /// Path of the file.
        file: String,
        /// The field and the problem.
        why: String,
    },
    /// An allocation that is empty, misaligned or overlaps another.
    #[error("the allocation of {bytes} bytes at {base:#x} is empty, not aligned to 128, or overlaps another")]
    Allocation {
        /// First address of the allocation; it must be a multiple of 128.
        base: u64,
        /// Length of the allocation in bytes; it must not be 0.
        bytes: u64,
    },
    /// Allocations whose total exceeds 1 TiB.
    #[error("the allocations have {bytes} bytes together; at most 2^40 bytes, 1 TiB, can be simulated")]
    TooLarge {
        /// Sum of the allocations' bytes, saturating.
        bytes: u64,
    },
    /// An inconsistent target table, or one for pages that an allocation does not have.
    #[error(transparent)]
    Table(#[from] buddy_record::TargetsError),
    /// A block that exceeds the resources of an SM.
    #[error("a block of {kernel} needs {needs} {what}; an SM has {has}")]
    BlockTooBig {
        /// Kernel name from the launch.
        kernel: String,
        /// The exceeded resource.
        what: &'static str,
        /// Amount that the block needs.
        needs: u64,
        /// Amount that an SM has.
        has: u64,
    },
    /// Warps in a deadlock.
    #[error(
        "the warps of {kernel} wait for each other at cycle {cycle}: a barrier that not all of them reach"
    )]
    Deadlock {
        /// Kernel name from the launch.
        kernel: String,
        /// Core cycle from which no warp can issue.
        cycle: u64,
    },
    /// A trace that cannot be read.
    #[error(transparent)]
    Trace(#[from] buddy_trace::Error),
}

impl Error {
    /// Wraps a TOML error, its message folded into one line.
    pub(crate) fn toml(file: &str, error: &toml::de::Error) -> Self {
        let why = error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
        Self::Targets { file: file.to_owned(), why }
    }
}
