//! `measured.json`: measured times of the traces in its folder.

use std::path::Path;

use serde::Deserialize;

/// One measurement. Other fields are ignored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Measured {
    /// File name of the trace in the same folder.
    pub trace: String,
    /// Name of the program.
    #[serde(default)]
    pub program: Option<String>,
    /// Group; `programs` by default.
    #[serde(default)]
    pub group: Option<String>,
    /// SM cycles from a cold start; compared instead of `ns` if given.
    #[serde(default)]
    pub cycles: Option<f64>,
    /// Time in nanoseconds.
    pub ns: f64,
    /// True if the kernel also ran directly before, so that caches were warm.
    #[serde(default)]
    pub warm: bool,
    /// Bytes read from device memory.
    #[serde(default)]
    pub dram_read_bytes: Option<u64>,
}

impl Measured {
    /// Returns the kernel's name: the file name without its extensions.
    pub(super) fn name(&self) -> String {
        self.trace.split('.').next().unwrap_or_default().to_owned()
    }

    pub(super) fn group(&self) -> String {
        self.group.clone().unwrap_or_else(|| "programs".to_owned())
    }
}

/// Reads a folder's `measured.json`.
///
/// # Errors
/// A message that names the file and the reason.
pub fn read_measured(folder: &Path) -> Result<Vec<Measured>, String> {
    let path = folder.join("measured.json");
    let wrong = |why: String| format!("{}: {why}", path.display());
    let text = buddy_core::read_text(&path).map_err(|error| wrong(error.to_string()))?;
    let measured: Vec<Measured> = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if measured.is_empty() {
        return Err(wrong("no trace is listed".to_owned()));
    }
    let is_time = |time: f64| time > 0.0 && time.is_finite();
    match measured.iter().find(|one| !is_time(one.ns) || !one.cycles.is_none_or(is_time)) {
        Some(one) => Err(wrong(format!("{}: {} ns; a time must be above 0", one.trace, one.ns))),
        None => Ok(measured),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            std::fs::write(folder.path().join("measured.json"), text).unwrap();
            read_measured(folder.path())
        };
        let one =
            r#"[{"trace": "k-1.traceg.xz", "program": "k", "cycles": 10.0, "ns": 5.0, "registers": 3}]"#;
        let measured = read(one).unwrap();
        assert_eq!((measured[0].name().as_str(), measured[0].group().as_str()), ("k-1", "programs"));
        assert!(read("[]").unwrap_err().contains("no trace is listed"));
        assert!(read(&one.replace("5.0", "0")).unwrap_err().contains("a time must be above 0"));
        assert!(read(&one.replace("\"trace\"", "\"file\"")).unwrap_err().contains("missing field `trace`"));
    }
}
