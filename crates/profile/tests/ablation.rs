//! Capacity without each codec: the ten programs, and the recorded runs of `data/recorded`.
//!
//! `docs/notes/ablation.md` has the table that the ignored test prints:
//! `cargo test -p buddy-profile --test ablation -- --ignored --nocapture`, some minutes.

use std::{env, fs, path::Path};

use buddy_codec::CodecKind;
use buddy_core::ENTRY_BYTES;
use buddy_profile::{
    CodecChoice, DEFAULT_THRESHOLD, Measured, Observer, Place, Rows, Tried, assign, candidates, train,
};
use buddy_record::{Policy, Record, RunRecord, SnapshotInfo};
use buddy_workloads::{ALL, Info, describe, run};

/// Policies and thresholds of the comparison.
const CHOICES: [(Policy, f64); 3] =
    [(Policy::Allocation16x, DEFAULT_THRESHOLD), (Policy::Page, DEFAULT_THRESHOLD), (Policy::Page, 0.01)];
/// Largest joint loss of the dropped codecs.
const LOSS: f64 = 0.005;

/// Runs a program and measures it with every candidate, trained on its first snapshot.
fn program(info: &Info, bytes: u64) -> Measured {
    let mut workload = (info.build)(bytes, 1);
    let described = describe(info, workload.as_ref(), 1);
    let mut observer: Option<Observer> = None;
    let done = run(workload.as_mut(), |step, workload| {
        if step.look {
            let arrays: Vec<&[u8]> = workload.allocations().iter().map(|array| array.bytes).collect();
            let begin = || Observer::new(described.clone(), train(&arrays, &candidates(Place::Memory)));
            let snapshot = SnapshotInfo { step: step.done, label: String::new(), file: None };
            observer.get_or_insert_with(begin).add(snapshot, &arrays, Rows::NONE, &|_| ());
        }
        Ok::<(), ()>(())
    });
    done.expect("nothing interrupts it");
    observer.expect("a run is looked at").finish(DEFAULT_THRESHOLD, true)
}

/// Reads the recorded runs in a folder, by name.
fn recorded(folder: &str) -> Vec<Measured> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/recorded").join(folder);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files
        .retain(|path| path.extension().is_some_and(|end| end == "json") && !path.ends_with("accuracy.json"));
    files.sort();
    let tried = Tried { kinds: vec![CodecKind::Bpc], auto: true, threshold: DEFAULT_THRESHOLD };
    let read = |path: &std::path::PathBuf| {
        let record: Record<RunRecord> = Record::from_json(&fs::read_to_string(path).unwrap()).unwrap();
        let mut run = Measured::from_record(&record.data, &tried).unwrap();
        run.allocations.iter_mut().flat_map(|all| &mut all.codecs).for_each(|codec| codec.maps.clear());
        run
    };
    files.iter().map(read).collect()
}

/// Returns the ratio of a run's largest footprint; `None` where pages are not recorded. Collects the
/// chosen codecs.
fn ratio(run: &Measured, (policy, threshold): (Policy, f64), used: &mut Vec<CodecKind>) -> Option<f64> {
    let chosen = assign(run, threshold, policy, CodecChoice::Auto).ok()?;
    used.extend(run.allocations.iter().zip(&chosen).map(|(all, one)| all.codecs[one.codec].kind));
    let footprint = |snapshot: usize| {
        let all = run.allocations.iter().zip(&chosen).map(|(all, one)| (&all.codecs[one.codec], one));
        let alive = all.filter(|(codec, _)| codec.histograms[snapshot].entries() > 0);
        let parts = alive.map(|(codec, one)| {
            let entries = codec.histograms[snapshot].entries();
            (entries * ENTRY_BYTES as u64, one.device_bytes(entries) + codec.parameter_bytes)
        });
        parts.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    };
    let all: Vec<(u64, u64)> = (0..run.run.snapshots.len()).map(footprint).collect();
    let most = |of: fn(&(u64, u64)) -> u64| all.iter().map(of).max().unwrap_or(0).max(1) as f64;
    Some(most(|sum| sum.0) / most(|sum| sum.1))
}

/// A set of runs, with the ratios and the chosen codecs of each if there is every candidate.
struct Set {
    name: &'static str,
    runs: Vec<Measured>,
    ratios: Vec<[Option<f64>; 3]>,
    used: Vec<Vec<CodecKind>>,
}

impl Set {
    fn new(name: &'static str, runs: Vec<Measured>) -> Self {
        let found = runs.iter().map(|run| {
            let mut used = Vec::new();
            (CHOICES.map(|choice| ratio(run, choice, &mut used)), used)
        });
        let (ratios, used) = found.unzip();
        Self { name, runs, ratios, used }
    }

