//! Compares predicted slowdowns with simulated ones: `cargo run --release -p buddy-scenario --example
//! advice [SCALE [PROGRAM...]]`.
//!
//! Every built-in workload and every public program of `data/recorded/public` gets the targets that
//! `buddy profile` recommends for several machines and limits, and is simulated with them. A public
//! program is simulated twice, with the entries of each size class scattered and side by side. Exits
//! with 1 if a simulated slowdown exceeds its limit.

mod public;

use std::process::ExitCode;

use buddy_codec::CodecKind;
use buddy_profile::{CodecChoice, DEFAULT_THRESHOLD, LinkLimit, Measured, Settings, Tried, profile};
use buddy_record::{
    Policy, PolicyOutcome, TARGETS_VERSION, TargetTable,
    spec::{Gpu, Link},
};
use buddy_scenario::{
    Ask, Error, Point, Scale, Scenario, Stage, TargetChoice, observe, parse_scale, typical,
};
use buddy_sim::Mode;
use buddy_workloads::{ALL, Info};

use crate::public::{NAMES, Places, Public};

/// GPU, link and largest slowdown.
type Case = (&'static str, &'static str, f64);

const CASES: [Case; 3] = [("paper", "150", 0.05), ("v100", "pcie3", 0.05), ("v100", "pcie3", 0.2)];

fn main() -> ExitCode {
    let mut asked = std::env::args().skip(1);
    let scale = asked.next().unwrap_or_else(|| "16MB".to_owned());
    let scale = parse_scale(&scale).expect("a scale, such as 16MB");
    let names: Vec<String> = asked.collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
    println!("program                   gpu    link     limit  ratio  overflow  predicted  simulated");
    let workloads = ALL.iter().filter(|info| wanted(info.name)).map(|info| workload(info, scale));
    let public =
        NAMES.into_iter().filter(|name| wanted(&format!("public/{name}"))).map(|name| public(name, scale));
    let within: Vec<bool> = workloads.chain(public).collect();
    let over = within.iter().filter(|within| !**within).count();
    println!("{over} of {} programs exceed a limit", within.len());
    ExitCode::from(u8::from(over > 0))
}

/// Prints the cases of a workload and returns whether all are within their limits.
fn workload(info: &Info, scale: Scale) -> bool {
    let bytes = scale.bytes(info).expect("a footprint of the workload");
    let tried = Tried { kinds: vec![CodecKind::Bpc], auto: true, threshold: DEFAULT_THRESHOLD };
    // A table keeps the classes with every codec.
    let every = [TargetTable {
        version: TARGETS_VERSION,
        program: info.name.to_owned(),
        allocations: vec![],
        changes: vec![],
    }];
    let ask = Ask { info, bytes, seed: 1, tried, tables: &every, snapshot: None };
    let observed = observe(&ask, |_| true).expect("the workload runs");
    let stage = Stage::observed((info.build)(bytes, 1).application(), &observed, typical(&observed.profile));
    let cases = CASES.map(|case| {
        let (outcome, table) = recommended(&observed.measured, case).expect("every codec was measured");
        case_within(info.name, &stage, case, &outcome, &table).expect("a simulation")
    });
    cases.into_iter().all(|within| within)
}

/// Prints the cases of a public program and returns whether all are within their limits.
fn public(name: &str, scale: Scale) -> bool {
    let Scale::Bytes(bytes) = scale else { panic!("public programs take a size, such as 16MB") };
    let program = Public::read(name, bytes);
    let mut within = true;
    for (case, places) in
        CASES.iter().flat_map(|case| [(*case, Places::Scattered), (*case, Places::Together)])
    {
        let (outcome, table) = recommended(&program.measured, case).expect("every codec was measured");
        let stage = program.stage(&table, places);
        let name = format!("{name}, {places:?}").to_lowercase();
        within &= case_within(&name, &stage, case, &outcome, &table).expect("a simulation");
    }
    within
}

/// Returns what `buddy profile` recommends for a machine and a limit.
fn recommended(measured: &Measured, case: Case) -> Result<(PolicyOutcome, TargetTable), Error> {
    let (gpu, link, max_slowdown) = case;
    let limit = LinkLimit { gpu: Gpu::named(gpu)?, link: Link::named(link)?, max_slowdown, accesses: None };
    let settings = Settings {
        threshold: DEFAULT_THRESHOLD,
        policy: Policy::Link,
        codec: CodecChoice::Auto,
        plan: None,
        link: Some(limit),
    };
    let (found, _) = profile(measured, &settings).expect("every codec was measured");
    let outcome = found.outcome(Policy::Link, "auto").expect("the chosen policy").clone();
    Ok((outcome, TargetTable { changes: Vec::new(), ..found.targets }))
}

fn case_within(
    name: &str,
    stage: &Stage,
    case: Case,
    outcome: &PolicyOutcome,
    table: &TargetTable,
) -> Result<bool, Error> {
    let (gpu, link, max_slowdown) = case;
    let cycles = |mode, targets: &TargetChoice| -> Result<f64, Error> {
        let point = Point { gpu: gpu.to_owned(), link: link.to_owned(), ..Point::new(name, mode) };
        let done = Scenario::new(stage, point, targets)?.run(&mut |_| true)?.expect("not interrupted");
        Ok(done.report.cycles as f64)
    };
    let ideal = cycles(Mode::Ideal, &TargetChoice::Policy)?;
    let buddy = cycles(Mode::Buddy, &TargetChoice::Table(Box::new(table.clone())))?;
    let slowdown = buddy / ideal - 1.0;
    let within = slowdown <= max_slowdown;
    println!(
        "{name:25} {gpu:6} {link:8} {:4.0}%  {:4.2}x  {:7.2}%  {:8.1}%  {:8.1}% {}",
        100.0 * max_slowdown,
        outcome.ratio,
        100.0 * outcome.worst_overflow,
        100.0 * outcome.link.map_or(0.0, |link| link.slowdown),
        100.0 * slowdown,
        if within { "" } else { "EXCEEDS" },
    );
    Ok(within)
}
