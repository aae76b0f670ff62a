//! What is simulated, made ready: a workload is run and looked at first, whatever else is read.

use anyhow::Result;
use buddy_core::TargetTable;
use buddy_profile::{DEFAULT_THRESHOLD, Tried};
use buddy_scenario::{Ask, Input, Observed, Point, Source, Stage, TargetChoice, decimal, observe, typical};
use buddy_sim::Mode;
use buddy_workloads::Info;

use crate::{progress::Bar, say};

/// What is simulated, in words and ready to run on these machines.
pub(super) fn open(input: &Input, points: &[Point]) -> Result<(String, Stage)> {
    let stage = match input.workload()? {
        Some((info, bytes)) => workload(input, info, bytes, points)?,
        None => input.stage(is_compressed(points), None)?,
    };
    let what = match (Source::find(&input.program)?, stage.about()) {
        (Source::Generated(name), _) => format!("{name} ({} MiB)", input.size),
        (_, (name, Some(bytes))) => format!("{name} ({})", decimal(bytes)),
        (_, (name, None)) => name.to_owned(),
    };
    Ok((what, stage))
}

/// A workload, run and looked at unless nothing that is asked for depends on its data.
fn workload(input: &Input, info: &Info, bytes: u64, points: &[Point]) -> Result<Stage> {
    let mut tables: Vec<TargetTable> = Vec::new();
    for point in points {
        tables.extend(TargetChoice::named(point.targets.as_deref()).table(info.name)?);
    }
    let application = (info.build)(bytes, input.seed).application();
    if !is_compressed(points) {
        return Ok(Stage::unseen(application));
    }
    let tried = Tried { kinds: vec![input.codec], auto: false, threshold: DEFAULT_THRESHOLD };
    let ask = Ask { info, bytes, seed: input.seed, tried, tables: &tables, snapshot: input.snapshot };
    let mut bar = None;
    let observed = observe(&ask, |step| {
        bar.get_or_insert_with(|| Bar::steps(step.of)).add(1);
        true
    })?;
    bar.iter().for_each(Bar::finish);
    let snapshot = input.snapshot.unwrap_or_else(|| typical(&observed.profile));
    let stage = Stage::observed(application, &observed, snapshot);
    describe(&stage, &observed, snapshot)?;
    Ok(stage)
}

/// Whether a mode is asked for in which the data matters.
fn is_compressed(points: &[Point]) -> bool {
    points.iter().any(|point| matches!(point.mode, Mode::Bandwidth | Mode::Buddy))
}

/// Says which snapshot of a workload is simulated, and what the policy's targets make of it.
fn describe(stage: &Stage, observed: &Observed, snapshot: usize) -> Result<()> {
    let profile = &observed.profile;
    say(format_args!(
        "{}: snapshot {snapshot} of {}, optimistic ratio {}; with the policy's targets {:.2}% of its entries overflow",
        profile.run.program,
        profile.run.snapshots.len(),
        profile.optimistic[snapshot].map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
        100.0 * stage.map(&TargetChoice::Policy, Mode::Buddy)?.overflow_share(),
    ));
    Ok(())
}
