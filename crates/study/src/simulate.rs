//! Simulations of programs: the typical snapshot, with the targets of the final design.

use std::{collections::BTreeMap, sync::OnceLock};

use buddy_core::digest;
use buddy_scenario::{Point, Scenario, Stage};
use buddy_sim::{Config, Report};
use buddy_trace::pattern::PROGRAMS;
use buddy_workloads::ALL;
use rayon::prelude::*;
use serde_json::{Value, json};

use crate::{Error, Findings, Key, Settings, Store, Watch, work::Work};

/// Programs by name, each prepared when its first simulation starts.
pub(crate) struct Stages<'a> {
    found: &'a Findings,
    ready: BTreeMap<String, OnceLock<Result<Stage, String>>>,
}

impl<'a> Stages<'a> {
    /// Creates the stages of these points; prepares nothing yet.
    pub(crate) fn new(found: &'a Findings, points: &[Point]) -> Self {
        let ready = points.iter().map(|point| (point.program.clone(), OnceLock::new())).collect();
        Self { found, ready }
    }

    /// Simulates every point, one per core. Omits points without known memory and those left by an
    /// interruption. A program that sends nothing over its link is simulated over one link only.
    pub(crate) fn run(
        &self,
        points: &[Point],
        store: &Store,
        work: &Work<'_>,
    ) -> Result<BTreeMap<Point, Report>, Error> {
        let (first, others): (Vec<&Point>, Vec<&Point>) =
            points.iter().partition(|point| **point == over_first_link(point));
        let mut done = self.run_some(&first, &BTreeMap::new(), store, work)?;
        let more = self.run_some(&others, &done, store, work)?;
        done.extend(more);
        Ok(done)
    }

    fn run_some(
        &self,
        points: &[&Point],
        before: &BTreeMap<Point, Report>,
        store: &Store,
        work: &Work<'_>,
    ) -> Result<BTreeMap<Point, Report>, Error> {
        let one = |point: &&Point| {
            let Some(memory) = self.memory(&point.program) else { return Ok(None) };
            let key = key(point, &memory)?;
            let seconds = seconds(&self.found.settings, point);
            let same = before.get(&over_first_link(point)).filter(|report| sends_nothing(report));
            let make = || match same {
                Some(report) => Ok(Report { link: config(point)?.link.name, ..report.clone() }),
                None => self.simulate(point, work.watch()),
            };
            match work.record(&point.name(), seconds, store, &key, make) {
                Ok(report) => Ok(Some(((*point).clone(), report))),
                Err(Error::Interrupted) => Ok(None),
                Err(error) => Err(error),
            }
        };
        // One at a time from the front, so that the long ones, which are first, start at once.
        let done: Result<Vec<_>, Error> = points.par_iter().with_max_len(1).map(one).collect();
        Ok(done?.into_iter().flatten().collect())
    }

