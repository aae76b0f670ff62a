//! The whole study: programs, then networks, then figures.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use buddy_dl::{PAPER, TODAY};
use buddy_record::{Figure, Record};
use buddy_workloads::{ALL, Info};
use serde_json::json;

use crate::{
    EXPERIMENTS, Error, Experiment, Findings, Key, Point, Program, Recorded, Settings, Store, Watch,
    caffe::caffe_networks,
    program,
    public::public_programs,
    recorded,
    sets::sets,
    simulate::{self, Stages},
    speed,
    tasks::{Engine, PointTasks, ProgramTasks},
    work::Work,
};

/// A request: the experiments, their scale, and the folder of records.
#[derive(Debug, Clone)]
pub struct Request {
    /// The scale and the seed.
    pub settings: Settings,
    /// Names of the experiments; empty for all.
    pub only: Vec<String>,
    /// False to simulate nothing: figures show recorded simulations only.
    pub simulates: bool,
    /// Folder of records.
    pub records: PathBuf,
    /// Folder of the recorded training runs; `None` for the built-in ones.
    pub recorded: Option<PathBuf>,
    /// Where the work runs.
    pub engine: Engine,
}

/// The figures of a study.
#[derive(Debug)]
pub struct Done {
    /// The figures, in the order of the experiments.
    pub figures: Vec<Record<Figure>>,
    /// Names of figures that an interruption left without data.
    pub undrawn: Vec<String>,
    /// True if it was interrupted, so that figures are missing or incomplete.
    pub interrupted: bool,
}

/// Makes every requested figure.
///
/// # Errors
/// An unknown experiment, or an error that stops the work. An interruption is not an error: it
/// returns the finished part.
pub fn reproduce(request: &Request, watch: &dyn Watch) -> Result<Done, Error> {
    let chosen = choose(&request.only)?;
    let store = Store::open(&request.records)?;
    let settings = request.settings;
    let accuracy = recorded::accuracy(request.recorded.as_deref())?;
    let (dir, networks) = (request.recorded.as_deref(), networks(request)?);
    let (public, caffe, sets) = (public_programs(dir)?, caffe_networks(dir)?, sets(dir)?);
    let simulates = request.simulates;
    let mut found =
        Findings { simulates, networks, caffe, sets, public, accuracy, ..Findings::new(settings) };
    let interrupted = match gather(&chosen, &mut found, &store, &request.engine, watch) {
        Ok(()) => false,
        Err(Error::Interrupted) => true,
        Err(error) => return Err(error),
    };
    if request.engine.is_shard() {
        return Ok(Done { figures: Vec::new(), undrawn: Vec::new(), interrupted });
    }
    let is_ready = |one: &&&dyn Experiment| !one.needs_programs() || !found.programs.is_empty();
    let (ready, rest): (Vec<&&dyn Experiment>, Vec<&&dyn Experiment>) = chosen.iter().partition(is_ready);
    let figures = ready.into_iter().map(|one| keep(&store, *one, &found)).collect::<Result<_, _>>()?;
    let undrawn = rest.into_iter().map(|one| one.about().name.to_owned()).collect();
    Ok(Done { figures, undrawn, interrupted })
}

/// Runs the programs and simulations that the experiments need.
fn gather(
    chosen: &[&dyn Experiment],
    found: &mut Findings,
    store: &Store,
    engine: &Engine,
    watch: &dyn Watch,
) -> Result<(), Error> {
    let settings = found.settings;
    let needs_programs = chosen.iter().any(|one| one.needs_programs());
    let simulated = chosen.iter().filter(|_| found.simulates);
    let points: BTreeSet<Point> = simulated.flat_map(|one| one.points(found)).collect();
    let mut points: Vec<Point> = points.into_iter().collect();
    let cost = |point: &Point| simulate::seconds(&settings, point);
    points.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
    let running: f64 =
        ALL.iter().filter(|_| needs_programs).map(|info| program_seconds(&settings, info)).sum();
    let work = Work::new(watch, running + points.iter().map(cost).sum::<f64>());
    if chosen.iter().any(|one| one.needs_speed()) && !engine.is_shard() {
        found.speed = work.record("speed of the simulator", 0.0, store, &speed::key(), speed::measure)?.rows;
    }
    if needs_programs {
        engine.run(&ProgramTasks { settings: &settings, store }, store, true, watch)?;
        if engine.is_shard_of_programs() {
            return Ok(());
        }
        found.programs = programs(&settings, store, &work)?;
    }
    if chosen.iter().any(|one| one.needs_smaller()) && !engine.is_shard() {
        found.smaller = smaller(&settings, store, &work)?;
    }
    let stages = Stages::new(found, &points);
    let tasks = PointTasks { points: stages.keys(&points)?, stages: &stages, settings: &settings, store };
    engine.run(&tasks, store, false, watch)?;
    if engine.is_shard() {
        return Ok(());
    }
    let reports = stages.run(&points, store, &work)?;
    found.reports = reports;
    if watch.goes_on() { Ok(()) } else { Err(Error::Interrupted) }
}

