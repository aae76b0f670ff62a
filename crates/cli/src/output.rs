//! Output files: checked before the work, written after it; `-` is stdout.

use std::{
    collections::HashSet,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use buddy_snapshot::write_atomic;

/// Checks that all outputs can be written, before long work starts. Outputs come with the names of
/// their options; an input is never overwritten.
pub(crate) fn check(outputs: &[(&str, Option<&PathBuf>)], inputs: &[PathBuf]) -> Result<()> {
    let inputs: HashSet<PathBuf> = inputs.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let given: Vec<(&str, &PathBuf)> =
        outputs.iter().filter_map(|(option, path)| Some((*option, (*path)?))).collect();
    for (index, (option, path)) in given.iter().enumerate() {
        if let Some((other, _)) = given[..index].iter().find(|(_, other)| other == path) {
            let what = if is_stdout(path) { "both write to stdout" } else { "name the same file" };
            bail!("{other} and {option} {what}");
        }
        if !is_stdout(path) {
            check_file(path, &inputs)?;
        }
    }
    Ok(())
}

fn check_file(path: &Path, inputs: &HashSet<PathBuf>) -> Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !dir.is_dir() {
        bail!("{}: no such directory: {}", path.display(), dir.display());
    }
    if path.is_dir() {
        bail!("{}: is a directory; give a file name", path.display());
    }
    if path.canonicalize().is_ok_and(|path| inputs.contains(&path)) {
        bail!("{}: is an input; write to another file", path.display());
    }
    Ok(())
}

/// Creates a folder if it does not exist.
pub(crate) fn make_folder(path: &Path) -> Result<()> {
    if path.is_file() {
        bail!("{}: is a file; give a folder name", path.display());
    }
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
}

/// Returns whether the path is `-`, which stands for stdout. The table for readers is then omitted.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Writes a text atomically; to stdout for `-`.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    match is_stdout(path) {
        true => print(text),
        false => Ok(write_atomic(path, |out| out.write_all(text.as_bytes()))?),
    }
}

/// Writes a text to stdout.
pub(crate) fn print(text: &str) -> Result<()> {
    io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")
}
