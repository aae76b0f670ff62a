//! Trained codec parameters, as stored in records and target files: fields next to the codec's
//! name.

use buddy_core::Entry;
use serde_json::{Map, Value};

use crate::{Codec, CodecKind, Error};

impl Codec {
    /// Describes the trained parameters; `None` for a codec without parameters.
    pub fn describe_parameters(&self) -> Option<String> {
        Some(match self {
            Self::Fvc(fvc) => format!("{} frequent values", fvc.values().len()),
            Self::Bf16(bf16) => format!("window {}", bf16.window()),
            Self::Table32(table) => format!("{} values", table.values().len()),
            Self::Table64(table) => format!("{} values", table.values().len()),
            Self::Stride32(codec) => codec.to_string(),
            Self::Stride64(codec) => codec.to_string(),
            Self::Scaled64(codec) => codec.to_string(),
            Self::Prefix32(codec) => codec.to_string(),
            Self::Prefix64(codec) => codec.to_string(),
            Self::Rank32(codec) => codec.to_string(),
            Self::Rank64(codec) => codec.to_string(),
            _ => return None,
        })
    }

    /// Returns the trained parameters by field; empty for a codec without parameters.
    pub fn parameters(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(mut fields)) => {
                fields.remove("codec");
                fields
            }
            _ => Map::new(),
        }
    }

    /// Creates a codec by name with stored parameters, or trains it on the sample if there are
    /// none.
    ///
    /// # Errors
    /// [`Error::Name`], or [`Error::Parameters`] for fields that do not belong to the codec.
    pub fn with_parameters(
        name: &str,
        parameters: &Map<String, Value>,
        sample: impl FnOnce() -> Vec<Entry>,
    ) -> Result<Self, Error> {
        let kind: CodecKind = name.parse()?;
        if parameters.is_empty() {
            return Ok(kind.train(&if kind.has_parameters() { sample() } else { Vec::new() }));
        }
        if !kind.has_parameters() {
            return Err(Error::Parameters(format!("{kind} has no parameters")));
        }
        let mut fields = parameters.clone();
        fields.insert("codec".to_owned(), Value::String(name.to_owned()));
        serde_json::from_value(Value::Object(fields))
            .map_err(|error| Error::Parameters(format!("invalid parameters of {kind}: {error}")))
    }
}
