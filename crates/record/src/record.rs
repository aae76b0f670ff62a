//! The envelope of every result: JSON with its kind, its version and the tool that wrote it.
//!
//! The last field of a record is its checksum ([`json_checksum`] of the rest). Records without one,
//! such as hand-written ones, are accepted.

use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;

use crate::json_checksum;

/// A payload type of a record.
pub trait RecordKind: Serialize + DeserializeOwned {
    /// Name of the payload type, such as `inspect` or `simulation`.
    const KIND: &'static str;
    /// Format version, increased when older readers would misread the payload.
    const VERSION: u32;

    /// Checks invariants that the types do not enforce. Inconsistent records are rejected.
    ///
    /// # Errors
    /// A message that names the contradiction.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A result with its provenance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record<T> {
    /// [`RecordKind::KIND`] of the payload.
    pub kind: String,
    /// [`RecordKind::VERSION`] of the payload.
    pub version: u32,
    /// Name and version of the tool that wrote it.
    pub tool: String,
    /// Random seed, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The configuration, with presets and defaults resolved.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub spec: Value,
    /// The payload.
    pub data: T,
}

/// Serialized form of a record.
#[derive(Serialize)]
struct Sealed<'a, T> {
    #[serde(flatten)]
    record: &'a Record<T>,
    checksum: String,
}

/// Deserialized form of a record.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    kind: String,
    version: u32,
    tool: String,
    #[serde(default)]
    seed: Option<u64>,
    #[serde(default)]
    spec: Value,
    data: T,
    #[serde(default, rename = "checksum")]
    _checksum: IgnoredAny,
}

/// Errors of reading a record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not JSON, or not of the expected shape.
    #[error("not a record of kind '{expected}'")]
    Json {
        /// The expected kind.
        expected: &'static str,
        /// The parse error, with line and column.
        source: serde_json::Error,
    },
    /// A record of another kind.
    #[error("this is a record of kind '{found}', not '{expected}'")]
    Kind {
        /// The expected kind.
        expected: &'static str,
        /// The kind in the file.
        found: String,
    },
    /// A record of another version.
    #[error("this '{kind}' record has version {found}; this tool reads version {expected}")]
    Version {
        /// The expected kind.
        kind: &'static str,
        /// The version that this tool reads.
        expected: u32,
        /// The version in the file.
        found: u32,
    },
    /// A record that is inconsistent.
    #[error("this '{kind}' record contradicts itself: {why}")]
    Contradiction {
        /// The kind of the record.
        kind: &'static str,
        /// The contradiction.
        why: String,
    },
    /// A record whose checksum does not match.
    #[error(
        "the record was changed or damaged: its checksum is {stated:?}, its contents give {found:?}; regenerate it, \
         or remove the field 'checksum' if the change is intended"
    )]
    Checksum {
        /// The checksum in the record.
        stated: String,
        /// The checksum of its contents.
        found: String,
    },
}

impl<T: RecordKind> Record<T> {
    /// Wraps a result without seed or spec.
    pub fn new(data: T) -> Self {
        let tool = concat!("buddy ", env!("CARGO_PKG_VERSION")).to_owned();
        Self { kind: T::KIND.to_owned(), version: T::VERSION, tool, seed: None, spec: Value::Null, data }
    }

    /// Returns the record as JSON text that ends in a newline.
    ///
    /// # Panics
    /// If the payload has a map with keys other than strings.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(&self.sealed()).expect("payloads have string keys") + "\n"
    }

    /// Returns the record as one line of JSON.
    ///
    /// # Panics
    /// As [`Self::to_json`].
    pub fn to_json_line(&self) -> String {
        serde_json::to_string(&self.sealed()).expect("payloads have string keys") + "\n"
    }

    fn sealed(&self) -> Sealed<'_, T> {
        // From the text, because an f32 prints with fewer digits than the same value as f64.
        let text = serde_json::to_string(self).expect("payloads have string keys");
        let value = serde_json::from_str(&text).expect("it was just written");
        Sealed { record: self, checksum: spelled(&value) }
    }

    /// Reads a record and checks its kind, version, checksum and invariants.
    ///
    /// # Errors
    /// [`RecordError`] for anything but a complete and consistent record of this kind and version.
    pub fn from_json(text: &str) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Head {
            kind: String,
            version: u32,
            checksum: Option<String>,
        }
        let json = |source| RecordError::Json { expected: T::KIND, source };
        let head: Head = serde_json::from_str(text).map_err(json)?;
        if head.kind != T::KIND {
            return Err(RecordError::Kind { expected: T::KIND, found: head.kind });
        }
        if head.version != T::VERSION {
            return Err(RecordError::Version { kind: T::KIND, expected: T::VERSION, found: head.version });
        }
        let envelope: Envelope<T> = serde_json::from_str(text).map_err(json)?;
        if let Some(stated) = head.checksum {
            compare(stated, text).map_err(json)??;
        }
        envelope.data.check().map_err(|why| RecordError::Contradiction { kind: T::KIND, why })?;
        let Envelope { kind, version, tool, seed, spec, data, _checksum } = envelope;
        Ok(Self { kind, version, tool, seed, spec, data })
    }
}

