//! Public CUDA programs: their memory was watched on a GPU (docs/guide/hpc-programs.md), and is profiled here from the records.

use std::{collections::BTreeMap, path::Path};

use crate::{Error, Recorded, recorded::built_in_run};

/// A public program.
#[derive(Debug, Clone, Copy)]
pub struct PublicInfo {
    /// Its name in records.
    pub name: &'static str,
    /// The name that figures show, with the suite that it is of.
    pub label: &'static str,
    /// Which of our ten programs computes the same, if one does.
    pub twin: Option<&'static str>,
    /// Its record that is built in.
    record: &'static str,
}

/// A row of the table; the record's file has the name.
macro_rules! public {
    ($($name:literal, $label:literal, $twin:expr;)*) => {
        [$(PublicInfo {
            name: $name,
            label: $label,
            twin: $twin,
            record: include_str!(concat!("../../../data/recorded/public/", $name, ".json")),
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

/// The public programs, profiled with the paper's codec and policy: from a directory, or those that are built in.
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