/// Returns the requested experiments.
fn choose(only: &[String]) -> Result<Vec<&'static dyn Experiment>, Error> {
    let known = |name: &String| EXPERIMENTS.iter().any(|one| one.about().name == name);
    if let Some(name) = only.iter().find(|name| !known(name)) {
        let known: Vec<&str> = EXPERIMENTS.iter().map(|one| one.about().name).collect();
        return Err(Error::Name { name: name.clone(), known: known.join(", ") });
    }
    let wanted = |one: &&&dyn Experiment| only.is_empty() || only.iter().any(|name| name == one.about().name);
    Ok(EXPERIMENTS.iter().filter(wanted).copied().collect())
}

fn networks(request: &Request) -> Result<BTreeMap<String, Recorded>, Error> {
    let mut networks = BTreeMap::new();
    for network in PAPER.iter().chain(&TODAY) {
        if let Some(recorded) = Recorded::read(request.recorded.as_deref(), network)? {
            networks.insert(network.name.to_owned(), recorded);
        }
    }
    Ok(networks)
}

/// Draws a figure and saves its record.
fn keep(store: &Store, experiment: &dyn Experiment, found: &Findings) -> Result<Record<Figure>, Error> {
    let name = experiment.about().name;
    let Settings { name: scale, bytes, network_instructions, seed } = found.settings;
    let inputs = json!({
        "figure": name, "scale": scale, "bytes": bytes, "seed": seed,
        "network_instructions": network_instructions,
        "simulates": found.simulates,
        "networks": found.networks.keys().collect::<Vec<_>>(),
        "caffe": found.caffe.keys().collect::<Vec<_>>(),
        "public": found.public.keys().collect::<Vec<_>>(),
    });
    let mut figure = Figure { unfinished: found.unfinished(experiment), ..experiment.draw(found) };
    if !figure.unfinished.is_empty() {
        figure.quantities.iter_mut().for_each(|quantity| quantity.name.push_str(" (partial)"));
    }
    Ok(store.save(&Key { name: format!("figure-{name}"), inputs }, figure)?)
}

/// Runs the programs in sequence; each uses all cores.
fn programs(settings: &Settings, store: &Store, work: &Work<'_>) -> Result<BTreeMap<String, Program>, Error> {
    let mut programs = BTreeMap::new();
    for info in ALL {
        let key = settings.program_key(info);
        let seconds = program_seconds(settings, info);
        let make = || program::observe(settings, info, work.watch());
        let found = work.record(info.name, seconds, store, &key, make)?;
        programs.insert(info.name.to_owned(), found);
    }
    Ok(programs)
}

/// Runs the programs with less memory.
fn smaller(settings: &Settings, store: &Store, work: &Work<'_>) -> Result<BTreeMap<String, Program>, Error> {
    let one = |info: &Info| {
        let make = || program::observe_smaller(settings, info, work.watch());
        let made = work.record(info.name, 0.0, store, &settings.smaller_key(info), make)?;
        Ok((info.name.to_owned(), made))
    };
    ALL.iter().map(one).collect()
}

fn program_seconds(settings: &Settings, info: &Info) -> f64 {
    info.seconds_per_mb * settings.bytes_of(info) as f64 / 1e6
}
