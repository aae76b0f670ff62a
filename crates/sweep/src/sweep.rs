//! A sweep and its store: the programs to run first, and the points.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
};

use buddy_profile::{DEFAULT_THRESHOLD, Tried};
use buddy_record::RunRecord;
use buddy_scenario::{Ask, Case, Error as Wrong, Input, Scenario, Stage, observe};
use rayon::prelude::*;
use serde_json::Value;

use crate::{Error, Key, Outcome, Points, Store, Tasks, Watch};

/// Maximum number of prepared stages. Points are ordered by program, so few are needed.
const READY: usize = 8;

/// A plan and the store of its results.
pub struct Sweep {
    points: Points,
    store: Store,
    /// Workloads whose memory is needed, each with its settings.
    runs: Vec<(Key, Input)>,
    /// Prepared programs, by combination and whether their data is needed.
    stages: Mutex<BTreeMap<(usize, bool), Ready>>,
}

/// A program prepared once, by whichever thread is first.
type Ready = Arc<OnceLock<Result<Stage, String>>>;

impl Sweep {
    /// Creates a sweep over its store.
    ///
    /// # Errors
    /// An unknown program.
    pub fn new(points: Points, store: Store) -> Result<Self, Error> {
        let mut inputs: Vec<usize> = (0..points.len())
            .filter(|point| points.is_compressed(*point))
            .map(|point| points.input(point))
            .collect();
        inputs.dedup();
        let mut runs: Vec<(Key, Input)> = Vec::new();
        for input in inputs.into_iter().map(|input| points.input_case(input)) {
            let Some(key) = run_key(&input)? else { continue };
            if !runs.iter().any(|(other, _)| *other == key) {
                runs.push((key, input));
            }
        }
        Ok(Self { points, store, runs, stages: Mutex::default() })
    }

    /// Returns its points.
    pub fn points(&self) -> &Points {
        &self.points
    }

    /// Returns the store of its results.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the programs to run first, as tasks.
    pub fn run_tasks(&self) -> RunTasks<'_> {
        RunTasks(self)
    }

    /// Returns the points as tasks.
    pub fn point_tasks(&self) -> PointTasks<'_> {
        PointTasks(self)
    }

    /// Returns the result of a point if it exists and is complete.
    pub fn outcome(&self, point: usize) -> Option<Outcome> {
        self.store.load(&self.points.key(point)).map(|record| record.data)
    }

    /// Removes incomplete records of points, so that they are made again; returns their number.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn remove_broken(&self) -> Result<usize, Error> {
        let kept = self.store.points();
        let there =
            (0..self.points.len()).into_par_iter().filter(|point| kept.contains(&self.points.digest(*point)));
        let broken: Vec<usize> = there.filter(|point| self.outcome(*point).is_none()).collect();
        broken.iter().try_for_each(|point| self.store.remove(&self.points.key(*point)))?;
        Ok(broken.len())
    }

    /// Estimates the bytes of the largest program.
    pub fn footprint(&self) -> u64 {
        let inputs = (0..self.points.len()).map(|point| self.points.input(point));
        let mut last = None;
        let changes = inputs.filter(|input| last.replace(*input) != Some(*input));
        changes.map(|input| self.points.input_case(input).footprint()).max().unwrap_or(0)
    }

    fn simulate(&self, point: usize, watch: &dyn Watch) -> Result<bool, String> {
        let case = self.points.case(point);
        let ready = self.ready(self.points.input(point), case.is_compressed());
        let stage = ready.get_or_init(|| self.stage(&case)).as_ref().map_err(Clone::clone)?;
        let targets = case.point.target_choice();
        let scenario = Scenario::new(stage, case.point, &targets).map_err(said)?;
        let Some(done) = scenario.run(&mut |_| watch.goes_on()).map_err(said)? else { return Ok(false) };
        self.store.save(&self.points.key(point), Outcome::new(&scenario, done.report)).map_err(said)?;
        Ok(true)
    }

    /// Returns the slot of a program; drops earlier ones once there are many.
    fn ready(&self, input: usize, compressed: bool) -> Ready {
        let mut stages = self.stages.lock().expect("no thread panics while holding the lock");
        while stages.len() > READY {
            stages.pop_first();
        }
        stages.entry((input, compressed)).or_default().clone()
    }

    fn stage(&self, case: &Case) -> Result<Stage, String> {
        let key = run_key(&case.input).map_err(said)?.filter(|_| case.is_compressed());
        let run = match key {
            Some(key) => Some(self.run(&key, &case.input, &crate::NoWatch)?.ok_or("interrupted")?),
            None => None,
        };
        case.input.stage(case.is_compressed(), run.as_ref()).map_err(said)
    }

    /// Returns the record of a workload's run, from the store or by running it.
    fn run(&self, key: &Key, input: &Input, watch: &dyn Watch) -> Result<Option<RunRecord>, String> {
        if let Some(record) = self.store.load(key) {
            return Ok(Some(record.data));
        }
        let Some((info, bytes)) = input.workload().map_err(said)? else { return Ok(None) };
        let tried = Tried { kinds: vec![input.codec], auto: false, threshold: DEFAULT_THRESHOLD };
        let ask = Ask { info, bytes, seed: input.seed, tried, tables: &[], snapshot: None };
        match observe(&ask, |_| watch.goes_on()) {
            Ok(observed) => {
                let record = self.store.save(key, observed.measured.to_record()).map_err(said)?;
                Ok(Some(record.data))
            }
            Err(Wrong::Interrupted) => Ok(None),
            Err(error) => Err(said(error)),
        }
    }
}

