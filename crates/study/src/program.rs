//! The ten HPC programs: run once, measured ten times, and profiled.

use buddy_codec::CodecKind;
use buddy_core::PageMap;
use buddy_profile::{DEFAULT_THRESHOLD, Tried};
use buddy_record::{AllocationInfo, Profile, RecordKind};
use buddy_scenario::{Ask, typical};
use buddy_workloads::{Check, Info};
use serde::{Deserialize, Serialize};

use crate::{Error, Settings, Watch};

/// Results of a program's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Profile of its memory over time, with every codec.
    pub profile: Profile,
    /// Checks of its answer, and whether they passed.
    pub checks: Vec<(String, bool)>,
    /// The snapshot whose ratio is nearest to the whole run's.
    pub typical: usize,
    /// Class of every entry of each allocation in that snapshot, with the paper's codec.
    pub classes: Vec<PageMap>,
}

impl RecordKind for Program {
    const KIND: &'static str = "program";
    const VERSION: u32 = 1;

    fn check(&self) -> Result<(), String> {
        self.profile.check()?;
        let run = &self.profile.run;
        if self.typical >= run.snapshots.len() || self.classes.len() != run.allocations.len() {
            return Err("the typical snapshot is not one of the run's".to_owned());
        }
        let fits = |(map, info): (&PageMap, &AllocationInfo)| map.is_whole() && map.fits(info.entries());
        match self.classes.iter().zip(&run.allocations).all(fits) {
            true => Ok(()),
            false => Err("the classes do not match the entries of the allocations".to_owned()),
        }
    }
}

/// Runs a program and measures its memory ten times.
pub(crate) fn observe(settings: &Settings, info: &Info, watch: &dyn Watch) -> Result<Program, Error> {
    let tried = Tried { kinds: CodecKind::ALL.to_vec(), auto: true, threshold: DEFAULT_THRESHOLD };
    observe_with(info, (settings.bytes_of(info), settings.seed), tried, watch)
}

/// Runs a program with less memory and measures it with the paper's codec.
pub(crate) fn observe_smaller(settings: &Settings, info: &Info, watch: &dyn Watch) -> Result<Program, Error> {
    let tried = Tried { kinds: vec![CodecKind::Bpc], auto: false, threshold: DEFAULT_THRESHOLD };
    observe_with(info, (settings.smaller_bytes_of(info), settings.seed), tried, watch)
}

fn observe_with(
    info: &Info,
    (bytes, seed): (u64, u64),
    tried: Tried,
    watch: &dyn Watch,
) -> Result<Program, Error> {
    let ask = Ask { info, bytes, seed, tried, tables: &[], snapshot: None };
    let observed = buddy_scenario::observe(&ask, |_| watch.goes_on())?;
    let typical = typical(&observed.profile);
    let checks =
        observed.checks.iter().map(|check: &Check| (check.what.to_owned(), check.passed())).collect();
    Ok(Program { typical, classes: observed.classes(typical), profile: observed.profile, checks })
}
