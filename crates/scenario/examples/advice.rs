//! Compares predicted slowdowns with simulated ones: `cargo run --release -p buddy-scenario --example
//! advice [SCALE [WORKLOAD...]]`.
//!
//! Every built-in workload gets the targets that `buddy profile` recommends for several machines and
//! limits, and is simulated with them. Exits with 1 if a simulated slowdown exceeds its limit.

use std::process::ExitCode;

use buddy_codec::CodecKind;
use buddy_profile::{CodecChoice, DEFAULT_THRESHOLD, LinkLimit, Settings, Tried, profile};
use buddy_record::{
    Policy, TARGETS_VERSION, TargetTable,
    spec::{Gpu, Link},
};
use buddy_scenario::{
    Ask, Error, Observed, Point, Scale, Scenario, Stage, TargetChoice, observe, parse_scale, typical,
};
use buddy_sim::Mode;
use buddy_workloads::{ALL, Info};

/// GPU, link and largest slowdown.
const CASES: [(&str, &str, f64); 3] =
    [("paper", "150", 0.05), ("v100", "pcie3", 0.05), ("v100", "pcie3", 0.2)];

fn main() -> ExitCode {
    let mut asked = std::env::args().skip(1);
    let scale = asked.next().unwrap_or_else(|| "16MB".to_owned());
    let scale = parse_scale(&scale).expect("a scale, such as 16MB");
    let names: Vec<String> = asked.collect();
    let programs: Vec<&Info> =
        ALL.iter().filter(|info| names.is_empty() || names.iter().any(|name| name == info.name)).collect();
    println!("program    gpu    link     limit  ratio  overflow  predicted  simulated");
    let over: usize = programs.iter().map(|info| program(info, scale)).sum();
    println!("{over} of {} exceed their limit", programs.len() * CASES.len());
    ExitCode::from(u8::from(over > 0))
}

/// Prints the cases of a workload and returns how many exceed their limit.
fn program(info: &Info, scale: Scale) -> usize {
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
    CASES.iter().filter(|case| !case_within(info, &observed, &stage, **case).expect("a simulation")).count()
}

fn case_within(
    info: &Info,
    observed: &Observed,
    stage: &Stage,
    case: (&str, &str, f64),
) -> Result<bool, Error> {
    let (gpu, link, max_slowdown) = case;
    let limit = LinkLimit { gpu: Gpu::named(gpu)?, link: Link::named(link)?, max_slowdown, accesses: None };
    let settings = Settings {
        threshold: DEFAULT_THRESHOLD,
        policy: Policy::Link,
        codec: CodecChoice::Auto,
        plan: None,
        link: Some(limit),
    };
    let (found, _) = profile(&observed.measured, &settings).expect("every codec was measured");
    let outcome = found.outcome(Policy::Link, "auto").expect("the chosen policy");
    let cycles = |mode, targets: &TargetChoice| -> Result<f64, Error> {
        let point = Point { gpu: gpu.to_owned(), link: link.to_owned(), ..Point::new(info.name, mode) };
        let done = Scenario::new(stage, point, targets)?.run(&mut |_| true)?.expect("not interrupted");
        Ok(done.report.cycles as f64)
    };
    let ideal = cycles(Mode::Ideal, &TargetChoice::Policy)?;
    let table = TargetTable { changes: Vec::new(), ..found.targets.clone() };
    let buddy = cycles(Mode::Buddy, &TargetChoice::Table(Box::new(table)))?;
    let slowdown = buddy / ideal - 1.0;
    let within = slowdown <= max_slowdown;
    println!(
        "{:10} {gpu:6} {link:8} {:4.0}%  {:4.2}x  {:7.2}%  {:8.1}%  {:8.1}% {}",
        info.name,
        100.0 * max_slowdown,
        outcome.ratio,
        100.0 * outcome.worst_overflow,
        100.0 * outcome.link.map_or(0.0, |link| link.slowdown),
        100.0 * slowdown,
        if within { "" } else { "EXCEEDS" },
    );
    Ok(within)
}
