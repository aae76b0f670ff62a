//! Keys of records, and their digests.

use buddy_core::digest;
use buddy_scenario::TOOL;
use serde_json::Value;

/// Name of a record, and everything that decides its contents.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// Name, such as `program-cg`; a `/` makes a directory.
    pub name: String,
    /// Inputs of the computation.
    pub inputs: Value,
}

impl Key {
    /// Returns the digest of the inputs and of this program's version and build; results of other
    /// code differ.
    pub fn digest(&self) -> u128 {
        digest_of(&self.inputs.to_string())
    }

    /// Returns the key of a point, in one of 256 directories because file systems are slow with a
    /// million files in one.
    pub(crate) fn point(inputs: &str) -> Self {
        let inputs = serde_json::from_str(inputs).expect("the text of a point is JSON");
        let mut key = Self { name: String::new(), inputs };
        key.name = format!("points/{:02x}/point", key.digest() >> 120);
        key
    }
}

/// Returns the digest of inputs given as compact JSON with sorted keys.
pub(crate) fn digest_of(inputs: &str) -> u128 {
    let mut text = String::with_capacity(TOOL.len() + 1 + inputs.len());
    text.push_str(TOOL);
    text.push('\n');
    text.push_str(inputs);
    digest(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_digest_does_not_depend_on_the_order_of_keys() {
        let key = |inputs| Key { name: "x".to_owned(), inputs };
        let text = r#"{"b":1,"a":{"d":2.5,"c":null}}"#;
        let (a, b) =
            (key(serde_json::from_str(text).unwrap()), key(json!({"a": {"c": null, "d": 2.5}, "b": 1})));
        assert_eq!(a.digest(), b.digest());
        assert_ne!(a.digest(), key(json!({"a": {"c": null, "d": 2.5}, "b": 2})).digest());
    }
}
