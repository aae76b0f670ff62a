//! Why a trace cannot be used.

/// A trace that cannot be read or written: the file, the line, and what is wrong there.
#[derive(Debug, thiserror::Error)]
#[error("{file}{}: {problem}", Line(*.line))]
pub struct Error {
    /// The file as it was named.
    pub file: String,
    /// The line, counted from 1; 0 where no line is to blame.
    pub line: u64,
    /// The problem, with the offending value and what would be right.
    pub problem: Problem,
}

struct Line(u64);

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, ":{}", self.0) }
    }
}

/// What is wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file cannot be opened, read, written or decompressed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The file ends where more must follow.
    #[error("the file ends inside {0}")]
    Truncated(&'static str),
    /// A line that should be something else.
    #[error("expected {expected}, found '{found}'")]
    Expected {
        /// What would be right.
        expected: &'static str,
        /// The start of what stands there.
        found: String,
    },
    /// A header that is needed and is not there.
    #[error("the header has no '{0}'")]
    Header(&'static str),
    /// A number outside its range.
    #[error("{what} is {found}; it must be {range}")]
    Range {
        /// The quantity that is out of range, as the message names it.
        what: &'static str,
        /// The value that the file has.
        found: u64,
        /// What would be right.
        range: &'static str,
    },
    /// Fewer or more pieces than the header or the block announced.
    #[error("found {found} {what} of {expected}")]
    Count {
        /// What is counted, in the plural: blocks, warps, instructions.
        what: &'static str,
        /// How many there are.
        found: u64,
        /// How many there should be.
        expected: u64,
    },
    /// A piece more than the header announced.
    #[error("{what} beyond the {expected} that the header announces")]
    Beyond {
        /// What is there.
        what: &'static str,
        /// How many there should be.
        expected: u64,
    },
    /// A packed trace that says something impossible.
    #[error("not a whole packed trace: {0}")]
    Damaged(&'static str),
    /// Machine code whose path depends on what is not known.
    #[error("{opcode} at {pc:04x} needs {what}, which this kernel and its data do not give")]
    Unknowable {
        /// Where it stands.
        pc: u64,
        /// The instruction.
        opcode: String,
        /// What it lacks.
        what: &'static str,
    },
    /// A file outside the folder of its list.
    #[error(
        "'{0}' is not inside the folder of its list; copy the file there and name it without '..' or a leading '/'"
    )]
    Outside(String),
    /// The same block or warp twice.
    #[error("{what} {index} comes twice")]
    Twice {
        /// `thread block` or `warp`.
        what: &'static str,
        /// Number of the block or warp that comes again.
        index: u64,
    },
    /// An active mask that does not fit the addresses beside it.
    #[error("mask {mask:08x} does not fit: {why}")]
    Mask {
        /// Active mask of the instruction, lane 0 lowest.
        mask: u32,
        /// Which rule of the format the mask breaks.
        why: &'static str,
    },
}

impl Problem {
    /// A line or word that is not what was expected, shown shortened.
    pub(crate) fn expected(expected: &'static str, found: &str) -> Self {
        let mut letters = found.trim().chars();
        let shown: String = letters.by_ref().take(40).flat_map(char::escape_debug).collect();
        let more = if letters.next().is_some() { "…" } else { "" };
        Self::Expected { expected, found: shown + more }
    }
}
