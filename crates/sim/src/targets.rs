//! Targets and size classes from a file or from command-line shares.

use buddy_core::{SizeClass, Target};
use buddy_record::TargetTable;
use serde::Deserialize;

use crate::{Allocation, ClassMap, Classes, Error, Home};

/// A targets file. `docs/reference/targets.md` describes both kinds.
#[derive(Debug, Clone, PartialEq)]
pub enum TargetsFile {
    /// Rows by name, for programs with named allocations: what `buddy profile` writes.
    Named(TargetTable),
    /// Rows by address, for traces, which have no names and no data; each row gives the size
    /// classes of its entries.
    Addressed(Vec<Allocation>),
}

/// Rows of a file by address.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    allocation: Vec<Row>,
}

/// One allocation: address range, target, and one class or shares of classes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    base: u64,
    bytes: u64,
    /// A target, `device` for uncompressed, or `host`.
    target: String,
    #[serde(default)]
    class: Option<SizeClass>,
    /// Shares of zero, b8, s1, s2, s3 and raw; they sum to 1.
    #[serde(default)]
    shares: Option<[f64; 6]>,
    #[serde(default)]
    seed: u64,
}

impl TargetsFile {
    /// Parses a file; the fields of its rows decide the kind.
    ///
    /// # Errors
    /// [`Error::Targets`], naming the file and the field.
    pub fn parse(file: &str, text: &str) -> Result<Self, Error> {
        let invalid = |why: String| Error::Targets { file: file.to_owned(), why };
        let table: toml::Table = toml::from_str(text).map_err(|error| Error::toml(file, &error))?;
        let rows = || table.get("allocation").and_then(toml::Value::as_array).into_iter().flatten();
        let have = |field| rows().any(|row| row.get(field).is_some());
        match (have("name") || table.contains_key("program"), have("base")) {
            (true, false) => {
                TargetTable::parse(text).map(Self::Named).map_err(|error| invalid(error.to_string()))
            }
            (false, true) => {
                let rows: Rows = toml::from_str(text).map_err(|error| Error::toml(file, &error))?;
                let allocations = rows.allocation.iter().map(|row| row.allocation().map_err(invalid));
                Ok(Self::Addressed(allocations.collect::<Result<_, _>>()?))
            }
            _ => Err(invalid(
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
            (None, Some(shares)) => classes_from_shares(shares, self.seed)?,
            (None, None) => Classes::Uniform(SizeClass::Raw),
            (Some(_), Some(_)) => return Err("an allocation has 'class' or 'shares', not both".to_owned()),
        };
        Ok(Allocation { base: self.base, bytes: self.bytes, home, classes })
    }
}

fn classes_from_shares(shares: [f64; 6], seed: u64) -> Result<Classes, String> {
    let sum: f64 = shares.iter().sum();
    if shares.iter().any(|share| !(0.0..=1.0).contains(share)) || (sum - 1.0).abs() > 1e-6 {
        return Err(format!(
            "shares are {shares:?}; each must lie between 0 and 1, and they must add up to 1"
        ));
    }
    Ok(Classes::Shares { shares, seed })
}

/// Returns the map of allocations, given as base and length, with one target and one mix of classes:
/// the share of each class, in the order of [`SizeClass::ALL`].
///
/// # Errors
/// [`Error`] for invalid shares or overlapping allocations.
pub fn uniform_map(target: Target, shares: [f64; 6], allocations: &[(u64, u64)]) -> Result<ClassMap, Error> {
    let invalid = |why| Error::Targets { file: "shares".to_owned(), why };
    let classes = classes_from_shares(shares, 0).map_err(invalid)?;
    let allocation = |&(base, bytes): &(u64, u64)| Allocation {
        base,
        bytes,
        home: target.into(),
        classes: classes.clone(),
    };
    ClassMap::new(allocations.iter().map(allocation).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY_ADDRESS: &str = "[[allocation]]\nbase = 0x1000\nbytes = 4096\ntarget = \"4x\"\nclass = \"s1\"\n\
        [[allocation]]\nbase = 0x8000\nbytes = 128\ntarget = \"host\"\n\
        [[allocation]]\nbase = 0x9000\nbytes = 128\ntarget = \"2x\"\nshares = [0, 0, 0, 0.5, 0, 0.5]\n\
        [[allocation]]\nbase = 0xa000\nbytes = 128\ntarget = \"uncompressed\"\n";

    #[test]
    fn a_file_by_address_sets_homes_and_classes() {
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
    fn named_and_addressed_files_are_distinguished() {
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
