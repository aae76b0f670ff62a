//! Datasets, fields and files that a reader skipped.

use serde::{Deserialize, Serialize};

/// Something that was not read: a dataset, a field, a file, or a step of a series.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// File that holds it; empty if it is a file itself, or if the file is the only one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Its name in the file, or its path.
    pub name: String,
    /// Why it was not read, as a clause such as `it is text`.
    pub why: String,
}

impl Skipped {
    /// Creates one of a file that is not named yet.
    pub fn new(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { file: String::new(), name: name.into(), why: why.into() }
    }

    /// Names the file that holds it.
    #[must_use]
    pub fn of(self, file: impl Into<String>) -> Self {
        Self { file: file.into(), ..self }
    }
}
