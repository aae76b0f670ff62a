//! The deep-learning runs, recorded on a GPU during real training and profiled here.

use std::path::Path;

use buddy_codec::CodecKind;
use buddy_dl::{Accuracy, NetworkInfo};
use buddy_profile::{DEFAULT_THRESHOLD, Measured, Settings as Ask, Tried, profile};
use buddy_record::{Profile, RunRecord};
use buddy_scenario::{recorded, recorded_or, recorded_run};

use crate::Error;

/// A recorded run and its profile.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Recorded sizes and pages of its tensors.
    pub record: RunRecord,
    /// Its measurements.
    pub measured: Measured,
    /// Profile with the paper's codec and policy.
    pub profile: Profile,
}

impl Recorded {
    /// Reads the record of a network from a folder, or the built-in one; `None` if missing.
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

/// Reads the record of accuracy by batch size; `None` if missing.
///
/// # Errors
/// A missing folder or an invalid record.
pub(crate) fn accuracy(dir: Option<&Path>) -> Result<Option<Accuracy>, Error> {
    Ok(recorded(dir, "accuracy")?)
}

/// Reads the record of a run from a folder, or the built-in one.
pub(crate) fn built_in_run(
    dir: Option<&Path>,
    name: &str,
    built_in: &'static str,
) -> Result<Option<RunRecord>, Error> {
    Ok(recorded_or(dir, name, built_in)?)
}
