//! The ten HPC programs: run once, looked at ten times, and profiled.

use buddy_codec::CodecKind;
use buddy_core::{AllocationInfo, PageMap, Profile, RecordKind};
use buddy_profile::{DEFAULT_THRESHOLD, Tried};
use buddy_scenario::{Ask, typical};
use buddy_workloads::{Check, Info};
use serde::{Deserialize, Serialize};

use crate::{Error, Settings, Watch};

/// What is known of a program after its run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its memory over time, and what targets make of it, with every codec.
    pub profile: Profile,
    /// What it compared of its answer, and whether that is right.
    pub checks: Vec<(String, bool)>,
    /// The snapshot whose ratio is nearest to that of the whole run.
    pub typical: usize,
    /// The class of every entry in that snapshot, for each allocation, with the paper's codec.
    pub classes: Vec<PageMap>,
}

impl RecordKind for Program {
    const KIND: &'static str = "program";
    const VERSION: u32 = 1;

    fn check(&self) -> Result<(), String> {
        self.profile.check()?;
        let run = &self.profile.run;
        if self.typical >= run.snapshots.len() || self.classes.len() != run.allocations.len() {
            return Err("its typical snapshot is none of the run's".to_owned());
        }
        let fits = |(map, info): (&PageMap, &AllocationInfo)| map.is_whole() && map.fits(info.entries());
        match self.classes.iter().zip(&run.allocations).all(fits) {
            true => Ok(()),
            false => Err("its classes are not those of its allocations' entries".to_owned()),
        }
    }
}

/// Runs a program and measures its memory after every tenth.
pub(crate) fn observe(settings: &Settings, info: &Info, watch: &dyn Watch) -> Result<Program, Error> {
    let tried = Tried { kinds: CodecKind::ALL.to_vec(), auto: true, threshold: DEFAULT_THRESHOLD };
    let (bytes, seed) = (settings.bytes_of(info), settings.seed);
    let ask = Ask { info, bytes, seed, tried, tables: &[], snapshot: None };
    let observed = buddy_scenario::observe(&ask, |_| watch.goes_on())?;
    let typical = typical(&observed.profile);
    let checks =
        observed.checks.iter().map(|check: &Check| (check.what.to_owned(), check.passed())).collect();
    Ok(Program { typical, classes: observed.classes(typical), profile: observed.profile, checks })
}