    /// Returns logarithms of what each run keeps of its ratio without some codecs, for each choice.
    fn kept(&self, without: &[CodecKind]) -> [Vec<f64>; 3] {
        let mut kept = [const { Vec::new() }; 3];
        for ((run, full), used) in self.runs.iter().zip(&self.ratios).zip(&self.used) {
            let uses = used.iter().any(|kind| without.contains(kind));
            let less = uses.then(|| run.without(without, DEFAULT_THRESHOLD));
            for (choice, (full, kept)) in CHOICES.into_iter().zip(full.iter().zip(&mut kept)) {
                let now = less.as_ref().map_or(*full, |less| ratio(less, choice, &mut Vec::new()));
                kept.extend(full.and_then(|full| Some((now? / full).ln())));
            }
        }
        kept
    }
}

fn mean(logarithms: &[f64]) -> f64 {
    logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64
}

/// Returns the loss of the geometric mean over all sets, the largest of the choices.
fn loss(sets: &[Set], without: &[CodecKind]) -> f64 {
    let all: Vec<[Vec<f64>; 3]> = sets.iter().map(|set| set.kept(without)).collect();
    let of = |choice: usize| {
        let each: Vec<f64> = all.iter().flat_map(|kept| kept[choice].clone()).collect();
        1.0 - mean(&each).exp()
    };
    (0..3).map(of).fold(f64::NEG_INFINITY, f64::max)
}

/// Prints the loss of every set and choice, the loss over all, and the largest loss of a run.
fn row(sets: &[Set], name: &str, without: &[CodecKind]) -> f64 {
    let kept: Vec<[Vec<f64>; 3]> = sets.iter().map(|set| set.kept(without)).collect();
    let percent = |log: f64| 100.0 * (1.0 - log.exp());
    let cells =
        kept.iter().flatten().filter(|one| !one.is_empty()).map(|one| format!("{:.2}", percent(mean(one))));
    let worst = kept.iter().flatten().flatten().copied().fold(0.0, f64::min);
    let all = loss(sets, without);
    println!(
        "| {name} | {} | {:.2} | {:.1} |",
        cells.collect::<Vec<_>>().join(" | "),
        100.0 * all,
        percent(worst)
    );
    all
}

#[test]
#[ignore = "prints a table; takes minutes"]
fn capacity_without_each_codec() {
    let megabytes: u64 = env::var("BUDDY_ABLATION_MB").map_or(4, |text| text.parse().unwrap());
    let programs = ALL.iter().map(|info| program(info, megabytes * 1_000_000)).collect();
    let networks = [recorded("."), recorded("caffe")].into_iter().flatten().collect();
    let sets = [
        Set::new("programs", programs),
        Set::new("networks", networks),
        Set::new("public", recorded("public")),
    ];
    for set in &sets {
        let means = (0..3).map(|choice| {
            let logs: Vec<f64> = set.ratios.iter().filter_map(|ratios| Some(ratios[choice]?.ln())).collect();
            format!("{:.3}", mean(&logs).exp())
        });
        println!("{} ({} runs): {:?}", set.name, set.runs.len(), means.collect::<Vec<_>>());
    }
    let all = candidates(Place::Memory);
    let mut losses: Vec<(f64, CodecKind)> =
        all.iter().map(|kind| (row(&sets, kind.name(), &[*kind]), *kind)).collect();
    for form in ["planes", "zeros", "fp", "table", "rank", "stride", "prefix"] {
        let kinds: Vec<CodecKind> =
            all.iter().copied().filter(|kind| kind.name().starts_with(form)).collect();
        row(&sets, &format!("all {form}"), &kinds);
    }
    // The cheapest first, as long as all dropped ones together cost little.
    losses.retain(|(_, kind)| *kind != CodecKind::Bpc);
    let mut dropped = Vec::new();
    while !losses.is_empty() {
        let next = losses
            .iter()
            .enumerate()
            .map(|(index, (_, kind))| (index, loss(&sets, &[&dropped[..], &[*kind]].concat())));
        let (index, cost) = next.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        let kind = losses.remove(index).1;
        dropped.push(kind);
        println!("dropped {kind}: together {:.2}%", 100.0 * cost);
        if cost > 4.0 * LOSS {
            break;
        }
    }
}

#[test]
fn a_run_without_a_codec_has_the_best_of_the_others() {
    let ep = program(ALL.iter().find(|info| info.name == "ep").unwrap(), 200_000);
    let before = ratio(&ep, CHOICES[0], &mut Vec::new()).unwrap();
    let best: Vec<CodecKind> = ep.allocations.iter().map(|one| one.codecs[one.auto].kind).collect();
    let less = ep.without(&best, DEFAULT_THRESHOLD);
    assert!(less.allocations.iter().all(|one| !best.contains(&one.codecs[one.auto].kind)));
    assert!(ratio(&less, CHOICES[0], &mut Vec::new()).unwrap() <= before);
    let none = ep.without(&candidates(Place::Memory), DEFAULT_THRESHOLD);
    assert_eq!(none.allocations[0].codecs.len(), ep.allocations[0].codecs.len());
}
