//! A map of targets and size classes from a file or a few words.

use buddy_core::{SizeClass, Target};
use serde::Deserialize;

use crate::{Allocation, ClassMap, Classes, Error, Home};

/// The targets and classes of a program's allocations, as TOML: a list of `[[allocation]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Targets {
    allocation: Vec<Entry>,
}

/// One allocation: where it lies, its target, and the shares of its classes or one class for all.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    base: u64,
    bytes: u64,
    /// A target, `device` for uncompressed, or `host`.
    target: String,
    #[serde(default)]
    class: Option<SizeClass>,
    /// Zero, b8, s1, s2, s3 and raw, adding up to 1.
    #[serde(default)]
    shares: Option<[f64; 6]>,
    #[serde(default)]
    seed: u64,
}

impl Targets {
    /// Reads the file.
    ///
    /// # Errors
    /// [`Error::Targets`] that names the file and the field.
    pub fn parse(file: &str, text: &str) -> Result<ClassMap, Error> {
        let targets: Self = toml::from_str(text).map_err(|error| Error::toml(file, &error))?;
        let wrong = |why| Error::Targets { file: file.to_owned(), why };
        let allocations = targets.allocation.iter().map(|entry| entry.allocation().map_err(wrong));
        ClassMap::new(allocations.collect::<Result<_, _>>()?)
    }
}

impl Entry {
    fn allocation(&self) -> Result<Allocation, String> {
        let home = match self.target.as_str() {
            "device" => Home::Device,
            "host" => Home::Host,
            name => Home::Compressed(name.parse::<Target>().map_err(|error| error.to_string())?),
        };
        let classes = match (self.class, self.shares) {
            (Some(class), None) => Classes::Uniform(class),
            (None, Some(shares)) => shared(shares, self.seed)?,
            (None, None) => Classes::Uniform(SizeClass::Raw),
            (Some(_), Some(_)) => return Err("an allocation has 'class' or 'shares', not both".to_owned()),
        };
        Ok(Allocation { base: self.base, bytes: self.bytes, home, classes })
    }
}

fn shared(shares: [f64; 6], seed: u64) -> Result<Classes, String> {
    let sum: f64 = shares.iter().sum();
    if shares.iter().any(|share| !(0.0..=1.0).contains(share)) || (sum - 1.0).abs() > 1e-6 {
        return Err(format!(
            "shares are {shares:?}; each must lie between 0 and 1, and they must add up to 1"
        ));
    }
    Ok(Classes::Shares { shares, seed })
}

/// One target and one mix of classes for all allocations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TargetsAll {
    /// The target.
    pub target: Target,
    /// The share of each class, in the order of [`SizeClass::ALL`].
    pub shares: [f64; 6],
}

impl TargetsAll {
    /// The map of these allocations, each its first address and its length.
    ///
    /// # Errors
    /// [`Error`] for wrong shares or allocations that overlap.
    pub fn map(&self, allocations: &[(u64, u64)]) -> Result<ClassMap, Error> {
        let wrong = |why| Error::Targets { file: "shares".to_owned(), why };
        let classes = shared(self.shares, 0).map_err(wrong)?;
        let home = Home::Compressed(self.target);
        let one = |&(base, bytes): &(u64, u64)| Allocation { base, bytes, home, classes: classes.clone() };
        ClassMap::new(allocations.iter().map(one).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_targets() {
        let text = "[[allocation]]\nbase = 0x1000\nbytes = 4096\ntarget = \"4x\"\nclass = \"s1\"\n\
                    [[allocation]]\nbase = 0x8000\nbytes = 128\ntarget = \"host\"\n\
                    [[allocation]]\nbase = 0x9000\nbytes = 128\ntarget = \"2x\"\nshares = [0, 0, 0, 0.5, 0, 0.5]\n";
        let mut map = Targets::parse("t.toml", text).unwrap();
        assert_eq!(map.find(0x1000 / 128).unwrap().home, Home::Compressed(Target::X4));
        assert_eq!(map.find(0x8000 / 128).unwrap().home, Home::Host);
        let error =
            |from: &str, to: &str| Targets::parse("t", &text.replace(from, to)).unwrap_err().to_string();
        assert!(error("4x", "5x").contains("unknown target '5x'"));
        assert!(error("0.5, 0, 0.5", "0.5, 0, 0.6").contains("must add up to 1"));
        assert!(error("bytes = 4096", "bites = 4096").contains("unknown field `bites`"));
        assert!(error("0x8000", "0x1080").contains("overlaps another"));
    }
}
