//! Targets and size classes from a file or a few words.

use buddy_core::{SizeClass, Target, TargetTable};
use serde::Deserialize;

use crate::{Allocation, ClassMap, Classes, Error, Home};

/// A file of targets, by what its rows go by. `docs/reference/targets.md` describes both kinds.
#[derive(Debug, Clone, PartialEq)]
pub enum TargetsFile {
    /// By name, for a program whose allocations have names: what `buddy profile` writes.
    Named(TargetTable),
    /// By address, for a trace, which has no names and no data: each row says how its entries compress.
    Addressed(Vec<Allocation>),
}

/// The rows of a file by address.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    allocation: Vec<Row>,
}

/// One allocation: where it lies, its target, and the shares of its classes or one class for all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
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

impl TargetsFile {
    /// Reads the file and tells by the fields of its rows which kind it is.
    ///
    /// # Errors
    /// [`Error::Targets`] that names the file and the field.
    pub fn parse(file: &str, text: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::Targets { file: file.to_owned(), why };
        let table: toml::Table = toml::from_str(text).map_err(|error| Error::toml(file, &error))?;
        let rows = || table.get("allocation").and_then(toml::Value::as_array).into_iter().flatten();
        let have = |field| rows().any(|row| row.get(field).is_some());
        match (have("name") || table.contains_key("program"), have("base")) {
            (true, false) => {
                TargetTable::parse(text).map(Self::Named).map_err(|error| wrong(error.to_string()))
            }
            (false, true) => {
                let rows: Rows = toml::from_str(text).map_err(|error| Error::toml(file, &error))?;
                let allocations = rows.allocation.iter().map(|row| row.allocation().map_err(wrong));
                Ok(Self::Addressed(allocations.collect::<Result<_, _>>()?))
            }
            _ => Err(wrong(
                "the rows of a file of targets go either by name, as `buddy profile` writes them, or by base and \
                 bytes, for a trace"
                    .to_owned(),
            )),
        }
    }
}

impl Row {
    fn allocation(&self) -> Result<Allocation, String> {
        let home = match self.target.as_str() {
            "device" => Home::Device,
            "host" => Home::Host,
            name => name.parse::<Target>().map_err(|error| error.to_string())?.into(),
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
    /// Target of every allocation.
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
        let home = self.target.into();
        let one = |&(base, bytes): &(u64, u64)| Allocation { base, bytes, home, classes: classes.clone() };
        ClassMap::new(allocations.iter().map(one).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY_ADDRESS: &str = "[[allocation]]\nbase = 0x1000\nbytes = 4096\ntarget = \"4x\"\nclass = \"s1\"\n\
        [[allocation]]\nbase = 0x8000\nbytes = 128\ntarget = \"host\"\n\
        [[allocation]]\nbase = 0x9000\nbytes = 128\ntarget = \"2x\"\nshares = [0, 0, 0, 0.5, 0, 0.5]\n\
        [[allocation]]\nbase = 0xa000\nbytes = 128\ntarget = \"uncompressed\"\n";

    #[test]
    fn a_file_by_address() {
        let Ok(TargetsFile::Addressed(all)) = TargetsFile::parse("t.toml", BY_ADDRESS) else { panic!() };
        let homes: Vec<Home> = all.iter().map(|allocation| allocation.home).collect();
        let compressed = Home::Compressed;
        assert_eq!(homes, [compressed(Target::X4), Home::Host, compressed(Target::X2), Home::Device]);
        let error = |from: &str, to: &str| {
            TargetsFile::parse("t", &BY_ADDRESS.replace(from, to)).unwrap_err().to_string()
        };
        assert!(error("4x", "5x").contains("unknown target '5x'"));
        assert!(error("0.5, 0, 0.5", "0.5, 0, 0.6").contains("must add up to 1"));
        assert!(error("bytes = 4096", "bites = 4096").contains("unknown field `bites`"));
    }

    #[test]
    fn the_two_kinds_are_told_apart() {
        let named = "version = 1\nprogram = \"p\"\n[[allocation]]\nname = \"u\"\nbytes = 128\ncodec = \"bpc\"\n\
                     target = \"2x\"\n";
        assert!(matches!(TargetsFile::parse("t", named), Ok(TargetsFile::Named(_))));
        let error = |text: &str| TargetsFile::parse("t", text).unwrap_err().to_string();
        assert!(error("[[allocation]]\nbytes = 1\n").contains("either by name"));
        assert!(error(&format!("{named}{BY_ADDRESS}")).contains("either by name"));
        assert!(error("").contains("either by name") && error("allocation = 1\n").contains("either by name"));
        assert!(error(&named.replace("program = \"p\"", "")).contains("missing field `program`"));
        assert!(error("x = ").starts_with("t: "));
    }
}
