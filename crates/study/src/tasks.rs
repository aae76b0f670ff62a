//! The study as tasks of an engine: programs first, then simulations.

use buddy_record::RecordKind;
use buddy_sweep::{
    Shard, Tasks, Tries, local, shards,
    slurm::{self, Cluster, Phase},
};
use buddy_workloads::{ALL, Info};

use crate::{Error, Key, Point, Settings, Store, Watch, program, simulate::Stages};

/// Where the work of a study runs.
#[derive(Debug, Clone, Default)]
pub enum Engine {
    /// On this machine, all of it.
    #[default]
    Local,
    /// On this machine, one shard without drawing figures.
    Shard {
        /// Index and number of shards.
        shard: Shard,
        /// True to run the programs only, false for the simulations only.
        programs: bool,
        /// Simulations in parallel.
        threads: usize,
        /// Attempts before a task is given up.
        attempts: u32,
    },
    /// As Slurm jobs.
    Slurm {
        /// The jobs.
        cluster: Box<Cluster>,
        /// Command line of a job without its shard and without `--programs`.
        arguments: Vec<String>,
        /// Attempts before a task is given up.
        attempts: u32,
    },
}

impl Engine {
    /// Returns whether it draws no figures.
    pub(crate) fn is_shard(&self) -> bool {
        matches!(self, Self::Shard { .. })
    }

    /// Returns whether it ends after the programs.
    pub(crate) fn is_shard_of_programs(&self) -> bool {
        matches!(self, Self::Shard { programs: true, .. })
    }

    /// Runs tasks as jobs or as a shard. The local engine computes on demand instead.
    ///
    /// # Errors
    /// [`Error::GivenUp`] for tasks that always fail, or an error of the engine.
    pub(crate) fn run(
        &self,
        tasks: &dyn Tasks,
        store: &Store,
        is_programs: bool,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        let summary = match self {
            Self::Local => return Ok(()),
            Self::Shard { programs, .. } if *programs != is_programs => return Ok(()),
            Self::Shard { shard, threads, attempts, .. } => {
                let chosen = shards(tasks, shard.of).swap_remove(shard.number - 1);
                let settings =
                    local::Settings { threads: if is_programs { 1 } else { *threads }, attempts: *attempts };
                local::run(tasks, chosen, &Tries::of(store)?, settings, watch)?
            }
            Self::Slurm { cluster, arguments, attempts } => {
                let more = is_programs.then(|| "--programs".to_owned());
                let phase = Phase { tasks, arguments: arguments.iter().cloned().chain(more).collect() };
                slurm::collect(cluster, &[phase], &Tries::of(store)?, *attempts, watch)?
            }
        };
        match (summary.failed.first(), summary.interrupted) {
            (_, true) => Err(Error::Interrupted),
            (Some(first), _) => Err(Error::GivenUp {
                count: summary.failed.len(),
                name: first.name.clone(),
                why: first.why.clone(),
            }),
            (None, false) => Ok(()),
        }
    }
}

/// The runs of programs.
pub(crate) struct ProgramTasks<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
}

impl ProgramTasks<'_> {
    fn key(&self, task: usize) -> Key {
        self.settings.program_key(&ALL[task])
    }
}

impl Tasks for ProgramTasks<'_> {
    fn len(&self) -> usize {
        ALL.len()
    }

    fn name(&self, task: usize) -> String {
        ALL[task].name.to_owned()
    }

    fn digest(&self, task: usize) -> u128 {
        self.key(task).digest()
    }

    fn seconds(&self, task: usize) -> f64 {
        let info: &Info = &ALL[task];
        info.seconds_per_mb * self.settings.bytes_of(info) as f64 / 1e6
    }

    fn done(&self) -> Vec<bool> {
        (0..self.len()).map(|task| self.is_done(task)).collect()
    }

    fn is_done(&self, task: usize) -> bool {
        self.store.has(&self.key(task))
    }

    fn run(&self, task: usize, watch: &dyn Watch) -> Result<bool, String> {
        kept(program::observe(self.settings, &ALL[task], watch), self.store, &self.key(task))
    }
}

/// The simulations, each with its key.
pub(crate) struct PointTasks<'a> {
    pub(crate) stages: &'a Stages<'a>,
    pub(crate) points: Vec<(&'a Point, Key)>,
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
}

impl Tasks for PointTasks<'_> {
    fn len(&self) -> usize {
        self.points.len()
    }

    fn name(&self, task: usize) -> String {
        self.points[task].0.name()
    }

    fn digest(&self, task: usize) -> u128 {
        self.points[task].1.digest()
    }

    fn seconds(&self, task: usize) -> f64 {
        crate::simulate::seconds(self.settings, self.points[task].0)
    }

    fn done(&self) -> Vec<bool> {
        (0..self.len()).map(|task| self.is_done(task)).collect()
    }

    fn is_done(&self, task: usize) -> bool {
        self.store.has(&self.points[task].1)
    }

    fn run(&self, task: usize, watch: &dyn Watch) -> Result<bool, String> {
        let (point, key) = &self.points[task];
        kept(self.stages.simulate(point, watch), self.store, key)
    }
}

/// Saves a result; returns false if it was interrupted.
fn kept<T: RecordKind>(made: Result<T, Error>, store: &Store, key: &Key) -> Result<bool, String> {
    match made {
        Ok(made) => store.save(key, made).map(|_| true).map_err(|error| error.to_string()),
        Err(Error::Interrupted) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}
