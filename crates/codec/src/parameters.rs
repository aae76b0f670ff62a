//! What a codec learned of an allocation, as records and the file of targets keep it: fields beside the codec's name.

use buddy_core::Entry;
use serde_json::{Map, Value};

use crate::{Codec, CodecKind, Error};

impl Codec {
    /// What it learned, in words; none for a codec that does not learn.
    pub fn learned(&self) -> Option<String> {
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

    /// What it learned, field by field; nothing for a codec that does not learn.
    pub fn parameters(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(mut fields)) => {
                fields.remove("codec");
                fields
            }
            _ => Map::new(),
        }
    }

    /// The codec of a name with what it learned, or trained on the sample where there is nothing of that.
    ///
    /// # Errors
    /// [`Error::Name`], or [`Error::Parameters`] for fields that are not the codec's own.
    pub fn with_parameters(
        name: &str,
        parameters: &Map<String, Value>,
        sample: impl FnOnce() -> Vec<Entry>,
    ) -> Result<Self, Error> {
        let kind: CodecKind = name.parse()?;
        if parameters.is_empty() {
            return Ok(kind.train(&if kind.learns() { sample() } else { Vec::new() }));
        }
        if !kind.learns() {
            return Err(Error::Parameters(format!("{kind} has no parameters")));
        }
        let mut fields = parameters.clone();
        fields.insert("codec".to_owned(), Value::String(name.to_owned()));
        serde_json::from_value(Value::Object(fields))
            .map_err(|error| Error::Parameters(format!("these are no parameters of {kind}: {error}")))
    }
}
