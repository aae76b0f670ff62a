//! End-to-end tests of scenarios: the memory of each kind of program, with different targets.

use buddy_codec::CodecKind;
use buddy_core::{Histogram, SizeClass, Target};
use buddy_dl::Network;
use buddy_profile::{CodecChoice, DEFAULT_THRESHOLD, LinkLimit, Settings, Tried, profile};
use buddy_record::{
    AllocationInfo, AllocationSizes, Policy, RunInfo, RunRecord, SnapshotInfo, TargetTable,
    spec::{Gpu, Link},
};
use buddy_scenario::{
    Ask, Done, Error, Observed, Point, Scenario, Source, Stage, TargetChoice, observe, typical,
};
use buddy_sim::Mode;
use buddy_workloads::{ALL, Check, Info};

const BYTES: u64 = 1_000_000;

fn workload(name: &str) -> &'static Info {
    ALL.iter().find(|info| info.name == name).unwrap()
}

fn ask(info: &Info, kinds: Vec<CodecKind>, snapshot: Option<usize>) -> Ask<'_> {
    let tried = Tried { kinds, auto: false, threshold: DEFAULT_THRESHOLD };
    Ask { info, bytes: BYTES, seed: 1, tried, tables: &[], snapshot }
}

fn seen(info: &Info, snapshot: Option<usize>) -> Observed {
    observe(&ask(info, vec![CodecKind::Bpc], snapshot), |_| true).unwrap()
}

fn run(stage: &Stage, point: Point, targets: &TargetChoice) -> Result<Done, Error> {
    Ok(Scenario::new(stage, point, targets)?.run(&mut |_| true)?.expect("not interrupted"))
}

#[test]
fn every_name_finds_its_kind() {
    assert!(matches!(Source::find("cg"), Ok(Source::Workload(info)) if info.name == "cg"));
    assert!(matches!(Source::find("resnet50"), Ok(Source::Network(_))));
    assert!(matches!(Source::find("stream"), Ok(Source::Generated("stream"))));
    assert!(matches!(Source::find("."), Ok(Source::Trace(_))));
    let error = Source::find("nothing").err().unwrap().to_string();
    assert!(
        error.contains("arithmetic, stream") && error.contains("palm") && error.contains("alexnet"),
        "{error}"
    );
}

/// The simulator reads the same classes that the profile counted, shared in memory.
#[test]
fn a_workload_is_measured_once() {
    let info = workload("hpgmg");
    let observed = seen(info, None);
    assert!(observed.checks.iter().all(Check::passed));
    let snapshot = typical(&observed.profile);
    for (map, allocation) in observed.classes(snapshot).iter().zip(&observed.measured.allocations) {
        let mut counts = [0; 6];
        map.classes().iter().for_each(|class| counts[class.index()] += 1);
        assert_eq!(counts, allocation.codecs[0].histograms[snapshot].classes);
        assert_eq!(allocation.codecs[0].maps.len(), 10);
        let shared = allocation.codecs[0].maps[snapshot].as_ref().unwrap();
        assert!(std::sync::Arc::ptr_eq(shared.classes(), map.classes()));
    }
    let application = (info.build)(BYTES, 1).application();
    let stage = Stage::observed(application, &observed, snapshot);
    let overflow = stage.map(&TargetChoice::Policy, Mode::Buddy).unwrap().overflow_share();
    let expected = observed.profile.outcome(Policy::Allocation16x, "bpc").unwrap().overflow[snapshot];
    assert!((overflow - expected).abs() < 1e-12, "{overflow} {expected}");
}

#[test]
fn only_the_requested_snapshot_is_kept() {
    let (all, one) = (seen(workload("ep"), None), seen(workload("ep"), Some(3)));
    assert_eq!(all.classes(3), one.classes(3));
    assert_eq!(all.profile.targets, one.profile.targets);
    let kept: Vec<bool> = one.measured.allocations[0].codecs[0].maps.iter().map(Option::is_some).collect();
    assert_eq!(kept, (0..10).map(|snapshot| snapshot == 3).collect::<Vec<_>>());
}

#[test]
fn the_caller_can_stop_a_run() {
    let info = workload("ep");
    let mut steps = 0;
    let ended = observe(&ask(info, vec![CodecKind::Bpc], None), |step| {
        steps = step.done;
        step.done < 2
    });
    assert!(matches!(ended, Err(Error::Interrupted)) && steps == 2);
}

#[test]
fn stored_and_measured_classes_give_the_same_simulation() {
    let info = workload("ep");
    let observed = seen(info, None);
    let application = || (info.build)(BYTES, 1).application();
    let point = || Point::new("ep", Mode::Buddy).link(50);
    let watched = Stage::observed(application(), &observed, 9);
    let kept = Stage::of_classes(application(), &observed.classes(9), &observed.profile);
    let cycles = |stage: &Stage, targets: &TargetChoice| run(stage, point(), targets).unwrap().report.cycles;
    assert_eq!(cycles(&watched, &TargetChoice::Policy), cycles(&kept, &TargetChoice::Policy));
    assert_eq!(
        cycles(&watched, &TargetChoice::named(Some("4x"))),
        cycles(&kept, &TargetChoice::named(Some("4x")))
    );
    let other = TargetChoice::named(Some("/no/such.toml"));
    let error = run(&watched, point(), &other).unwrap_err().to_string();
    assert!(
        error.contains("/no/such.toml: neither a ratio (1x, 4/3x, 2x, 4x, 16x) nor a readable file"),
        "{error}"
    );
}

