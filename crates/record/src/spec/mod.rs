//! GPU and link specifications (`specs/*.toml`), read and validated.
//!
//! The simulator, the planner and the training model share one [`Gpu`]. `docs/reference/specs.md`
//! lists every parameter with its value, source and effect. A file may extend a built-in one with
//! `base = "h200"` and state only the differences.

mod check;
mod files;
mod gpu;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

pub use self::gpu::{
    Arithmetic, Buddy, Core, Dram, Gpu, Interconnect, L1, L2, Link, Shared, Tensor, Tlb, Training, Um,
};

/// Link that provides the latency of a link given by bandwidth alone.
const PLAIN_LINK: &str = "150";

/// Errors of looking up or reading a spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Neither a built-in name nor the path of a file.
    #[error("unknown {what} '{name}'; use one of {known}, or the path of a .toml file")]
    Unknown {
        /// `GPU` or `link`.
        what: &'static str,
        /// The unknown name.
        name: String,
        /// Built-in names, comma-separated.
        known: String,
    },
    /// A file that is unreadable, not TOML, or has an unknown, missing or out-of-range field.
    #[error("{file}: {why}")]
    File {
        /// Path, or built-in name.
        file: String,
        /// The field and the defect.
        why: String,
    },
}

impl SpecError {
    fn file(file: &str, why: impl ToString) -> Self {
        let why = why.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
        Self::File { file: file.to_owned(), why }
    }
}

impl Gpu {
    /// Returns a GPU by built-in name or file path.
    ///
    /// # Errors
    /// [`SpecError`] for an unknown name or an invalid file.
    pub fn named(name: &str) -> Result<Self, SpecError> {
        Self::parse(name, &GPUS.text(name)?)
    }

    /// Parses and checks a GPU spec; `file` is its name in errors.
    ///
    /// # Errors
    /// [`SpecError::File`] that names the field.
    pub fn parse(file: &str, text: &str) -> Result<Self, SpecError> {
        let gpu: Self = GPUS.parse(file, text)?;
        gpu.check().map_err(|why| SpecError::file(file, why))?;
        Ok(gpu)
    }

    /// Returns a GPU by name or path with some fields changed, each by its dotted name
    /// (`l2.bytes`).
    ///
    /// # Errors
    /// [`SpecError`] for an unknown name or field, or an invalid value.
    pub fn changed<'a>(
        name: &str,
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, SpecError> {
        let mut table = GPUS.table(name, &GPUS.text(name)?)?;
        let mut said = name.to_owned();
        for (field, value) in fields {
            put(&mut table, field, scalar(value)).map_err(|why| SpecError::file(name, why))?;
            said.push_str(&format!(" with {field} = {value}"));
        }
        let gpu: Self = table.try_into().map_err(|error| SpecError::file(&said, error))?;
        gpu.check().map_err(|why| SpecError::file(&said, why))?;
        Ok(gpu)
    }

    /// Returns whether GPU specs have a field of this dotted name, such as `l2.bytes`.
    pub fn has_field(field: &str) -> bool {
        let table: Table = toml::from_str(files::GPUS[0].1).expect("built-in files are TOML");
        leaf(&table, field).is_some()
    }

    /// Returns the complete spec of a GPU as TOML, inherited fields included.
    ///
    /// # Errors
    /// [`SpecError`] for an unknown name or an invalid file.
    pub fn text(name: &str) -> Result<String, SpecError> {
        Self::named(name)?;
        Ok(GPUS.table(name, &GPUS.text(name)?)?.to_string())
    }

    /// Returns the names of the built-in GPUs.
    pub fn names() -> impl Iterator<Item = &'static str> {
        GPUS.names()
    }
}

impl Link {
    /// Returns a link by built-in name, file path, or bandwidth (`75`, `75GB/s`) with the latency
    /// of the paper's link.
    ///
    /// # Errors
    /// [`SpecError`] for an unknown name, an invalid file or a bandwidth out of range.
    pub fn named(name: &str) -> Result<Self, SpecError> {
        let known = Self::names().any(|known| known == name);
        match name.trim_end_matches("GB/s").trim_end().parse::<f64>() {
            Ok(gb_per_s) if !known => Self::plain(name, gb_per_s),
            _ => Self::parse(name, &LINKS.text(name)?),
        }
    }

    /// Returns a link of this bandwidth with the latency of the paper's link.
    ///
    /// # Errors
    /// [`SpecError::File`] for a bandwidth that is out of range.
    pub fn plain(name: &str, gb_per_s: f64) -> Result<Self, SpecError> {
        let link = Self { name: name.to_owned(), gb_per_s, ..Self::named(PLAIN_LINK)? };
        link.check().map_err(|why| SpecError::file(&format!("link {name}"), why))?;
        Ok(link)
    }

