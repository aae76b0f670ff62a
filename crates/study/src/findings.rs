//! The data that figures are made from.

use std::collections::BTreeMap;

use buddy_dl::{Accuracy, NetworkInfo, PAPER, TODAY};
use buddy_record::Profile;
use buddy_sim::Report;
use buddy_workloads::{ALL, Info};

use crate::{Experiment, PUBLIC, Point, Program, Recorded, Settings, SpeedRow};

/// PyTorch's tensors at batches of 16 to 128 on a CPU: every sixteenth page, with the codecs that the
/// paper compares and both readings of BPC.
pub(crate) const CPU: &str = "cpu";
/// The same in Caffe's layout.
pub(crate) const CPU_CAFFE: &str = "cpu-caffe";
/// As [`CPU`] at a sixth to an eighth of the batch, every eighth page.
pub(crate) const CPU_SMALL: &str = "cpu-small";
/// `bt` with NAS class A, 64 cells to a side, and with the paper's footprint, 101 cells, each with the
/// paper's codec.
pub(crate) const CLASSES: &str = "classes";

/// All results so far. A figure is a function of this alone.
#[derive(Debug)]
pub struct Findings {
    /// Scale and seed of the study.
    pub settings: Settings,
    /// False if the study shows recorded simulations only.
    pub simulates: bool,
    /// The HPC programs, by name.
    pub programs: BTreeMap<String, Program>,
    /// The same with an eighth of the memory and the paper's codec only.
    pub smaller: BTreeMap<String, Program>,
    /// The recorded networks, by name.
    pub networks: BTreeMap<String, Recorded>,
    /// The paper's networks in Caffe's layout, by name.
    pub caffe: BTreeMap<String, Recorded>,
    /// Other records of the paper's networks, by set and name.
    pub sets: BTreeMap<&'static str, BTreeMap<String, Recorded>>,
    /// Recorded public programs, by name.
    pub public: BTreeMap<String, Recorded>,
    /// The report of every simulated point.
    pub reports: BTreeMap<Point, Report>,
    /// Accuracy by batch size, if recorded.
    pub accuracy: Option<Accuracy>,
    /// Speed of the simulator.
    pub speed: Vec<SpeedRow>,
}

/// One of the paper's sixteen workloads.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its name on the command line and in records.
    pub name: &'static str,
    /// Label in figures: the paper's name.
    pub label: &'static str,
    /// True for an HPC program, false for deep learning.
    pub hpc: bool,
    /// Footprint in the paper, in bytes.
    pub paper_bytes: u64,
    /// Profile of its memory; `None` if not recorded.
    pub profile: Option<&'a Profile>,
}

impl Findings {
    /// Creates a study without results.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            simulates: true,
            programs: BTreeMap::new(),
            smaller: BTreeMap::new(),
            networks: BTreeMap::new(),
            caffe: BTreeMap::new(),
            sets: BTreeMap::new(),
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

    /// Returns the public program that matches one of our ten.
    pub fn twin(&self, name: &str) -> Option<&Profile> {
        let twin = PUBLIC.iter().find(|info| info.twin == Some(name))?;
        self.public.get(twin.name).map(|recorded| &recorded.profile)
    }

    /// Returns one of the paper's networks in Caffe's layout.
    pub fn in_caffe(&self, name: &str) -> Option<&Profile> {
        self.caffe.get(name).map(|recorded| &recorded.profile)
    }

    /// Returns one of the paper's networks in another set of records.
    pub fn in_set(&self, set: &str, name: &str) -> Option<&Profile> {
        self.sets.get(set)?.get(name).map(|recorded| &recorded.profile)
    }

    /// Returns the paper's six networks, recorded or not.
    pub fn dl(&self) -> Vec<Subject<'_>> {
        let subject = |&NetworkInfo { name, label, paper_bytes, .. }: &NetworkInfo| {
            let profile = self.networks.get(name).map(|recorded| &recorded.profile);
            Subject { name, label, hpc: false, paper_bytes, profile }
        };
        PAPER.iter().map(subject).collect()
    }

    /// Returns all sixteen, in the paper's order.
    pub fn subjects(&self) -> Vec<Subject<'_>> {
        self.hpc().into_iter().chain(self.dl()).collect()
    }

    /// Returns what an interruption left undone of an experiment: programs, simulations, speed.
    pub(crate) fn unfinished(&self, experiment: &dyn Experiment) -> Vec<String> {
        let mut gone = Vec::new();
        if experiment.needs_programs() {
            let programs: Vec<&str> =
                self.hpc().iter().filter(|one| one.profile.is_none()).map(|one| one.label).collect();
            if !programs.is_empty() {
                gone.push(format!("Programs that did not run: {}.", programs.join(", ")));
            }
        }
        let points = if self.simulates { experiment.points(self) } else { Vec::new() };
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

    /// Returns whether a point can be simulated and was not. A network without a record cannot be.
    fn is_pending(&self, point: &Point) -> bool {
        let unknown = PAPER.iter().chain(&TODAY).any(|network| network.name == point.program)
            && !self.networks.contains_key(&point.program);
        !unknown && !self.reports.contains_key(point)
    }

    /// Returns a sentence for each network that was not recorded.
    pub fn missing(&self) -> Vec<String> {
        let gone = self.dl().into_iter().filter(|subject| subject.profile.is_none());
        let names: Vec<&str> = gone.map(|subject| subject.label).collect();
        if names.is_empty() { Vec::new() } else { vec![format!("Not recorded: {}.", names.join(", "))] }
    }
}