#[test]
fn a_generated_program_needs_targets_where_it_is_compressed() {
    let stage = Stage::generated("stream", 1 << 20, Some([0.0, 0.0, 1.0, 0.0, 0.0, 0.0]));
    let done =
        |mode, targets: Option<&str>| run(&stage, Point::new("stream", mode), &TargetChoice::named(targets));
    assert!(done(Mode::Ideal, None).is_ok());
    let error = done(Mode::Buddy, None).unwrap_err().to_string();
    assert_eq!(error, "mode buddy needs targets: a ratio such as 2x, or a file");
    let overflow = |ratio| done(Mode::Buddy, Some(ratio)).unwrap().report.buddy.buddy_access_share;
    assert!(overflow("4x") == 0.0 && overflow("16x") > 0.9);
    assert_eq!(stage.about(), ("stream", None));
}

/// Returns a record of one tensor, of which every entry takes two sectors.
fn record(codec: &str) -> RunRecord {
    let network = Network::named("squeezenet").unwrap();
    let allocations: Vec<AllocationInfo> = network.application_sampled(2, 0.05).allocations;
    let sizes = |info: &AllocationInfo| {
        let mut classes = [0; 6];
        classes[SizeClass::S2.index()] = info.entries();
        let mut histogram = Histogram { classes, optimistic_bytes: 0 };
        histogram.optimistic_bytes = histogram.stored_bytes();
        AllocationSizes { histograms: [(codec.to_owned(), histogram)].into(), ..Default::default() }
    };
    let sizes = vec![allocations.iter().map(sizes).collect()];
    let mut run = RunInfo::new("squeezenet", Default::default(), allocations);
    run.snapshots.push(SnapshotInfo { step: 0, label: String::new(), file: None });
    RunRecord { run, sizes }
}

#[test]
fn a_network_takes_the_sizes_of_its_record() {
    let network = Network::named("squeezenet").unwrap();
    let iteration =
        |record: Option<&RunRecord>, share| Stage::iteration(&network, 2, share, CodecKind::Bpc, record);
    let stage = iteration(Some(&record("bpc")), 0.05).unwrap();
    let overflow = |targets: Option<&str>| {
        stage.map(&TargetChoice::named(targets), Mode::Buddy).map(|map| map.overflow_share())
    };
    assert_eq!((overflow(None).unwrap(), overflow(Some("2x")).unwrap()), (0.0, 0.0));
    assert_eq!(overflow(Some("4x")).unwrap(), 1.0);
    assert!(
        overflow(Some("x.toml")).unwrap_err().to_string().contains("a network are a ratio or the policy's")
    );
    let error = iteration(Some(&record("bdi")), 0.05).err().unwrap().to_string();
    assert_eq!(error, "the record of squeezenet has no sizes of codec bpc");
    assert!(iteration(None, 0.0001).err().unwrap().to_string().contains("has no kernel at a batch of 2"));
    let error = Stage::recorded(&record("bpc"), 1000).err().unwrap().to_string();
    assert_eq!(error, "its record has no parameter 'batch'");
}

/// The example `advice` checks every workload at a larger footprint.
#[test]
fn recommended_targets_are_simulated_within_their_limit() {
    for name in ["palm", "sp", "lulesh"] {
        let info = workload(name);
        let tried = Tried { kinds: vec![CodecKind::Bpc], auto: true, threshold: DEFAULT_THRESHOLD };
        let every = TargetTable::uniform(name, &[], Target::X1, "bpc");
        let ask = Ask { tried, tables: &[every], ..ask(info, Vec::new(), None) };
        let observed = observe(&ask, |_| true).unwrap();
        let stage =
            Stage::observed((info.build)(BYTES, 1).application(), &observed, typical(&observed.profile));
        let point =
            |mode| Point { gpu: "v100".to_owned(), link: "pcie3".to_owned(), ..Point::new(name, mode) };
        let slower = |settings: &Settings| {
            let table = profile(&observed.measured, settings).unwrap().0.targets;
            let targets = TargetChoice::Table(Box::new(TargetTable { changes: Vec::new(), ..table }));
            let cycles = |mode| run(&stage, point(mode), &targets).unwrap().report.cycles as f64;
            cycles(Mode::Buddy) / cycles(Mode::Ideal) - 1.0
        };
        let limit = LinkLimit {
            gpu: Gpu::named("v100").unwrap(),
            link: Link::named("pcie3").unwrap(),
            max_slowdown: 0.05,
            accesses: None,
        };
        let by = |policy| Settings {
            threshold: DEFAULT_THRESHOLD,
            policy,
            codec: CodecChoice::Auto,
            plan: None,
            link: Some(limit.clone()),
        };
        let (recommended, threshold) = (slower(&by(Policy::Link)), slower(&by(Policy::Page)));
        assert!(recommended <= 0.05, "{name}: {recommended}");
        assert!(recommended < threshold, "{name}: {recommended}, by the threshold {threshold}");
    }
}
