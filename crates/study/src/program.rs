//! The ten HPC programs: run once, looked at ten times, and profiled.

use buddy_codec::CodecKind;
use buddy_core::{PageMap, Profile, RecordKind, SnapshotInfo};
use buddy_profile::{DEFAULT_THRESHOLD, Settings as Ask, Tried, Watcher, page_map, profile};
use buddy_workloads::{Check, Info, describe, run};
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
}

/// Runs a program and measures its memory after every tenth.
pub(crate) fn observe(settings: &Settings, info: &Info, watch: &dyn Watch) -> Result<Program, Error> {
    let mut workload = (info.build)(settings.bytes_of(info), settings.seed);
    let tried = Tried { kinds: CodecKind::ALL.to_vec(), auto: true, threshold: DEFAULT_THRESHOLD };
    let mut watcher = Watcher::new(describe(info, workload.as_ref(), settings.seed), tried);
    let paper = CodecKind::Bpc.train(&[]);
    let mut seen: Vec<Vec<PageMap>> = Vec::new();
    let checks = run(workload.as_mut(), |step, workload| {
        if step.look {
            let arrays: Vec<&[u8]> = workload.allocations().iter().map(|array| array.bytes).collect();
            let label = String::new();
            watcher.add(SnapshotInfo { step: step.done, label, file: None }, &arrays, &|_| ());
            seen.push(arrays.iter().map(|array| page_map(array, &paper, usize::MAX)).collect());
        }
        if watch.goes_on() { Ok(()) } else { Err(Error::Interrupted) }
    })?;
    let (profile, _) = profile(&watcher.finish(), &Ask::final_design(CodecKind::Bpc))
        .map_err(|source| Error::Profile { program: info.name.to_owned(), source })?;
    let typical = typical(&profile);
    let checks = checks.iter().map(|check: &Check| (check.what.to_owned(), check.passed())).collect();
    Ok(Program { typical, classes: seen.swap_remove(typical), profile, checks })
}

/// The paper takes its traces where the ratio is the average of the run.
pub fn typical(profile: &Profile) -> usize {
    let all = profile.optimistic_ratio.unwrap_or(f64::INFINITY).ln();
    let distance = |ratio: &Option<f64>| (ratio.unwrap_or(f64::INFINITY).ln() - all).abs();
    let nearest = (0..profile.optimistic.len())
        .min_by(|&a, &b| distance(&profile.optimistic[a]).total_cmp(&distance(&profile.optimistic[b])));
    nearest.unwrap_or(0)
}
