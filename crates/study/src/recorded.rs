//! The deep-learning runs: recorded once on a GPU during real training, and profiled here from their records.

use std::{borrow::Cow, io, path::Path};

use buddy_codec::CodecKind;
use buddy_core::{Profile, Record, RecordKind, RunRecord, read_text};
use buddy_dl::{Accuracy, NetworkInfo};
use buddy_profile::{DEFAULT_THRESHOLD, Measured, Settings as Ask, Tried, profile};

use crate::Error;

/// A recorded run and what targets make of it.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Sizes and pages of its tensors, as they were recorded.
    pub record: RunRecord,
    /// What it was measured as.
    pub measured: Measured,
    /// Its profile, with the paper's codec and policy.
    pub profile: Profile,
}

impl Recorded {
    /// Reads the record of a network from a directory, or the one that is built in; none if there is none.
    ///
    /// # Errors
    /// If the file is not the record of a run.
    pub fn read(dir: Option<&Path>, network: &NetworkInfo) -> Result<Option<Self>, Error> {
        recorded_run(dir, network.name)?.map(Self::new).transpose()
    }

    /// Profiles a record with the paper's codec and policy.
    ///
    /// # Errors
    /// If the record contradicts itself.
    pub fn new(record: RunRecord) -> Result<Self, Error> {
        let wrong = |source| Error::Profile { program: record.run.program.clone(), source };
        let tried = Tried { kinds: vec![CodecKind::Bpc], auto: true, threshold: DEFAULT_THRESHOLD };
        let measured = Measured::from_record(&record, &tried).map_err(wrong)?;
        let (profile, _) = profile(&measured, &Ask::final_design(CodecKind::Bpc)).map_err(wrong)?;
        Ok(Self { record, measured, profile })
    }
}

/// The record of a network's training by its name, from a directory or from what is built in; none if there is none.
///
/// # Errors
/// If there is no such directory, or its file is not the record of a run, or contradicts itself.
pub fn recorded_run(dir: Option<&Path>, name: &str) -> Result<Option<RunRecord>, Error> {
    let found: Option<RunRecord> = record(dir, name)?;
    if let Some(run) = &found {
        run.validate().map_err(|source| Error::Run { name: name.to_owned(), source })?;
    }
    Ok(found)
}

/// The record of accuracy by batch size; none if there is none.
///
/// # Errors
/// If there is no such directory, or its file is not such a record.
pub(crate) fn accuracy(dir: Option<&Path>) -> Result<Option<Accuracy>, Error> {
    record(dir, "accuracy")
}

/// The record of a public program by its name, from a directory or the one that is built in.
pub(crate) fn public_run(
    dir: Option<&Path>,
    name: &str,
    built_in: &'static str,
) -> Result<Option<RunRecord>, Error> {
    let text = match dir {
        Some(dir) => file(dir, name)?,
        None => Some(Cow::Borrowed(built_in)),
    };
    let wrong = |source| Error::Recorded { name: name.to_owned(), source };
    text.map(|text| Ok(Record::from_json(&text).map_err(wrong)?.data)).transpose()
}

fn record<T: RecordKind>(dir: Option<&Path>, name: &str) -> Result<Option<T>, Error> {
    let Some(text) = text(dir, name)? else { return Ok(None) };
    let wrong = |source| Error::Recorded { name: name.to_owned(), source };
    Ok(Some(Record::from_json(&text).map_err(wrong)?.data))
}

/// The text of a record: a file of a directory, or what is built in.
fn text(dir: Option<&Path>, name: &str) -> Result<Option<Cow<'static, str>>, Error> {
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

/// The record of `data/recorded` that is not a network's.
const ACCURACY: &str = include_str!("../../../data/recorded/accuracy.json");
