//! One simulation: a program on a machine, with its targets.

use buddy_sim::{Config, Report, Simulator, Timeline};
use serde_json::{Value, json};

use crate::{Error, Point, Stage, TargetChoice};

/// A simulation that is ready to run.
pub struct Scenario<'a> {
    /// The program and its memory.
    pub stage: &'a Stage,
    /// What was asked for.
    pub point: Point,
    /// What that is for the simulator, with the map of the program's memory.
    pub config: Config,
    targets: TargetChoice,
    /// Stored bytes that changes of targets copy before it begins.
    changed_bytes: u64,
}

/// What a simulation that ran to its end found.
#[derive(Debug)]
pub struct Done {
    /// Its cycles, and the traffic at every level of memory.
    pub report: Report,
    /// Counters over time, where the configuration asks for them.
    pub timeline: Option<Timeline>,
    /// Rows of the file of targets that are for nothing in the program, in words: names that no allocation has, and
    /// addresses that no access reached.
    pub unmatched: Vec<String>,
}

impl<'a> Scenario<'a> {
    /// Finds the machine and binds the targets to the program's memory; whatever is wrong is found here.
    ///
    /// # Errors
    /// A GPU, a link or targets that are none, or not this program's.
    pub fn new(stage: &'a Stage, point: Point, targets: &TargetChoice) -> Result<Self, Error> {
        let mut config = point.config()?;
        config.map = stage.map(targets, point.mode)?;
        let changed_bytes = stage.changed_bytes(targets, point.mode)?;
        Ok(Self { stage, point, config, targets: targets.clone(), changed_bytes })
    }

    /// Runs it from its start; none if `keep_on` ended it early. It is asked once in a while.
    ///
    /// # Errors
    /// A kernel that the GPU cannot run, or a trace that is none.
    pub fn run(&self, keep_on: &mut dyn FnMut(&Simulator) -> bool) -> Result<Option<Done>, Error> {
        let mut simulator = Simulator::new(self.config.clone());
        simulator.change(self.changed_bytes);
        let whole = self.stage.run(&mut simulator, keep_on)?;
        Ok(whole.then(|| Done {
            report: simulator.report(),
            timeline: simulator.timeline().cloned(),
            unmatched: self.stage.unmatched(&self.targets, &simulator),
        }))
    }

    /// What decides the result, as a record names it; `what` is the program in words.
    pub fn spec(&self, what: &str) -> Value {
        let Config { gpu, link, mode, oversubscription, timed_copies, .. } = &self.config;
        json!({
            "what": what, "gpu": gpu, "link": link, "mode": mode, "targets": self.point.targets,
            "oversubscription": oversubscription, "timed_copies": timed_copies,
        })
    }
}
