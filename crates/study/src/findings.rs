//! Everything that figures are made from.

use std::collections::BTreeMap;

use buddy_core::Profile;
use buddy_dl::Accuracy;
use buddy_sim::Report;
use buddy_workloads::ALL;

use crate::{NETWORKS, Point, Program, Recorded, Settings, SpeedRow};

/// What is known so far. A figure is a function of this alone.
#[derive(Debug)]
pub struct Findings {
    /// How large the study is.
    pub settings: Settings,
    /// The HPC programs, by name.
    pub programs: BTreeMap<String, Program>,
    /// The recorded networks, by name.
    pub networks: BTreeMap<String, Recorded>,
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
            reports: BTreeMap::new(),
            accuracy: None,
            speed: Vec::new(),
        }
    }

    /// The ten HPC programs.
    pub fn hpc(&self) -> Vec<Subject<'_>> {
        let subject = |info: &buddy_workloads::Info| Subject {
            name: info.name,
            label: info.paper_name,
            hpc: true,
            paper_bytes: info.paper_bytes,
            profile: self.programs.get(info.name).map(|program| &program.profile),
        };
        ALL.iter().map(subject).collect()
    }

    /// The paper's six networks, recorded or not.
    pub fn dl(&self) -> Vec<Subject<'_>> {
        let subject = |network: &crate::Network| Subject {
            name: network.name,
            label: network.label,
            hpc: false,
            paper_bytes: network.paper_bytes,
            profile: self.networks.get(network.name).map(|recorded| &recorded.profile),
        };
        NETWORKS.iter().map(subject).collect()
    }

    /// All sixteen, in the paper's order.
    pub fn subjects(&self) -> Vec<Subject<'_>> {
        self.hpc().into_iter().chain(self.dl()).collect()
    }

    /// A sentence for each network that was not recorded.
    pub fn missing(&self) -> Vec<String> {
        let gone = self.dl().into_iter().filter(|subject| subject.profile.is_none());
        let names: Vec<&str> = gone.map(|subject| subject.label).collect();
        if names.is_empty() { Vec::new() } else { vec![format!("Not recorded: {}.", names.join(", "))] }
    }
}
