//! The size of a run: a share of the paper's footprint, or bytes.

use buddy_core::parse_share;
use buddy_workloads::Info;

use crate::Error;

/// Minimum footprint of a workload.
const LEAST_BYTES: u64 = 1_000_000;

/// Footprint requested by `--scale`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// Share of the program's footprint in the paper.
    Share(f64),
    /// Bytes of all arrays.
    Bytes(u64),
}

const UNITS: [(&str, f64); 9] = [
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("M", 1e6),
    ("G", 1e9),
];

/// Parses `0.25`, `25%`, `1`, `16MB` or `1GiB`.
///
/// # Errors
/// A message for any other text.
pub fn parse_scale(text: &str) -> Result<Scale, String> {
    let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let number = unit.map_or(text, |(number, _)| number.trim_end());
    let wrong = || "give a share of the paper's footprint (0.25, 1) or a size (16MB, 1GiB)".to_owned();
    let number = if unit.is_some() { number.parse().ok() } else { parse_share(number) };
    let number: f64 = number.ok_or_else(wrong)?;
    if !number.is_finite() || number <= 0.0 {
        return Err("it must be more than 0".to_owned());
    }
    Ok(unit.map_or(Scale::Share(number), |(_, bytes)| Scale::Bytes((number * bytes) as u64)))
}

impl Scale {
    /// Returns the footprint of a workload in bytes.
    ///
    /// # Errors
    /// Less than 1 MB, or more than the paper's footprint.
    pub fn bytes(self, info: &Info) -> Result<u64, Error> {
        let bytes = match self {
            Self::Share(share) => (info.paper_bytes as f64 * share) as u64,
            Self::Bytes(bytes) => bytes,
        };
        if (LEAST_BYTES..=info.paper_bytes).contains(&bytes) {
            return Ok(bytes);
        }
        let (name, paper) = (info.name, decimal(info.paper_bytes));
        let why =
            format!("{name}: the scale must be from 1MB to 1, the paper's {paper}, not {}", decimal(bytes));
        Err(Error::Setting(why))
    }
}

/// Parses a number of bytes: `4096`, `4KiB`, `1MB`; `None` for any other text.
pub fn parse_bytes(text: &str) -> Option<u64> {
    match text.parse() {
        Ok(bytes) => Some(bytes),
        Err(_) => match parse_scale(text) {
            Ok(Scale::Bytes(bytes)) => Some(bytes),
            _ => None,
        },
    }
}

/// Formats a size in powers of ten, as in the paper.
pub fn decimal(bytes: u64) -> String {
    match bytes as f64 {
        size if size < 1e6 => format!("{:.0} kB", size / 1e3),
        size if size < 999.5e6 => format!("{:.0} MB", size / 1e6),
        size => format!("{:.2} GB", size / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_sizes_are_parsed() {
        assert_eq!(parse_scale("0.25"), Ok(Scale::Share(0.25)));
        assert_eq!(parse_scale("25%"), Ok(Scale::Share(0.25)));
        assert_eq!(parse_scale("16MB"), Ok(Scale::Bytes(16_000_000)));
        assert_eq!(parse_scale("1.5 GiB"), Ok(Scale::Bytes(3 << 29)));
        for text in ["", "x", "16 bananas", "-1", "0", "nan", "inf", "MB", "0x10", "1GBs", "5%MB"] {
            assert!(parse_scale(text).is_err(), "{text}");
        }
    }

    #[test]
    fn scales_out_of_range_are_rejected() {
        let info = &buddy_workloads::ALL[0];
        let bytes = |text| parse_scale(text).unwrap().bytes(info);
        assert_eq!(bytes("1").unwrap(), info.paper_bytes);
        assert_eq!(bytes("1MB").unwrap(), 1_000_000);
        for text in ["999kB", "1.01", "0.0001", "1e300", "1e300GB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