/// Returns the checksum field for a record without that field.
fn spelled(record: &Value) -> String {
    format!("crc32:{:08x}", json_checksum(record))
}

/// Compares the stated checksum with that of the other fields.
fn compare(stated: String, text: &str) -> serde_json::Result<Result<(), RecordError>> {
    let mut value: serde_json::Map<String, Value> = serde_json::from_str(text)?;
    value.remove("checksum");
    let found = spelled(&Value::Object(value));
    Ok(if stated == found { Ok(()) } else { Err(RecordError::Checksum { stated, found }) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Size {
        bytes: u64,
        #[serde(default)]
        share: f32,
    }

    impl RecordKind for Size {
        const KIND: &'static str = "size";
        const VERSION: u32 = 2;

        fn check(&self) -> Result<(), String> {
            if self.share <= 1.0 { Ok(()) } else { Err("a share over 1".to_owned()) }
        }
    }

    #[test]
    fn a_record_survives_json() {
        let mut record = Record::new(Size { bytes: 7, share: 0.1 });
        record.seed = Some(42);
        record.spec = serde_json::json!({ "codec": "bpc" });
        assert_eq!(Record::from_json(&record.to_json()).unwrap(), record);
        assert!(record.tool.starts_with("buddy "));
    }

    #[test]
    fn a_changed_record_is_refused_and_a_reformatted_one_is_not() {
        let record = Record::new(Size { bytes: 7, share: 0.1 });
        let text = record.to_json();
        assert!(text.ends_with("\"\n}\n") && text.contains("\"checksum\": \"crc32:"), "{text}");
        assert_eq!(Record::<Size>::from_json(&record.to_json_line()).unwrap(), record);
        assert_eq!(Record::<Size>::from_json(&text.replace("  ", "\t")).unwrap(), record);
        let changed = text.replace("\"bytes\": 7", "\"bytes\": 8");
        let error = Record::<Size>::from_json(&changed).unwrap_err().to_string();
        assert!(error.starts_with("the record was changed or damaged"), "{error}");
        let unsigned: Vec<&str> = changed.lines().filter(|line| !line.contains("checksum")).collect();
        let unsigned = unsigned.join("\n").replace("},\n}", "}\n}");
        assert_eq!(Record::<Size>::from_json(&unsigned).unwrap().data.bytes, 8);
    }

    #[test]
    fn a_record_that_contradicts_itself_is_refused() {
        let text = Record::new(Size { bytes: 7, share: 1.5 }).to_json();
        let error = Record::<Size>::from_json(&text).unwrap_err().to_string();
        assert_eq!(error, "this 'size' record contradicts itself: a share over 1");
    }

    #[test]
    fn another_kind_or_version_is_refused_by_name() {
        let text = |kind, version| {
            format!(r#"{{"kind":"{kind}","version":{version},"tool":"t","data":{{"bytes":1}}}}"#)
        };
        let error = |kind, version| Record::<Size>::from_json(&text(kind, version)).unwrap_err().to_string();
        assert_eq!(error("colour", 2), "this is a record of kind 'colour', not 'size'");
        assert_eq!(error("size", 3), "this 'size' record has version 3; this tool reads version 2");
        assert!(
            Record::<Size>::from_json("{")
                .unwrap_err()
                .to_string()
                .starts_with("not a record of kind 'size'")
        );
    }
}
