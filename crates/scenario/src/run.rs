//! One simulation: a program on a machine, with its targets.

use buddy_sim::{Config, Report, Simulator, Timeline};
use serde_json::{Value, json};

use crate::{Error, Point, Stage, TargetChoice};

/// A simulation ready to run.
pub struct Scenario<'a> {
    /// The program and its memory.
    pub stage: &'a Stage,
    /// The requested settings.
    pub point: Point,
    /// The simulator's configuration, with the map of the program's memory.
    pub config: Config,
    targets: TargetChoice,
    /// Stored bytes that target changes copy before the start.
    changed_bytes: u64,
}

/// Result of a completed simulation.
#[derive(Debug)]
pub struct Done {
    /// Cycles, and traffic at every level of memory.
    pub report: Report,
    /// Counters over time, if configured.
    pub timeline: Option<Timeline>,
    /// Rows of the targets file that match nothing: unknown allocation names, and addresses without
    /// accesses.
    pub unmatched: Vec<String>,
}

impl<'a> Scenario<'a> {
    /// Configures the machine and binds the targets to the program's memory.
    ///
    /// # Errors
    /// An unknown GPU or link, or targets that are invalid or not for this program.
    pub fn new(stage: &'a Stage, point: Point, targets: &TargetChoice) -> Result<Self, Error> {
        let mut config = point.config()?;
        config.map = stage.map(targets, point.mode)?;
        let changed_bytes = stage.changed_bytes(targets, point.mode)?;
        Ok(Self { stage, point, config, targets: targets.clone(), changed_bytes })
    }

    /// Runs from the start; `None` if `keep_on`, which is called periodically, returned false.
    ///
    /// # Errors
    /// A kernel that the GPU cannot run, or an invalid trace.
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

    /// Returns the settings that decide the result, for a record; `what` describes the program.
    pub fn spec(&self, what: &str) -> Value {
        let Config { gpu, link, mode, oversubscription, timed_copies, .. } = &self.config;
        json!({
            "what": what, "gpu": gpu, "link": link, "mode": mode, "targets": self.point.targets,
            "oversubscription": oversubscription, "timed_copies": timed_copies,
        })
    }
}
