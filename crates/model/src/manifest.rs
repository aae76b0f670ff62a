//! `buddy.json` of a packed folder: the packed files, their originals, and the texts that packing
//! changed.

use std::{collections::BTreeMap, fs::Metadata, io::Write, path::Path, time::UNIX_EPOCH};

use buddy_snapshot::write_atomic;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Error, header::not_packed};

/// The file's name in a packed folder.
pub(crate) const NAME: &str = "buddy.json";
/// Transformers' configuration of a model, which names the quantiser.
pub(crate) const CONFIG: &str = "config.json";
const METHOD: &str = "buddy";

/// A file's state when it was packed; an unchanged file is not packed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Origin {
    bytes: u64,
    modified_ns: u64,
    pub(crate) packed_bytes: u64,
}

impl Origin {
    pub(crate) fn of(plain: &Metadata, packed_bytes: u64) -> Self {
        let since = plain.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_ns = since.map_or(0, |since| since.as_nanos() as u64);
        Self { bytes: plain.len(), modified_ns, packed_bytes }
    }
}

/// The content of `buddy.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    version: u32,
    pub(crate) files: BTreeMap<String, Origin>,
    /// The original `config.json`.
    pub(crate) config: Option<String>,
}

impl Default for Manifest {
    fn default() -> Self {
        Self { version: 1, files: BTreeMap::new(), config: None }
    }
}

impl Manifest {
    /// Reads a folder's manifest, if it has one.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let path = folder.join(NAME);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::Io(error).of(&path)),
        };
        let read: Self =
            serde_json::from_str(&text).map_err(|error| not_packed(error.to_string()).of(&path))?;
        if read.version != 1 {
            return Err(not_packed(format!("version {}; this Buddy reads version 1", read.version)).of(&path));
        }
        Ok(Some(read))
    }

    /// Writes the manifest.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).map_err(|error| not_packed(error.to_string()))?;
        Ok(write_atomic(&folder.join(NAME), |out| out.write_all(text.as_bytes()))?)
    }
}

/// Returns the packed model's configuration: the original with the quantiser that loads it.
pub(crate) fn packed_config(text: &str) -> Result<String, Error> {
    let wrong = |error: serde_json::Error| Error::Io(error.into()).at(CONFIG);
    let mut config: Value = serde_json::from_str(text).map_err(wrong)?;
    if let Some(found) = config.get("quantization_config").filter(|found| !found.is_null()) {
        let method = found.get("quant_method").and_then(Value::as_str).unwrap_or("a method without a name");
        return Err(Error::Quantised { method: method.to_owned() });
    }
    config["quantization_config"] = json!({ "quant_method": METHOD });
    serde_json::to_string_pretty(&config).map_err(wrong)
}
