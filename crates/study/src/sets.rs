//! Further records of the paper's networks and of `bt`, in folders beside the main ones.

use std::{collections::BTreeMap, path::Path};

use crate::{Error, Recorded, recorded::built_in_run};

/// The records of a set by name.
type Records = [(&'static str, &'static str)];

/// Makes a row for each built-in record of a set.
macro_rules! set {
    ($set:literal: $($name:literal)*) => {
        ($set, &[$(($name, include_str!(concat!("../recorded/", $set, "/", $name, ".json")))),*])
    };
}

/// The sets and their built-in records: the folder of `data/recorded`, and each file's name and text.
const SETS: [(&str, &Records); 4] = [
    set!("cpu": "biglstm" "alexnet" "inception_v2" "squeezenet" "vgg16" "resnet50"),
    set!("cpu-caffe": "alexnet" "squeezenet"),
    set!("cpu-small": "biglstm" "alexnet" "inception_v2" "squeezenet" "vgg16" "resnet50"),
    set!("classes": "bt-64" "bt-101"),
];

/// Reads the sets from a folder or built in, and profiles them with the paper's codec and policy.
///
/// # Errors
/// If a file is not the record of a run.
pub(crate) fn sets(dir: Option<&Path>) -> Result<BTreeMap<&'static str, BTreeMap<String, Recorded>>, Error> {
    let mut all = BTreeMap::new();
    for (set, records) in SETS {
        let dir = dir.map(|dir| dir.join(set));
        let mut networks = BTreeMap::new();
        // A folder of a user's own records has no other networks than its own.
        if dir.as_ref().is_some_and(|dir| !dir.is_dir()) {
            continue;
        }
        for (name, record) in records {
            if let Some(record) = built_in_run(dir.as_deref(), name, record)? {
                networks.insert((*name).to_owned(), Recorded::new(record)?);
            }
        }
        all.insert(set, networks);
    }
    Ok(all)
}
