//! A buffer's report: entries by nibble, and the first that failed to decode.

use std::fmt;

use buddy_core::SizeClass;

use crate::Error;

/// Counters of the report: nine kinds of nibbles, and overflowing entries. The fault follows them.
pub(crate) const COUNTERS: u64 = 10;
/// Bytes of the report.
pub(crate) const REPORT_BYTES: u64 = 8 * (COUNTERS + 1);

/// A buffer's content at its last report: entries by nibble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Entries by nibble: the size classes, then three sectors in layouts 1 and 2.
    pub nibbles: [u64; 8],
    /// Entries with a reserved nibble.
    pub reserved: u64,
    /// Entries with bytes in buddy memory.
    pub overflowing: u64,
    /// The lowest entry that failed to decode since the last report.
    pub fault: Option<Fault>,
}

/// A failure to decode an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Index of the entry in the buffer.
    pub entry: u64,
    /// The reason.
    pub kind: FaultKind,
}

/// Reasons for a failure to decode, by the kernels' numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The stream ends before the entry is complete.
    Truncated,
    /// A code that the format does not have.
    Invalid,
    /// A layout that the codec does not have.
    Layout,
    /// A nibble that names no class.
    Nibble,
    /// A listed entry past the end of the buffer.
    Range,
}

impl FaultKind {
    /// Describes the reason.
    pub fn words(self) -> &'static str {
        match self {
            Self::Truncated => "its stream ends early",
            Self::Invalid => "its stream has an invalid code",
            Self::Layout => "its layout is none of the codec's",
            Self::Nibble => "its nibble names no size class",
            Self::Range => "it is past the end of the buffer",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}: {}", self.entry, self.kind.words())
    }
}

impl Fault {
    /// Converts the fault to an error of a checked read.
    pub(crate) fn checked(found: Option<Self>) -> Result<(), Error> {
        found.map_or(Ok(()), |Self { entry, kind }| Err(Error::Fault { entry, what: kind.words() }))
    }

    /// Decodes `entry << 8 | status`; all ones means none.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let kind = match bits & 0xff {
            1 => FaultKind::Truncated,
            2 => FaultKind::Invalid,
            3 => FaultKind::Layout,
            4 => FaultKind::Nibble,
            5 => FaultKind::Range,
            _ => return None,
        };
        Some(Self { entry: bits >> 8, kind })
    }
}

impl Stats {
    /// Decodes the report from its numbers.
    pub(crate) fn from_report(number: impl Fn(usize) -> u64) -> Self {
        Self {
            nibbles: std::array::from_fn(&number),
            reserved: number(8),
            overflowing: number(9),
            fault: Fault::from_bits(number(COUNTERS as usize)),
        }
    }

    /// Counts the entries of a size class.
    pub fn class(&self, class: SizeClass) -> u64 {
        let layouts = if class == SizeClass::S3 { self.nibbles[6] + self.nibbles[7] } else { 0 };
        self.nibbles[class.index()] + layouts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_the_kernels_numbers() {
        assert_eq!(Fault::from_bits(u64::MAX), None);
        assert_eq!(Fault::from_bits(0), None);
        let fault = Fault::from_bits(7 << 8 | 2).unwrap();
        assert_eq!(fault, Fault { entry: 7, kind: FaultKind::Invalid });
        assert_eq!(fault.to_string(), "entry 7: its stream has an invalid code");
    }

    #[test]
    fn three_layouts_are_one_class() {
        let stats = Stats { nibbles: [1, 2, 3, 4, 5, 6, 7, 8], ..Stats::default() };
        assert_eq!(SizeClass::ALL.map(|class| stats.class(class)), [1, 2, 3, 4, 20, 6]);
    }
}
