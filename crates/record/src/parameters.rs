//! Trained codec parameters, as stored in records and target files: fields next to the codec's
//! name.

use buddy_codec::{Codec, CodecKind, Error};
use buddy_core::Entry;
use serde_json::{Map, Value};

/// Returns a codec's trained parameters by field; empty for a codec without parameters.
pub fn codec_parameters(codec: &Codec) -> Map<String, Value> {
    match serde_json::to_value(codec) {
        Ok(Value::Object(mut fields)) => {
            fields.remove("codec");
            fields
        }
        _ => Map::new(),
    }
}

/// Creates a codec by name with stored parameters, or trains it on the sample if there are none.
///
/// # Errors
/// [`Error::Name`], or [`Error::Parameters`] for fields that do not belong to the codec.
pub fn codec_with_parameters(
    name: &str,
    parameters: &Map<String, Value>,
    sample: impl FnOnce() -> Vec<Entry>,
) -> Result<Codec, Error> {
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
