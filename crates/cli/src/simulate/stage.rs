//! Prepares the program to simulate: runs and observes a workload, reads everything else.

use anyhow::Result;
use buddy_profile::{DEFAULT_THRESHOLD, Tried};
use buddy_record::TargetTable;
use buddy_scenario::{Ask, Input, Observed, Point, Source, Stage, TargetChoice, decimal, observe, typical};
use buddy_sim::Mode;
use buddy_workloads::Info;

use crate::{progress::Bar, say};

/// Returns the description of the program and its stage for these points.
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

/// Runs and observes a workload, unless no mode depends on its data.
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

/// Returns whether any mode depends on the data.
fn is_compressed(points: &[Point]) -> bool {
    points.iter().any(|point| point.mode.compresses())
}

/// Prints the simulated snapshot of a workload and its overflow with the policy's targets.
fn describe(stage: &Stage, observed: &Observed, snapshot: usize) -> Result<()> {
    let profile = &observed.profile;
    say(format_args!(
        "{}: snapshot {snapshot} of {}, optimistic ratio {}; {:.2}% of its entries overflow with the policy's targets",
        profile.run.program,
        profile.run.snapshots.len(),
        profile.optimistic[snapshot].map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
        100.0 * stage.map(&TargetChoice::Policy, Mode::Buddy)?.overflow_share(),
    ));
    Ok(())
}
