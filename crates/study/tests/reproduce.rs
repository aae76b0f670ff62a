//! The whole study at its smallest: available data is drawn, missing data is reported, and nothing
//! is done twice.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use buddy_core::{Dtype, Histogram, PageMap};
use buddy_record::{
    AllocationInfo, AllocationSizes, Figure, Panel, Record, RunInfo, RunRecord, SnapshotInfo,
};
use buddy_scenario as scenario;
use buddy_study::{Done, Engine, Error, NoWatch, Progress, Request, Settings, Watch, output, reproduce};

/// The smallest scale of the programs.
const TINY: Settings =
    Settings { name: "tiny", bytes: Some(1_000_000), network_instructions: 100_000, seed: 1 };

fn request(dir: &Path, only: &[&str]) -> Request {
    Request {
        settings: TINY,
        only: only.iter().map(|&name| name.to_owned()).collect(),
        simulates: true,
        records: dir.join("records"),
        engine: Engine::Local,
        recorded: Some(dir.join("recorded")),
    }
}

#[test]
fn all_built_in_networks_are_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let built_in = Request { recorded: None, ..request(dir.path(), &["fig8", "fig13c", "fig13d"]) };
    let done = reproduce(&built_in, &NoWatch).unwrap();
    assert!(done.figures.iter().all(|record| record.data.missing.is_empty()));
    assert!(figure(&done, "fig13c").quantities.iter().all(|quantity| quantity.ours.is_some()));
}

/// Returns a record with raw weights and an activation that gains a tenth of zeros per snapshot.
fn network(name: &str) -> Record<RunRecord> {
    let allocation = |name: &str, site: &str| AllocationInfo {
        name: name.to_owned(),
        call_site: site.to_owned(),
        base: 0,
        bytes: 128 * 100,
        dtype: Dtype::F32,
    };
    let allocations = vec![allocation("relu1", "activations"), allocation("conv1", "weights")];
    let mut run = RunInfo::new(name, Default::default(), allocations);
    let sizes = |classes| {
        let histogram = Histogram { classes, optimistic_bytes: 128 * classes[5] };
        let pages = PageMap::from_pages(2, Vec::new());
        AllocationSizes { histograms: bpc(histogram), pages: bpc(pages), ..Default::default() }
    };
    let mut all = Vec::new();
    for step in 0..10 {
        run.snapshots.push(SnapshotInfo { step, label: String::new(), file: None });
        all.push(vec![sizes([90 + step, 0, 0, 0, 0, 10 - step]), sizes([0, 0, 0, 0, 0, 100])]);
    }
    Record::new(RunRecord { run, sizes: all })
}

fn bpc<T>(value: T) -> BTreeMap<String, T> {
    BTreeMap::from([("bpc".to_owned(), value)])
}

fn figure<'a>(done: &'a Done, name: &str) -> &'a Figure {
    &done.figures.iter().find(|record| record.data.name == name).expect(name).data
}

#[test]
fn recorded_networks_are_drawn_and_missing_ones_reported() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("recorded")).unwrap();
    fs::write(dir.path().join("recorded/resnet50.json"), network("resnet50").to_json()).unwrap();
    let done = reproduce(&request(dir.path(), &["fig8"]), &NoWatch).unwrap();
    let fig8 = figure(&done, "fig8");
    let Panel::Chart(chart) = &fig8.panels[0] else { panic!("a chart") };
    assert_eq!(chart.series.len(), 1);
    // 16x for the activation: nonzero entries overflow, at first a twentieth of all memory.
    assert_eq!(chart.series[0].points[0], (1.0, 0.05));
    assert_eq!(fig8.quantities[2].ours.map(|ratio| (ratio * 100.0).round()), Some(188.0));
    assert!(fig8.missing[0].contains("SqueezeNetv1.1") && !fig8.missing[0].contains("ResNet50"));
    output::write(dir.path(), &TINY, &done).unwrap();
    assert!(fs::read_to_string(dir.path().join("index.html")).unwrap().contains("id=\"fig8\""));
    assert!(dir.path().join("figures/fig8.svg").exists());
    let warns = |settings: &Settings| {
        output::write(dir.path(), settings, &done).unwrap();
        ["index.html", "summary.md"]
            .map(|file| fs::read_to_string(dir.path().join(file)).unwrap().contains("TOY SIZE"))
    };
    assert_eq!((warns(&Settings::QUICK), warns(&Settings::DEFAULT)), ([true; 2], [false; 2]));
}

