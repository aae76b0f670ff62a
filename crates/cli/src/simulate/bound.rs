//! A workload with its targets, as the options ask for them.

use anyhow::{Context, Result};
use buddy_codec::CodecKind;
use buddy_core::{Profile, Target, TargetTable};
use buddy_profile::read_targets;
use buddy_sim::{ClassMap, Mode};
use buddy_study::typical;
use buddy_workloads::Info;

use super::{
    grid::Point,
    read,
    workload::{Observed, check_program},
};
use crate::{progress::Bar, say};

/// A workload that was run as far as the points of a grid need it.
pub(crate) struct Bound {
    pub(crate) observed: Observed,
    /// What is simulated of its run.
    snapshot: usize,
    kind: CodecKind,
    /// Targets by the paper's policy, where the workload was run.
    policy: Option<TargetTable>,
    /// Those of files, by their paths.
    files: Vec<(String, TargetTable)>,
}

impl Bound {
    /// Runs the workload and chooses a snapshot, unless nothing that is asked for depends on its data.
    pub(crate) fn new(
        info: &Info,
        bytes: u64,
        kind: CodecKind,
        snapshot: Option<usize>,
        points: &[Point],
    ) -> Result<Self> {
        let files = files(info, points)?;
        if !points.iter().any(|point| matches!(point.mode, Mode::Bandwidth | Mode::Buddy)) {
            let observed = Observed::unseen(info, bytes);
            return Ok(Self { observed, snapshot: 0, kind, policy: None, files });
        }
        let tables: Vec<&TargetTable> = files.iter().map(|(_, table)| table).collect();
        let mut bar = None;
        let (observed, profile) = Observed::run(info, bytes, kind, &tables, |_, of| {
            bar.get_or_insert_with(|| Bar::steps(of)).add(1);
        })?;
        bar.iter().for_each(Bar::finish);
        let snapshot = snapshot.unwrap_or_else(|| typical(&profile));
        let policy = Some(profile.targets.clone());
        let bound = Self { observed, snapshot, kind, policy, files };
        bound.describe(&profile)?;
        Ok(bound)
    }

    /// Says what is simulated, and what the targets make of it.
    fn describe(&self, profile: &Profile) -> Result<()> {
        let overflow = self.map(None)?.overflow_share();
        say(format_args!(
            "{}: snapshot {} of {}, optimistic ratio {}; with the policy's targets {:.2}% of its entries overflow",
            profile.run.program,
            self.snapshot,
            profile.run.snapshots.len(),
            profile.optimistic[self.snapshot].map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            100.0 * overflow,
        ));
        Ok(())
    }

    /// The map with these targets: a ratio, a file, or the policy's.
    pub(crate) fn map(&self, targets: Option<&str>) -> Result<ClassMap> {
        let Some(name) = targets else { return self.observed.map(self.policy.as_ref(), self.snapshot) };
        if let Ok(target) = name.parse::<Target>() {
            return self.observed.map(Some(&self.observed.all(target, self.kind)), self.snapshot);
        }
        let table = self.files.iter().find(|(path, _)| path == name).map(|(_, table)| table);
        self.observed.map(table, self.snapshot).with_context(|| name.to_owned())
    }
}

/// The files of targets that the points name.
fn files(info: &Info, points: &[Point]) -> Result<Vec<(String, TargetTable)>> {
    let mut files: Vec<(String, TargetTable)> = Vec::new();
    for path in points.iter().filter_map(|point| point.targets.as_ref()) {
        if path.parse::<Target>().is_err() && !files.iter().any(|(known, _)| known == path) {
            let text = read(path).context("--targets is no ratio and no file")?;
            let table = read_targets(&text).with_context(|| path.clone())?;
            check_program(&table, info).with_context(|| path.clone())?;
            files.push((path.clone(), table));
        }
    }
    Ok(files)
}
