//! Records of networks in training: those that are built in, or the files of a directory.

use std::{borrow::Cow, io, path::Path};

use buddy_core::{Record, RecordKind, RunRecord, read_text};
use buddy_dl::NetworkInfo;

use crate::Error;

/// The record of `data/recorded` that is not a network's: accuracy by batch size.
const ACCURACY: &str = include_str!("../../../data/recorded/accuracy.json");

/// The record of a network's training by its name, from a directory or from what is built in; none if there is none.
///
/// # Errors
/// If there is no such directory, or its file is not the record of a run, or contradicts itself.
pub fn recorded_run(dir: Option<&Path>, name: &str) -> Result<Option<RunRecord>, Error> {
    let found: Option<RunRecord> = recorded(dir, name)?;
    if let Some(run) = &found {
        run.validate().map_err(|source| Error::Run { name: name.to_owned(), source })?;
    }
    Ok(found)
}

/// A record by its name: a network's, or `accuracy`; none if there is none.
///
/// # Errors
/// If there is no such directory, or its file is not such a record.
pub fn recorded<T: RecordKind>(dir: Option<&Path>, name: &str) -> Result<Option<T>, Error> {
    read(name, recorded_text(dir, name)?)
}

/// A record by its name from a directory, or the one whose text is built in; none if the directory does not have it.
///
/// # Errors
/// If there is no such directory, or its file is not such a record.
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

/// The text of a record: a file of a directory, or what is built in.
pub(crate) fn recorded_text(dir: Option<&Path>, name: &str) -> Result<Option<Cow<'static, str>>, Error> {
    let Some(dir) = dir else {
        let accuracy = (name == "accuracy").then_some(ACCURACY);
        return Ok(accuracy.or_else(|| Some(NetworkInfo::named(name)?.record)).map(Cow::Borrowed));
    };
    file(dir, name)
}

/// The text of a directory's file; none if it is not there.
fn file(dir: &Path, name: &str) -> Result<Option<Cow<'static, str>>, Error> {
    let path = dir.join(format!("{name}.json"));
    match read_text(&path) {
        Ok(text) => Ok(Some(Cow::Owned(text))),
        // A directory need not have every record.
        Err(source) if source.kind() == io::ErrorKind::NotFound && dir.is_dir() => Ok(None),
        Err(source) => Err(Error::Read { path, source }),
    }
}
