//! Errors of trace files.

/// A trace that cannot be read or written: file, line and problem.
#[derive(Debug, thiserror::Error)]
#[error("{file}{}: {problem}", Line(*.line))]
pub struct Error {
    /// File name.
    pub file: String,
    /// Line number from 1; 0 if no line is at fault.
    pub line: u64,
    /// The problem, with the offending value and the expected one.
    pub problem: Problem,
}

struct Line(u64);

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, ":{}", self.0) }
    }
}

/// Problem with a trace.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file cannot be opened, read, written or decompressed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A folder without a list of kernels.
    #[error("the folder has no kernelslist.g, so it is no trace; `buddy trace -- PROGRAM` makes one")]
    NoList,
    /// The file ends too early.
    #[error("the file ends inside {0}")]
    Truncated(&'static str),
    /// An unexpected line.
    #[error("expected {expected}, found '{found}'")]
    Expected {
        /// Expected value.
        expected: &'static str,
        /// Start of the text found.
        found: String,
    },
    /// A missing header field.
    #[error("the header has no '{0}'")]
    Header(&'static str),
    /// A number outside its range.
    #[error("{what} is {found}; it must be {range}")]
    Range {
        /// Name of the quantity in the message.
        what: &'static str,
        /// Value in the file.
        found: u64,
        /// Expected value.
        range: &'static str,
    },
    /// Fewer or more elements than announced.
    #[error("found {found} {what} of {expected}")]
    Count {
        /// Name of the elements, plural: blocks, warps, instructions.
        what: &'static str,
        /// Number found.
        found: u64,
        /// Expected number.
        expected: u64,
    },
    /// An element beyond the announced number.
    #[error("{what} beyond the {expected} that the header announces")]
    Beyond {
        /// Name of the element.
        what: &'static str,
        /// Expected number.
        expected: u64,
    },
    /// A corrupt packed trace.
    #[error("not a whole packed trace: {0}")]
    Damaged(&'static str),
    /// Machine code whose path or addresses depend on unknown values.
    #[error("{opcode} at {pc:04x} needs {what}, which this kernel and its data do not give")]
    Unknowable {
        /// Program counter of the instruction.
        pc: u64,
        /// Opcode of the instruction.
        opcode: String,
        /// The missing value.
        what: &'static str,
    },
    /// A file outside the folder of its list.
    #[error(
        "'{0}' is not inside the folder of its list; copy the file there and name it without '..' or a leading '/'"
    )]
    Outside(String),
    /// A duplicate block or warp.
    #[error("{what} {index} comes twice")]
    Twice {
        /// `thread block` or `warp`.
        what: &'static str,
        /// Number of the duplicate.
        index: u64,
    },
    /// An active mask that does not match its addresses.
    #[error("mask {mask:08x} does not fit: {why}")]
    Mask {
        /// Active mask of the instruction, lane 0 lowest.
        mask: u32,
        /// Violated rule of the format.
        why: &'static str,
    },
}

impl Problem {
    /// Returns the error for an unexpected line or word, shortened.
    pub(crate) fn expected(expected: &'static str, found: &str) -> Self {
        let mut letters = found.trim().chars();
        let shown: String = letters.by_ref().take(40).flat_map(char::escape_debug).collect();
        let more = if letters.next().is_some() { "…" } else { "" };
        Self::Expected { expected, found: shown + more }
    }
}
