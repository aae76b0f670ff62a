//! The paper's networks in Caffe's memory layout: every blob with its gradient for the whole run
//! (docs/notes/deep-learning.md).

use std::{collections::BTreeMap, path::Path};

use crate::{Error, Recorded, recorded::built_in_run};

/// Makes a row for each built-in record.
macro_rules! records {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../recorded/caffe/", $name, ".json")))),*]
    };
}

const CAFFE: [(&str, &str); 6] = records!["biglstm" "alexnet" "inception_v2" "squeezenet" "vgg16" "resnet50"];

/// Reads the networks from a folder or built in, and profiles them with the paper's codec and
/// policy.
///
/// # Errors
/// If a file is not the record of a run.
pub(crate) fn caffe_networks(dir: Option<&Path>) -> Result<BTreeMap<String, Recorded>, Error> {
    let mut networks = BTreeMap::new();
    let dir = dir.map(|dir| dir.join("caffe")).filter(|dir| dir.is_dir());
    for (name, record) in CAFFE {
        if let Some(record) = built_in_run(dir.as_deref(), name, record)? {
            networks.insert(name.to_owned(), Recorded::new(record)?);
        }
    }
    Ok(networks)
}
