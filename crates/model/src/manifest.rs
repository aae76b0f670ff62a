//! `buddy.json` of a packed folder: its files, their originals and checksums, and the texts that
//! packing changed.

use std::{collections::BTreeMap, fs::Metadata, io::Write, path::Path, time::UNIX_EPOCH};

use buddy_snapshot::write_atomic;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    Error,
    checksum::{self, UNSEALED},
    header::not_packed,
};

/// The file's name in a packed folder.
pub(crate) const NAME: &str = "buddy.json";
/// Transformers' configuration of a model, which names the quantiser.
pub(crate) const CONFIG: &str = "config.json";
const METHOD: &str = "buddy";
/// The version that is written.
const VERSION: u32 = 2;
/// Precedes the digits of the manifest's own checksum, its last field.
const MARK: &str = "\"checksum\": \"";

/// A file's state when it was packed; an unchanged file is not packed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Origin {
    bytes: u64,
    modified_ns: u64,
    packed_bytes: u64,
}

impl Origin {
    pub(crate) fn of(plain: &Metadata, packed_bytes: u64) -> Self {
        let since = plain.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_ns = since.map_or(0, |since| since.as_nanos() as u64);
        Self { bytes: plain.len(), modified_ns, packed_bytes }
    }
}

/// A packed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shard {
    pub(crate) origin: Origin,
    /// The checksum of its header, which holds those of its tensors; empty in version 1.
    pub(crate) checksum: String,
}

/// The content of `buddy.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    version: u32,
    /// True once every file is in place.
    pub(crate) complete: bool,
    pub(crate) files: BTreeMap<String, Shard>,
    /// The checksums of all other files.
    pub(crate) copied: BTreeMap<String, String>,
    /// The original `config.json`.
    pub(crate) config: Option<String>,
    checksum: String,
}

/// Version 1, without checksums.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct First {
    #[serde(rename = "version")]
    _version: u32,
    files: BTreeMap<String, Origin>,
    config: Option<String>,
}

impl Default for Manifest {
    fn default() -> Self {
        let (files, copied) = (BTreeMap::new(), BTreeMap::new());
        Self { version: VERSION, complete: false, files, copied, config: None, checksum: String::new() }
    }
}

impl From<First> for Manifest {
    fn from(first: First) -> Self {
        let shard = |(name, origin)| (name, Shard { origin, checksum: String::new() });
        let files = first.files.into_iter().map(shard).collect();
        Self { version: 1, complete: true, files, config: first.config, ..Self::default() }
    }
}

impl Manifest {
    /// Returns the manifest of a folder that is being packed: its packed files alone are known.
    pub(crate) fn begin(self, config: Option<String>) -> Self {
        Self { complete: false, copied: BTreeMap::new(), config, ..self }
    }

    /// Returns whether it lists checksums.
    pub(crate) fn has_checksums(&self) -> bool {
        self.version > 1
    }

    /// Reads a folder's manifest, if it has one.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let path = folder.join(NAME);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::Io(error).of(&path)),
        };
        Self::parse(&text).map(Some).map_err(|error| error.of(&path))
    }

    fn parse(text: &[u8]) -> Result<Self, Error> {
        let wrong = |error: serde_json::Error| not_packed(error.to_string());
        let value: Value = serde_json::from_slice(text).map_err(wrong)?;
        match value.get("version").and_then(Value::as_u64) {
            Some(1) => serde_json::from_value::<First>(value).map(Self::from).map_err(wrong),
            Some(2) => {
                checksum::unseal(text, MARK)?;
                serde_json::from_value(value).map_err(wrong)
            }
            Some(other) => Err(not_packed(format!("version {other}; this Buddy reads versions 1 and 2"))),
            None => Err(not_packed("it has no version")),
        }
    }

    /// Writes the manifest.
    pub(crate) fn write(&mut self, folder: &Path) -> Result<(), Error> {
        UNSEALED.clone_into(&mut self.checksum);
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| not_packed(error.to_string()))?;
        checksum::seal(&mut text, MARK)?;
        Ok(write_atomic(&folder.join(NAME), |out| out.write_all(&text))?)
    }
}

/// Returns the packed model's configuration: the original with the quantiser that loads it.
pub(crate) fn packed_config(text: &str) -> Result<String, Error> {
    let wrong = |error: serde_json::Error| Error::Io(error.into()).at(CONFIG);
    let mut config: Map<String, Value> = serde_json::from_str(text).map_err(wrong)?;
    if let Some(found) = config.get("quantization_config").filter(|found| !found.is_null()) {
        let method = found.get("quant_method").and_then(Value::as_str).unwrap_or("a method without a name");
        return Err(Error::Quantised { method: method.to_owned() });
    }
    config.insert("quantization_config".to_owned(), json!({ "quant_method": METHOD }));
    serde_json::to_string_pretty(&config).map_err(wrong)
}
