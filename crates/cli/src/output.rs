//! Files that a verb writes: looked at before the work, written after it.

use std::{
    collections::HashSet,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use buddy_snapshot::write_atomic;

/// Looks for what cannot be written before hours of reading, not after. The outputs come with the names of their
/// options; the inputs are never overwritten.
pub(crate) fn check(outputs: &[(&str, Option<&PathBuf>)], inputs: &[PathBuf]) -> Result<()> {
    let inputs: HashSet<PathBuf> = inputs.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let given: Vec<(&str, &PathBuf)> =
        outputs.iter().filter_map(|(option, path)| Some((*option, (*path)?))).collect();
    for (index, (option, path)) in given.iter().enumerate() {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !dir.is_dir() {
            bail!("{}: there is no directory {}", path.display(), dir.display());
        }
        if path.is_dir() {
            bail!("{}: this is a directory; give the name of a file", path.display());
        }
        if path.canonicalize().is_ok_and(|path| inputs.contains(&path)) {
            bail!("{}: this file is read; give another name to write to", path.display());
        }
        if let Some((other, _)) = given[..index].iter().find(|(_, other)| other == path) {
            bail!("{other} and {option} name the same file");
        }
    }
    Ok(())
}

/// Writes a text, whole or not at all.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    Ok(write_atomic(path, |out| out.write_all(text.as_bytes()))?)
}