/// Returns the key of a workload's run; `None` for programs that are not run first.
fn run_key(input: &Input) -> Result<Option<Key>, Error> {
    let key = |inputs: Value| Key { name: format!("run-{}", input.program), inputs };
    Ok(input.run_spec()?.map(key))
}

/// Formats an error with its causes on one line.
fn said(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// The programs of a sweep whose memory is measured, each run once.
pub struct RunTasks<'a>(&'a Sweep);

impl Tasks for RunTasks<'_> {
    fn len(&self) -> usize {
        self.0.runs.len()
    }

    fn name(&self, task: usize) -> String {
        format!("run of {}", self.0.runs[task].1.program)
    }

    fn digest(&self, task: usize) -> u128 {
        self.0.runs[task].0.digest()
    }

    fn seconds(&self, task: usize) -> f64 {
        self.0.runs[task].1.run_seconds()
    }

    fn done(&self) -> Vec<bool> {
        (0..self.len()).map(|task| self.is_done(task)).collect()
    }

    fn is_done(&self, task: usize) -> bool {
        self.0.store.has(&self.0.runs[task].0)
    }

    fn run(&self, task: usize, watch: &dyn Watch) -> Result<bool, String> {
        let (key, input) = &self.0.runs[task];
        Ok(self.0.run(key, input, watch)?.is_some())
    }
}

/// The points of a sweep.
pub struct PointTasks<'a>(&'a Sweep);

impl Tasks for PointTasks<'_> {
    fn len(&self) -> usize {
        self.0.points.len()
    }

    fn name(&self, task: usize) -> String {
        self.0.points.case(task).point.name()
    }

    fn digest(&self, task: usize) -> u128 {
        self.0.points.digest(task)
    }

    fn seconds(&self, task: usize) -> f64 {
        self.0.points.seconds(task)
    }

    fn done(&self) -> Vec<bool> {
        let kept = self.0.store.points();
        (0..self.len()).map(|task| kept.contains(&self.digest(task))).collect()
    }

    fn is_done(&self, task: usize) -> bool {
        self.0.store.has(&self.0.points.key(task))
    }

    fn run(&self, task: usize, watch: &dyn Watch) -> Result<bool, String> {
        self.0.simulate(task, watch)
    }
}
