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

/// Units of sizes, in lower case: any case is accepted.
const UNITS: [(&str, f64); 8] = [
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("m", 1e6),
    ("g", 1e9),
];

/// Parses `0.25`, `25%`, `1`, `16MB` or `1GiB`.
///
/// # Errors
/// A message for any other text.
pub fn parse_scale(text: &str) -> Result<Scale, String> {
    let lower = text.to_ascii_lowercase();
    let unit = UNITS.iter().find_map(|(unit, bytes)| Some((lower.strip_suffix(unit)?, *bytes)));
    let number = unit.map_or(lower.as_str(), |(number, _)| number.trim_end());
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

/// Parses the memory of a generated program in MiB: `64` or `64MiB`.
///
/// # Errors
/// A message unless it is a whole number of MiB from 1 MiB to 1 TiB.
pub fn parse_mib(text: &str) -> Result<u64, String> {
    let mib = match (text.parse::<u64>(), parse_scale(text)) {
        (Ok(mib), _) => Some(mib),
        (_, Ok(Scale::Bytes(bytes))) if bytes.is_multiple_of(1 << 20) => Some(bytes >> 20),
        _ => None,
    };
    mib.filter(|mib| (1..=1 << 20).contains(mib)).ok_or_else(|| {
        format!("'{text}' is not a whole number of MiB from 1 to 1048576, such as 64 or 64MiB")
    })
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
        assert_eq!(parse_scale("16mb"), Ok(Scale::Bytes(16_000_000)));
        assert_eq!(parse_scale("1.5 GiB"), Ok(Scale::Bytes(3 << 29)));
        for text in ["", "x", "16 bananas", "-1", "0", "nan", "inf", "MB", "0x10", "1GBs", "5%MB"] {
            assert!(parse_scale(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_of_generated_programs_are_whole_mebibytes() {
        assert_eq!(
            ["64", "64MiB", "1gib", "1048576"].map(parse_mib),
            [Ok(64), Ok(64), Ok(1024), Ok(1 << 20)]
        );
        for text in ["0", "64MB", "1.5MiB", "2TiB", "1048577", "many"] {
            assert!(parse_mib(text).unwrap_err().contains("64 or 64MiB"), "{text}");
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
