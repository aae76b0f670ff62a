//! The deep-learning runs: recorded once on a GPU during real training, and profiled here from their records.

use std::path::Path;

use buddy_codec::CodecKind;
use buddy_core::{Profile, RunRecord};
use buddy_dl::{Accuracy, NetworkInfo};
use buddy_profile::{DEFAULT_THRESHOLD, Measured, Settings as Ask, Tried, profile};
use buddy_scenario::{recorded, recorded_or, recorded_run};

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

/// The record of accuracy by batch size; none if there is none.
///
/// # Errors
/// If there is no such directory, or its file is not such a record.
pub(crate) fn accuracy(dir: Option<&Path>) -> Result<Option<Accuracy>, Error> {
    Ok(recorded(dir, "accuracy")?)
}

/// The record of a run by its name, from a directory or the one that is built in.
pub(crate) fn built_in_run(
    dir: Option<&Path>,
    name: &str,
    built_in: &'static str,
) -> Result<Option<RunRecord>, Error> {
    Ok(recorded_or(dir, name, built_in)?)
}
