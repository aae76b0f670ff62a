//! The envelope of every result: JSON that says what it is, in which version, and what made it.
//!
//! Experiments return records, reports read them; neither needs the other, or the same machine.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A payload that has a place in an envelope.
pub trait RecordKind: Serialize + DeserializeOwned {
    /// What it is, such as `inspect` or `simulation`.
    const KIND: &'static str;
    /// Raised when a reader of the old form would misread the new one.
    const VERSION: u32;
}

/// One result with its provenance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record<T> {
    /// [`RecordKind::KIND`] of the payload.
    pub kind: String,
    /// [`RecordKind::VERSION`] of the payload.
    pub version: u32,
    /// Name and version of the tool that made it.
    pub tool: String,
    /// The seed of whatever was random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Everything that was configured, resolved: presets and defaults filled in.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub spec: Value,
    /// The result itself, whose shape the kind and the version name.
    pub data: T,
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
        let mut text = serde_json::to_string_pretty(self).expect("payloads have string keys");
        text.push('\n');
        text
    }

    /// Reads a record, after looking at its kind and version.
    ///
    /// # Errors
    /// [`RecordError`] for anything that is not a record of this kind and version.
    pub fn from_json(text: &str) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Head {
            kind: String,
            version: u32,
        }
        let json = |source| RecordError::Json { expected: T::KIND, source };
        let head: Head = serde_json::from_str(text).map_err(json)?;
        if head.kind != T::KIND {
            return Err(RecordError::Kind { expected: T::KIND, found: head.kind });
        }
        if head.version != T::VERSION {
            return Err(RecordError::Version { kind: T::KIND, expected: T::VERSION, found: head.version });
        }
        serde_json::from_str(text).map_err(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Size {
        bytes: u64,
    }

    impl RecordKind for Size {
        const KIND: &'static str = "size";
        const VERSION: u32 = 2;
    }

    #[test]
    fn what_is_written_is_read() {
        let mut record = Record::new(Size { bytes: 7 });
        record.seed = Some(42);
        record.spec = serde_json::json!({ "codec": "bpc" });
        assert_eq!(Record::from_json(&record.to_json()).unwrap(), record);
        assert!(record.tool.starts_with("buddy "));
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
