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
}

/// What a simulation that ran to its end found.
#[derive(Debug)]
pub struct Done {
    /// Its cycles, and the traffic at every level of memory.
    pub report: Report,
    /// Counters over time, where the configuration asks for them.
    pub timeline: Option<Timeline>,
}

impl<'a> Scenario<'a> {
    /// Finds the machine and binds the targets to the program's memory; whatever is wrong is found here.
    ///
    /// # Errors
    /// A GPU, a link or targets that are none, or not this program's.
    pub fn new(stage: &'a Stage, point: Point, targets: &TargetChoice) -> Result<Self, Error> {
        let mut config = point.config()?;
        config.map = stage.map(targets, point.mode)?;
        Ok(Self { stage, point, config })
    }

    /// Runs it from its start; none if `keep_on` ended it early. It is asked once in a while.
    ///
    /// # Errors
    /// A kernel that the GPU cannot run, or a trace that is none.
    pub fn run(&self, keep_on: &mut dyn FnMut(&Simulator) -> bool) -> Result<Option<Done>, Error> {
        let mut simulator = Simulator::new(self.config.clone());
        let whole = self.stage.run(&mut simulator, keep_on)?;
        Ok(whole.then(|| Done { report: simulator.report(), timeline: simulator.timeline().cloned() }))
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
