//! Records of training runs: built in, or files of a folder.

use std::{borrow::Cow, io, path::Path};

use buddy_core::read_text;
use buddy_dl::NetworkInfo;
use buddy_record::{Record, RecordKind, RunRecord};

use crate::Error;

/// Accuracy by batch size, the record in `data/recorded` that is not a network's.
const ACCURACY: &str = include_str!("../recorded/accuracy.json");

/// Reads the record of a network's training from a folder, or the built-in one; `None` if missing.
///
/// # Errors
/// A missing folder, an invalid record, or one that contradicts itself.
pub fn recorded_run(dir: Option<&Path>, name: &str) -> Result<Option<RunRecord>, Error> {
    let found: Option<RunRecord> = recorded(dir, name)?;
    if let Some(run) = &found {
        run.validate().map_err(|source| Error::Run { name: name.to_owned(), source })?;
    }
    Ok(found)
}

/// Reads the record of a network, or `accuracy`; `None` if missing.
///
/// # Errors
/// A missing folder or an invalid record.
pub fn recorded<T: RecordKind>(dir: Option<&Path>, name: &str) -> Result<Option<T>, Error> {
    read(name, recorded_text(dir, name)?)
}

/// Reads a record from a folder, or the given built-in text; `None` if the folder lacks it.
///
/// # Errors
/// A missing folder or an invalid record.
pub fn recorded_or<T: RecordKind>(
    dir: Option<&Path>,
    name: &str,
    built_in: &'static str,
) -> Result<Option<T>, Error> {
    read(name, dir.map_or(Ok(Some(Cow::Borrowed(built_in))), |dir| file(dir, name))?)
}

fn read<T: RecordKind>(name: &str, text: Option<Cow<'static, str>>) -> Result<Option<T>, Error> {
    let wrong = |source| Error::Recorded { name: name.to_owned(), source };
    text.map(|text| Ok(Record::from_json(&text).map_err(wrong)?.data)).transpose()
}

/// Returns the text of a record, from a folder or built in.
pub(crate) fn recorded_text(dir: Option<&Path>, name: &str) -> Result<Option<Cow<'static, str>>, Error> {
    let Some(dir) = dir else {
        let accuracy = (name == "accuracy").then_some(ACCURACY);
        return Ok(accuracy.or_else(|| Some(NetworkInfo::named(name)?.record)).map(Cow::Borrowed));
    };
    file(dir, name)
}

/// Reads the text of a file of a folder; `None` if missing.
fn file(dir: &Path, name: &str) -> Result<Option<Cow<'static, str>>, Error> {
    let path = dir.join(format!("{name}.json"));
    match read_text(&path) {
        Ok(text) => Ok(Some(Cow::Owned(text))),
        // A folder need not have every record.
        Err(source) if source.kind() == io::ErrorKind::NotFound && dir.is_dir() => Ok(None),
        Err(source) => Err(Error::Read { path, source }),
    }
}