#[test]
fn unknown_names_and_broken_records_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let error = reproduce(&request(dir.path(), &["fig99"]), &NoWatch).unwrap_err();
    assert!(error.to_string().starts_with("unknown experiment 'fig99'; use one of table1, fig3"), "{error}");
    fs::create_dir(dir.path().join("recorded")).unwrap();
    fs::write(dir.path().join("recorded/vgg16.json"), "{}").unwrap();
    let error = reproduce(&request(dir.path(), &["fig8"]), &NoWatch).unwrap_err();
    assert!(
        matches!(&error, Error::Scenario(scenario::Error::Recorded { name, .. }) if name == "vgg16"),
        "{error}"
    );
}

/// Stops after the first piece of work, and counts new and stored work.
#[derive(Default)]
struct Impatient {
    stops: bool,
    ended: AtomicBool,
    told: AtomicU32,
    made: Mutex<f64>,
}

impl Watch for Impatient {
    fn goes_on(&self) -> bool {
        !self.ended.load(Ordering::Relaxed)
    }

    fn progress(&self, progress: &Progress<'_>) {
        self.told.fetch_add(1, Ordering::Relaxed);
        *self.made.lock().unwrap() = progress.new;
        self.ended.store(self.stops && progress.new > 0.0, Ordering::Relaxed);
    }
}

#[test]
fn an_interrupted_study_continues() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = reproduce(&request(dir.path(), &["table1"]), &Impatient::default());
    assert!(
        nowhere.unwrap_err().to_string().contains("recorded"),
        "a directory that is not there is an error"
    );
    fs::create_dir(dir.path().join("recorded")).unwrap();
    let stopped = Impatient { stops: true, ..Impatient::default() };
    let done = reproduce(&request(dir.path(), &["table1"]), &stopped).unwrap();
    assert!(done.interrupted && done.figures.is_empty() && done.undrawn == ["table1"]);
    let kept = || fs::read_dir(dir.path().join("records")).unwrap().count();
    assert_eq!(kept(), 1, "the first program");

    let second = Impatient::default();
    let done = reproduce(&request(dir.path(), &["table1"]), &second).unwrap();
    assert!(!done.interrupted && kept() == 11, "ten programs and a figure");
    let third = Impatient::default();
    reproduce(&request(dir.path(), &["table1"]), &third).unwrap();
    assert_eq!(*third.made.lock().unwrap(), 0.0, "everything was found");
    assert!(*second.made.lock().unwrap() > 0.0 && third.told.load(Ordering::Relaxed) == 10);
    assert_eq!(figure(&done, "table1").panels.len(), 1);
}

/// Stops after the first simulation.
struct UntilSimulated(AtomicBool);

impl Watch for UntilSimulated {
    fn goes_on(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    fn progress(&self, progress: &Progress<'_>) {
        // Names of programs have no spaces; those of points do.
        self.0.store(self.0.load(Ordering::Relaxed) || progress.what.contains(' '), Ordering::Relaxed);
    }
}

#[test]
fn partial_figures_list_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("recorded")).unwrap();
    let done = reproduce(&request(dir.path(), &["fig11"]), &UntilSimulated(AtomicBool::new(false))).unwrap();
    let fig11 = figure(&done, "fig11");
    assert!(done.interrupted && fig11.unfinished.len() == 1, "{:?}", fig11.unfinished);
    assert!(fig11.unfinished[0].contains("simulations: ") && fig11.unfinished[0].contains("cg ("));
    assert!(fig11.quantities.iter().all(|quantity| quantity.name.ends_with("(partial)")));
    output::write(dir.path(), &TINY, &done).unwrap();
    assert!(fs::read_to_string(dir.path().join("index.html")).unwrap().contains("PARTIAL"));
    let whole = reproduce(&request(dir.path(), &["table1"]), &NoWatch).unwrap();
    assert!(whole.figures[0].data.unfinished.is_empty() && whole.undrawn.is_empty());
}

#[test]
fn without_simulations_figures_show_recorded_ones_and_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("recorded")).unwrap();
    let recorded_only = Request { simulates: false, ..request(dir.path(), &["fig11"]) };
    let done = reproduce(&recorded_only, &NoWatch).unwrap();
    let fig11 = figure(&done, "fig11");
    assert!(!done.interrupted && fig11.unfinished.is_empty());
    assert!(fig11.quantities.iter().all(|one| one.ours.is_some() && !one.name.ends_with("(partial)")));
    let charts = fig11.panels.iter().filter_map(|panel| match panel {
        Panel::Chart(chart) => Some(chart),
        _ => None,
    });
    assert!(charts.clone().count() >= 4 && charts.clone().all(|chart| !chart.title.ends_with("this run")));
    let kept = fs::read_dir(dir.path().join("records")).unwrap().count();
    assert_eq!(kept, 11, "ten programs and a figure");
}
