//! Refuses options that no run of a simulation uses.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use buddy_scenario::{Case, Source};
use buddy_sim::Mode;

use super::Simulate;

/// Refuses an option that the mode of every case ignores, or its program.
pub(super) fn ignored(asked: &Simulate, cases: &[Case]) -> Result<()> {
    by_source(asked, cases)?;
    let given = [
        ("--targets", asked.targets.is_some(), "bandwidth or buddy"),
        ("--oversubscription", asked.oversubscription.get() > 0.0, "um"),
        ("--snapshot", asked.snapshot.is_some(), "bandwidth or buddy"),
        ("--codec", asked.codec.is_some(), "bandwidth or buddy"),
        ("--shares", asked.shares.is_some(), "bandwidth or buddy"),
        ("--link", asked.link.is_some(), "buddy, pinned or um"),
    ];
    for (option, _, modes) in given.iter().filter(|(_, given, _)| *given) {
        if !cases.iter().any(|case| uses(asked, case, option)) {
            bail!("{option} has no effect in mode {}; it needs --mode {modes}", names(cases));
        }
    }
    for case in cases {
        let source = Source::find(&case.input.program)?;
        if asked.snapshot.is_some() && !matches!(source, Source::Workload(_)) {
            bail!("--snapshot is for workloads; {} has no snapshots", case.input.program);
        }
        if asked.recorded.is_some() && !matches!(source, Source::Network(_)) {
            bail!("--recorded is for networks; {} is none", case.input.program);
        }
        if asked.shares.is_some() && matches!(source, Source::Workload(_) | Source::Network(_)) {
            bail!("--shares is for programs without data; {} has its own", case.input.program);
        }
    }
    Ok(())
}

/// Returns whether a case uses an option.
fn uses(asked: &Simulate, case: &Case, option: &str) -> bool {
    match option {
        "--targets" => !case.point.ignores("targets"),
        "--oversubscription" => !case.point.ignores("oversubscription"),
        "--link" => asked.timed_copies || !case.point.ignores("link"),
        _ => case.is_compressed(),
    }
}

/// Refuses sizes of another kind of program than every case's.
pub(super) fn by_source(asked: &Simulate, cases: &[Case]) -> Result<()> {
    let sources: Vec<Source> =
        cases.iter().map(|case| Source::find(&case.input.program)).collect::<Result<_, _>>()?;
    let is_workload: fn(&Source) -> bool = |source| matches!(source, Source::Workload(_));
    let is_network: fn(&Source) -> bool = |source| matches!(source, Source::Network(_));
    let is_generated: fn(&Source) -> bool = |source| matches!(source, Source::Generated(_));
    for (option, is_given, uses, kinds) in [
        ("--scale", asked.scale.is_some(), is_workload, "workloads"),
        ("--batch", asked.batch.is_some(), is_network, "networks"),
        ("--sample", asked.sample.is_some(), is_network, "networks"),
        ("--size", asked.size.is_some(), is_generated, "generated programs"),
    ] {
        if is_given && !sources.iter().any(uses) {
            let names: BTreeSet<&str> = cases.iter().map(|case| case.input.program.as_str()).collect();
            let names: Vec<&str> = names.into_iter().collect();
            bail!("{option} has no effect on {}; it is for {kinds}", names.join(", "));
        }
    }
    Ok(())
}

/// Returns the modes of all cases.
fn names(cases: &[Case]) -> String {
    let of = |mode: &&Mode| cases.iter().any(|case| case.point.mode == **mode);
    Mode::ALL.iter().filter(of).map(|mode| mode.name()).collect::<Vec<_>>().join(" or ")
}