    /// Parses and checks a link spec; `file` is its name in errors.
    ///
    /// # Errors
    /// [`SpecError::File`] that names the field.
    pub fn parse(file: &str, text: &str) -> Result<Self, SpecError> {
        let link: Self = LINKS.parse(file, text)?;
        link.check().map_err(|why| SpecError::file(file, why))?;
        Ok(link)
    }

    /// Returns the complete spec of a link as TOML.
    ///
    /// # Errors
    /// [`SpecError`] for an unknown name or an invalid file.
    pub fn text(name: &str) -> Result<String, SpecError> {
        Self::named(name)?;
        Ok(LINKS.table(name, &LINKS.text(name)?)?.to_string())
    }

    /// Returns the names of the built-in links.
    pub fn names() -> impl Iterator<Item = &'static str> {
        LINKS.names()
    }
}

/// The built-in specs of one kind.
struct Files {
    what: &'static str,
    texts: &'static [(&'static str, &'static str)],
}

const GPUS: Files = Files { what: "GPU", texts: files::GPUS };
const LINKS: Files = Files { what: "link", texts: files::LINKS };

impl Files {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.texts.iter().map(|(name, _)| *name)
    }

    fn built_in(&self, name: &str) -> Option<&'static str> {
        self.texts.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    fn unknown(&self, name: &str) -> SpecError {
        let known = self.names().collect::<Vec<_>>().join(", ");
        SpecError::Unknown { what: self.what, name: name.to_owned(), known }
    }

    fn text(&self, name: &str) -> Result<String, SpecError> {
        match self.built_in(name) {
            Some(text) => Ok(text.to_owned()),
            None if Path::new(name).extension().is_some_and(|extension| extension == "toml") => {
                buddy_core::read_text(Path::new(name)).map_err(|error| SpecError::file(name, error))
            }
            None => Err(self.unknown(name)),
        }
    }

    fn parse<T: DeserializeOwned>(&self, file: &str, text: &str) -> Result<T, SpecError> {
        let table = self.table(file, text)?;
        table.try_into().map_err(|error| SpecError::file(file, format!("not a {} spec: {error}", self.what)))
    }

    /// Parses a spec and merges it into the built-in spec that it extends.
    fn table(&self, file: &str, text: &str) -> Result<Table, SpecError> {
        let mut own: Table = toml::from_str(text).map_err(|error| SpecError::file(file, error))?;
        let Some(base) = own.remove("base") else { return Ok(own) };
        let base =
            base.as_str().ok_or_else(|| SpecError::file(file, "base must be the name of a built-in file"))?;
        let text = self.built_in(base).ok_or_else(|| SpecError::file(file, self.unknown(base)))?;
        let mut table = self.table(base, text)?;
        // A derived spec must state its own name.
        table.remove("name");
        extend(&mut table, own);
        Ok(table)
    }
}

/// Merges `own` into `base`, recursively.
fn extend(base: &mut Table, own: Table) {
    for (key, value) in own {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(base)), Value::Table(own)) => extend(base, own),
            (_, value) => drop(base.insert(key, value)),
        }
    }
}

/// Returns the value of a dotted field name; `None` for tables.
fn leaf<'a>(table: &'a Table, field: &str) -> Option<&'a Value> {
    match field.split_once('.') {
        Some((head, rest)) => leaf(table.get(head)?.as_table()?, rest),
        None => table.get(field).filter(|value| !value.is_table()),
    }
}

/// Sets an existing field by its dotted name.
fn put(table: &mut Table, field: &str, value: Value) -> Result<(), String> {
    let missing = || format!("unknown field '{field}'");
    match field.split_once('.') {
        Some((head, rest)) => {
            let inner = table.get_mut(head).and_then(Value::as_table_mut).ok_or_else(missing)?;
            put(inner, rest, value).map_err(|_| missing())
        }
        None if table.get(field).is_some_and(|old| !old.is_table()) || field == "name" => {
            table.insert(field.to_owned(), value);
            Ok(())
        }
        None => Err(missing()),
    }
}

/// Parses a value as an integer or float; otherwise keeps it as a string.
fn scalar(text: &str) -> Value {
    let whole = text.parse::<i64>().map(Value::Integer);
    let number = || text.parse::<f64>().map(Value::Float);
    whole.or_else(|_| number()).unwrap_or_else(|_| Value::String(text.to_owned()))
}
