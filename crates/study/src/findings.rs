//! Everything that figures are made from.

use std::collections::BTreeMap;

use buddy_core::Profile;
use buddy_dl::{Accuracy, NetworkInfo, PAPER, TODAY};
use buddy_sim::Report;
use buddy_workloads::{ALL, Info};

use crate::{Experiment, PUBLIC, Point, Program, Recorded, Settings, SpeedRow};

/// What is known so far. A figure is a function of this alone.
#[derive(Debug)]
pub struct Findings {
    /// How large the study is.
    pub settings: Settings,
    /// The HPC programs, by name.
    pub programs: BTreeMap<String, Program>,
    /// The recorded networks, by name.
    pub networks: BTreeMap<String, Recorded>,
    /// The paper's networks as Caffe holds them, by name.
    pub caffe: BTreeMap<String, Recorded>,
    /// Public programs that were watched, by name.
    pub public: BTreeMap<String, Recorded>,
    /// The result of every point that was simulated.
    pub reports: BTreeMap<Point, Report>,
    /// Accuracy by batch size, if it was recorded.
    pub accuracy: Option<Accuracy>,
    /// How fast the simulator is.
    pub speed: Vec<SpeedRow>,
}

/// One of the paper's sixteen workloads.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its name on the command line and in records.
    pub name: &'static str,
    /// The name that figures show: the paper's.
    pub label: &'static str,
    /// Whether it is one of the HPC programs; the others are deep learning.
    pub hpc: bool,
    /// Bytes that the paper has.
    pub paper_bytes: u64,
    /// Its memory; none where it was not recorded.
    pub profile: Option<&'a Profile>,
}

impl Findings {
    /// A study of which nothing is known yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            programs: BTreeMap::new(),
            networks: BTreeMap::new(),
            caffe: BTreeMap::new(),
            public: BTreeMap::new(),
            reports: BTreeMap::new(),
            accuracy: None,
            speed: Vec::new(),
        }
    }

    /// The ten HPC programs.
    pub fn hpc(&self) -> Vec<Subject<'_>> {
        let subject = |info: &Info| {
            let profile = self.programs.get(info.name).map(|program| &program.profile);
            let Info { name, paper_name: label, paper_bytes, .. } = *info;
            Subject { name, label, hpc: true, paper_bytes, profile }
        };
        ALL.iter().map(subject).collect()
    }

    /// The public program that computes what one of our ten does.
    pub fn twin(&self, name: &str) -> Option<&Profile> {
        let twin = PUBLIC.iter().find(|info| info.twin == Some(name))?;
        self.public.get(twin.name).map(|recorded| &recorded.profile)
    }

    /// One of the paper's networks as Caffe holds it.
    pub fn in_caffe(&self, name: &str) -> Option<&Profile> {
        self.caffe.get(name).map(|recorded| &recorded.profile)
    }

    /// The paper's six networks, recorded or not.
    pub fn dl(&self) -> Vec<Subject<'_>> {
        let subject = |&NetworkInfo { name, label, paper_bytes, .. }: &NetworkInfo| {
            let profile = self.networks.get(name).map(|recorded| &recorded.profile);
            Subject { name, label, hpc: false, paper_bytes, profile }
        };
        PAPER.iter().map(subject).collect()
    }

    /// All sixteen, in the paper's order.
    pub fn subjects(&self) -> Vec<Subject<'_>> {
        self.hpc().into_iter().chain(self.dl()).collect()
    }

    /// What an experiment looks at and an interruption left undone: programs, simulations, speed.
    pub(crate) fn unfinished(&self, experiment: &dyn Experiment) -> Vec<String> {
        let mut gone = Vec::new();
        if experiment.needs_programs() {
            let programs: Vec<&str> =
                self.hpc().iter().filter(|one| one.profile.is_none()).map(|one| one.label).collect();
            if !programs.is_empty() {
                gone.push(format!("Programs that did not run: {}.", programs.join(", ")));
            }
        }
        let points = experiment.points(self);
        let mut undone: BTreeMap<&str, usize> = BTreeMap::new();
        for point in points.iter().filter(|point| self.is_pending(point)) {
            *undone.entry(&point.program).or_default() += 1;
        }
        if !undone.is_empty() {
            let names: Vec<String> = undone.iter().map(|(name, count)| format!("{name} ({count})")).collect();
            let count: usize = undone.values().sum();
            gone.push(format!("{count} of {} simulations: {}.", points.len(), names.join(", ")));
        }
        if experiment.needs_speed() && self.speed.is_empty() {
            gone.push("The speed of the simulator.".to_owned());
        }
        gone
    }

    /// Whether a point can be simulated and was not. A network without a record never can.
    fn is_pending(&self, point: &Point) -> bool {
        let unknown = PAPER.iter().chain(&TODAY).any(|network| network.name == point.program)
            && !self.networks.contains_key(&point.program);
        !unknown && !self.reports.contains_key(point)
    }

    /// A sentence for each network that was not recorded.
    pub fn missing(&self) -> Vec<String> {
        let gone = self.dl().into_iter().filter(|subject| subject.profile.is_none());
        let names: Vec<&str> = gone.map(|subject| subject.label).collect();
        if names.is_empty() { Vec::new() } else { vec![format!("Not recorded: {}.", names.join(", "))] }
    }
}
