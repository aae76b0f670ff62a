//! Public CUDA programs, recorded on a GPU (docs/guide/hpc-programs.md) and profiled here.

use std::{collections::BTreeMap, path::Path};

use crate::{Error, Recorded, recorded::built_in_run};

/// A public program.
#[derive(Debug, Clone, Copy)]
pub struct PublicInfo {
    /// Its name in records.
    pub name: &'static str,
    /// Label in figures, with the suite.
    pub label: &'static str,
    /// The matching program of our ten, if any.
    pub twin: Option<&'static str>,
    /// Its built-in record.
    record: &'static str,
}

/// Makes a row of the table; the record's file has the name.
macro_rules! public {
    ($($name:literal, $label:literal, $twin:expr;)*) => {
        [$(PublicInfo {
            name: $name,
            label: $label,
            twin: $twin,
            record: include_str!(concat!("../recorded/public/", $name, ".json")),
        }),*]
    };
}

/// Every public program, by suite.
pub const PUBLIC: [PublicInfo; 20] = public! {
    "cg", "NPB cg C", Some("cg");
    "ep", "NPB ep C", Some("ep");
    "sp", "NPB sp B", Some("sp");
    "bt", "NPB bt B", Some("bt");
    "mg", "NPB mg C", None;
    "ft", "NPB ft B", None;
    "is", "NPB is C", None;
    "lu", "NPB lu B", None;
    "lulesh", "LULESH 64", Some("lulesh");
    "hpgmg", "HPGMG 7 8", Some("hpgmg");
    "bfs", "bfs", None;
    "gaussian", "gaussian", None;
    "hotspot", "hotspot", None;
    "hotspot3d", "hotspot3D", None;
    "lavamd", "lavaMD", None;
    "lud", "lud", None;
    "needle", "needle", None;
    "particlefilter", "particlefilter", None;
    "pathfinder", "pathfinder", None;
    "streamcluster", "streamcluster", None;
};

/// Reads the public programs from a folder or built in, and profiles them with the paper's codec
/// and policy.
///
/// # Errors
/// If a file is not the record of a run.
pub(crate) fn public_programs(dir: Option<&Path>) -> Result<BTreeMap<String, Recorded>, Error> {
    let mut programs = BTreeMap::new();
    let dir = dir.map(|dir| dir.join("public")).filter(|dir| dir.is_dir());
    for info in &PUBLIC {
        if let Some(record) = built_in_run(dir.as_deref(), info.name, info.record)? {
            programs.insert(info.name.to_owned(), Recorded::new(record)?);
        }
    }
    Ok(programs)
}