    /// Returns the points with known memory, each with the key of its result.
    pub(crate) fn keys<'p>(&self, points: &'p [Point]) -> Result<Vec<(&'p Point, Key)>, Error> {
        let known = points.iter().filter_map(|point| Some((point, self.memory(&point.program)?)));
        known.map(|(point, memory)| Ok((point, key(point, &memory)?))).collect()
    }

    /// Returns everything that decides the memory and kernels of a program; `None` if unknown.
    fn memory(&self, program: &str) -> Option<Value> {
        let settings = &self.found.settings;
        if PROGRAMS.contains(&program) {
            return Some(json!({ "bytes": generated_bytes(settings, program) }));
        }
        if let Some(recorded) = self.found.networks.get(program) {
            let instructions = settings.network_instructions;
            let sizes = format!("{:032x}", digest(json!(recorded.record.sizes).to_string().as_bytes()));
            return Some(
                json!({ "run": recorded.record.run.parameters, "sizes": sizes, "instructions": instructions }),
            );
        }
        let bytes = self.found.programs.get(program)?.profile.run.bytes();
        Some(json!({ "bytes": bytes, "seed": settings.seed }))
    }

    pub(crate) fn simulate(&self, point: &Point, watch: &dyn Watch) -> Result<Report, Error> {
        let stage = self.ready[&point.program].get_or_init(|| self.make(&point.program));
        let missing = |why: &String| Error::NoProgram { program: point.program.clone(), why: why.clone() };
        let stage = stage.as_ref().map_err(missing)?;
        let run =
            || Scenario::new(stage, point.clone(), &point.target_choice())?.run(&mut |_| watch.goes_on());
        let done = run().map_err(|source| Error::of_point(point, source))?;
        done.map(|done| done.report).ok_or(Error::Interrupted)
    }

    /// Rebuilds the program for its kernels, and binds the classes of its typical snapshot to them.
    fn make(&self, name: &str) -> Result<Stage, String> {
        let settings = &self.found.settings;
        if PROGRAMS.contains(&name) {
            return Ok(Stage::generated(name, generated_bytes(settings, name), None));
        }
        if let Some(recorded) = self.found.networks.get(name) {
            let stage = Stage::recorded(&recorded.record, settings.network_instructions);
            return stage.map_err(|error| error.to_string());
        }
        let info = ALL.iter().find(|info| info.name == name).ok_or("unknown program")?;
        let program = self.found.programs.get(name).ok_or("it was not run")?;
        let application = (info.build)(settings.bytes_of(info), settings.seed).application();
        Ok(Stage::of_classes(application, &program.classes, &program.profile))
    }
}

/// Returns the point with the link that is simulated first.
fn over_first_link(point: &Point) -> Point {
    let Point { link, .. } = Point::new(&point.program, point.mode);
    Point { link, ..point.clone() }
}

fn sends_nothing(report: &Report) -> bool {
    report.link_traffic.read_bytes == 0 && report.link_traffic.written_bytes == 0
}

fn config(point: &Point) -> Result<Config, Error> {
    point.config().map_err(|source| Error::of_point(point, source))
}

/// Returns the key of a point's result.
fn key(point: &Point, memory: &Value) -> Result<Key, Error> {
    let config = config(point)?;
    let shape = json!({
        "program": point.program, "gpu": point.gpu, "link": config.link.gb_per_s.round() as u64, "mode": point.mode,
        "metadata_bytes": point.metadata_bytes, "targets": point.targets,
        "oversubscription": point.oversubscription.as_percent().round() as u64,
    });
    let inputs = json!({
        "point": shape, "memory": memory, "gpu": config.gpu, "link": config.link,
        "policy": "allocation-16x", "codec": "bpc", "threshold": buddy_profile::DEFAULT_THRESHOLD,
    });
    Ok(Key { name: format!("simulation-{}-{}", point.program, point.mode.name()), inputs })
}

/// Returns the bytes of a generated program: more than the caches of any GPU, and for random
/// sectors many memory rows.
fn generated_bytes(settings: &Settings, name: &str) -> u64 {
    match (name, settings.name) {
        // At 64 MiB a third of the sectors hits in the L2 of an H200.
        ("random", "quick") => 256 << 20,
        ("random", _) => 512 << 20,
        (_, "quick") => 48 << 20,
        _ => 192 << 20,
    }
}

/// Simulated warp instructions per second and core, for networks.
const INSTRUCTIONS_PER_SECOND: f64 = 12e6;
/// Core seconds per megabyte of a generated program.
const GENERATED_SECONDS_PER_MB: f64 = 0.02;

/// Estimates the core seconds of a point.
pub(crate) fn seconds(settings: &Settings, point: &Point) -> f64 {
    if buddy_dl::Network::names().contains(&point.program.as_str()) {
        return settings.network_instructions as f64 / INSTRUCTIONS_PER_SECOND;
    }
    let (rate, bytes) = match ALL.iter().find(|info| info.name == point.program) {
        Some(info) => (info.simulated_seconds_per_mb, settings.bytes_of(info)),
        None => (GENERATED_SECONDS_PER_MB, generated_bytes(settings, &point.program)),
    };
    rate * bytes as f64 / 1e6
}
