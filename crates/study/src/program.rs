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

#[cfg(test)]
mod tests {
    use buddy_profile::{CodecChoice, LinkLimit, Observer, Rows, profile, train};
    use buddy_record::{
        Policy, SnapshotInfo,
        spec::{Gpu, Link},
    };
    use buddy_workloads::{ALL, describe, run};

    use super::*;
    use crate::NoWatch;

    /// Profiles a workload as `buddy profile NAME --scale 1MB` does; with `few`, without the blocks of
    /// most codecs.
    fn profiled(info: &Info, settings: &Settings, few: bool) -> Profile {
        let tried = Tried { kinds: CodecKind::ALL.to_vec(), auto: true, threshold: DEFAULT_THRESHOLD };
        let mut workload = (info.build)(settings.bytes_of(info), settings.seed);
        let described = describe(info, workload.as_ref(), settings.seed);
        let mut observer: Option<Observer> = None;
        let watched: Result<_, std::convert::Infallible> = run(workload.as_mut(), |step, workload| {
            if step.look {
                let arrays: Vec<&[u8]> = workload.allocations().iter().map(|array| array.bytes).collect();
                let begin = || Observer::new(described.clone(), train(&arrays, &tried.all_kinds()));
                let snapshot = SnapshotInfo { step: step.done, label: String::new(), file: None };
                observer.get_or_insert_with(begin).add(snapshot, &arrays, Rows::NONE, &|_| ());
            }
            Ok(())
        });
        watched.unwrap();
        let mut measured = observer.unwrap().finish(tried.threshold, tried.auto);
        if few {
            measured.drop_blocks();
        }
        let link = LinkLimit {
            gpu: Gpu::named("h200").unwrap(),
            link: Link::named("nvlink2").unwrap(),
            max_slowdown: 0.05,
            accesses: None,
        };
        let codec = CodecChoice::Auto;
        let settings = buddy_profile::Settings {
            threshold: DEFAULT_THRESHOLD,
            policy: Policy::Page,
            codec,
            plan: None,
            link: Some(link),
        };
        profile(&measured, &settings).unwrap().0
    }

    /// `results` has no other targets than the command: every codec may be the best by page.
    #[test]
    fn targets_by_page_are_those_of_the_command() {
        let settings = Settings { bytes: Some(1_000_000), ..Settings::QUICK };
        for name in ["lulesh", "palm"] {
            let info = ALL.iter().find(|info| info.name == name).unwrap();
            let study = observe(&settings, info, &NoWatch).unwrap().profile;
            let [command, few] = [false, true].map(|few| profiled(info, &settings, few));
            for codec in ["auto", "bpc"] {
                let of = |profile: &Profile| profile.outcome(Policy::Page, codec).unwrap().clone();
                assert_eq!(of(&study).ratio, of(&command).ratio, "{name}, {codec}");
                assert_eq!(of(&study).overflow, of(&command).overflow, "{name}, {codec}");
                assert_eq!(of(&few).ratio < of(&command).ratio, codec == "auto", "{name}, {codec}");
            }
        }
    }
}
