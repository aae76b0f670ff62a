//! Refuses options that no run of a simulation uses.

use anyhow::{Result, bail};
use buddy_scenario::{Case, Source, TargetChoice};
use buddy_sim::Mode;

use super::Simulate;

/// Refuses an option that the mode of every case ignores, or its program.
pub(super) fn ignored(asked: &Simulate, cases: &[Case]) -> Result<()> {
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
        "--link" => uses_link(asked, case),
        _ => case.is_compressed(),
    }
}

/// Returns whether anything can cross the link: buddy sectors, all data, pages, timed copies, or
/// memory that the program or a file of targets places on the host.
fn uses_link(asked: &Simulate, case: &Case) -> bool {
    let host = matches!(case.point.target_choice(), TargetChoice::File(_));
    let plain = matches!(Source::find(&case.input.program), Ok(Source::Generated(_) | Source::Trace(_)));
    matches!(case.point.mode, Mode::Buddy | Mode::Pinned | Mode::Um) || asked.timed_copies || host || !plain
}

/// Returns the modes of all cases.
fn names(cases: &[Case]) -> String {
    let of = |mode: &&Mode| cases.iter().any(|case| case.point.mode == **mode);
    Mode::ALL.iter().filter(of).map(|mode| mode.name()).collect::<Vec<_>>().join(" or ")
}
