//! The envelope of every result: JSON that says what it is, in which version, and what made it.
//!
//! Experiments return records, reports read them; neither needs the other, or the same machine. The last field of a
//! record is its checksum ([`json_checksum`] of the rest); a record without one, as scripts and people write them, is
//! taken as it is.

use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;

use crate::json_checksum;

/// A payload that has a place in an envelope.
pub trait RecordKind: Serialize + DeserializeOwned {
    /// What it is, such as `inspect` or `simulation`.
    const KIND: &'static str;
    /// Raised when a reader of the old form would misread the new one.
    const VERSION: u32;

    /// Whether its parts agree, as far as their types do not see to it. A record that contradicts itself is not read.
    ///
    /// # Errors
    /// What contradicts what.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// One result with its provenance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record<T> {
    /// [`RecordKind::KIND`] of the payload.
    pub kind: String,
    /// [`RecordKind::VERSION`] of the payload.
    pub version: u32,
    /// Name and version of the tool that made it.
    pub tool: String,
    /// The seed of whatever was random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Everything that was configured, resolved: presets and defaults filled in.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub spec: Value,
    /// The result itself, whose shape the kind and the version name.
    pub data: T,
}

/// A record as it is written.
#[derive(Serialize)]
struct Sealed<'a, T> {
    #[serde(flatten)]
    record: &'a Record<T>,
    checksum: String,
}

/// A record as it is read.
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

/// Why a text is not the record that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not JSON, or not of the expected shape.
    #[error("not a record of kind '{expected}'")]
    Json {
        /// The kind asked for.
        expected: &'static str,
        /// What serde says, with line and column.
        source: serde_json::Error,
    },
    /// A record of something else.
    #[error("this is a record of kind '{found}', not '{expected}'")]
    Kind {
        /// The kind asked for.
        expected: &'static str,
        /// The kind that the file names.
        found: String,
    },
    /// A record of another version.
    #[error("this '{kind}' record has version {found}; this tool reads version {expected}")]
    Version {
        /// The kind asked for.
        kind: &'static str,
        /// The version this tool reads.
        expected: u32,
        /// The version that the file names.
        found: u32,
    },
    /// A record whose parts do not agree.
    #[error("this '{kind}' record contradicts itself: {why}")]
    Contradiction {
        /// The kind asked for.
        kind: &'static str,
        /// What contradicts what.
        why: String,
    },
    /// A record that is not as it was written.
    #[error(
        "the record was changed or damaged: its checksum is {stated:?}, its contents give {found:?}; make it again, or \
         remove its field 'checksum' if the change is meant"
    )]
    Checksum {
        /// What the record says.
        stated: String,
        /// What its other fields give.
        found: String,
    },
}

impl<T: RecordKind> Record<T> {
    /// Wraps a result that needs neither seed nor spec.
    pub fn new(data: T) -> Self {
        let tool = concat!("buddy ", env!("CARGO_PKG_VERSION")).to_owned();
        Self { kind: T::KIND.to_owned(), version: T::VERSION, tool, seed: None, spec: Value::Null, data }
    }

    /// The record as JSON text that ends in a newline.
    ///
    /// # Panics
    /// If the payload has a map whose keys are not strings, which JSON cannot hold.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(&self.sealed()).expect("payloads have string keys") + "\n"
    }

    /// The same on one line, for records that no person reads.
    ///
    /// # Panics
    /// As [`Self::to_json`].
    pub fn to_json_line(&self) -> String {
        serde_json::to_string(&self.sealed()).expect("payloads have string keys") + "\n"
    }

    fn sealed(&self) -> Sealed<'_, T> {
        // Of the text, because a short float of 32 bits is another number than the same of 64.
        let text = serde_json::to_string(self).expect("payloads have string keys");
        let value = serde_json::from_str(&text).expect("it was just written");
        Sealed { record: self, checksum: spelled(&value) }
    }

    /// Reads a record, after looking at its kind and version.
    ///
    /// # Errors
    /// [`RecordError`] for anything that is not a whole and consistent record of this kind and version.
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

/// The checksum of a record without its last field, as it is written.
fn spelled(record: &Value) -> String {
    format!("crc32:{:08x}", json_checksum(record))
}

/// Whether the fields of a record give the checksum that it states.
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
    fn what_is_written_is_read() {
        let mut record = Record::new(Size { bytes: 7, share: 0.1 });
        record.seed = Some(42);
        record.spec = serde_json::json!({ "codec": "bpc" });
        assert_eq!(Record::from_json(&record.to_json()).unwrap(), record);
        assert!(record.tool.starts_with("buddy "));
    }

    #[test]
    fn a_record_that_was_changed_is_refused_and_another_form_of_it_is_not() {
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
