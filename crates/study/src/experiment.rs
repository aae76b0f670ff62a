//! The interface of experiments, and their list.

use buddy_record::{Figure, Origin, Quantity, Unit};

use crate::{Findings, Point, figures};

/// One figure or table.
pub trait Experiment: Sync {
    /// Returns its name and texts, which do not depend on results.
    fn about(&self) -> About;

    /// Returns whether it needs the memory of the HPC programs.
    fn needs_programs(&self) -> bool {
        true
    }

    /// Returns whether it needs the programs with less memory.
    fn needs_smaller(&self) -> bool {
        false
    }

    /// Returns the simulations that it needs.
    fn points(&self, _found: &Findings) -> Vec<Point> {
        Vec::new()
    }

    /// Returns whether it shows the speed of the simulator.
    fn needs_speed(&self) -> bool {
        false
    }

    /// Draws the figure from the results.
    fn draw(&self, found: &Findings) -> Figure;
}

/// Description of an experiment.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Its name, for `--only`.
    pub name: &'static str,
    /// Short title.
    pub title: &'static str,
    /// Place in the paper.
    pub place: &'static str,
    /// Caption.
    pub text: &'static str,
}

impl About {
    /// Returns an empty figure with these texts.
    pub fn figure(&self) -> Figure {
        Figure {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            place: self.place.to_owned(),
            text: self.text.to_owned(),
            ..Figure::default()
        }
    }
}

/// All experiments, in the paper's order and then beyond it.
pub const EXPERIMENTS: &[&dyn Experiment] = &[
    &figures::Workloads,
    &figures::OverTime,
    &figures::Metadata,
    &figures::Spatial,
    &figures::Optimisations,
    &figures::Iteration,
    &figures::Thresholds,
    &figures::Design,
    &figures::SimulatorSpeed,
    &figures::Performance,
    &figures::UnifiedMemory,
    &figures::Footprints,
    &figures::Throughput,
    &figures::Speedup,
    &figures::Training,
    &figures::Smaller,
    &figures::Claims,
    &figures::Results,
    &figures::Codecs,
    &figures::Pages,
    &figures::Public,
    &figures::Fit,
    &figures::Networks,
    &figures::Roles,
    &figures::NetworkMaps,
];

/// Creates a quantity: a number stated by the paper, and ours.
pub(crate) fn quantity(name: &str, unit: Unit, paper: f64, ours: Option<f64>, place: &str) -> Quantity {
    Quantity {
        name: name.to_owned(),
        unit,
        paper,
        ours: ours.filter(|ours| ours.is_finite()),
        place: place.to_owned(),
        headline: false,
        deviation: None,
        origin: None,
    }
}

/// Creates a quantity for the headlines.
pub(crate) fn headline(name: &str, unit: Unit, paper: f64, ours: Option<f64>, place: &str) -> Quantity {
    Quantity { headline: true, ..quantity(name, unit, paper, ours, place) }
}

/// Attaches the deviation that explains a difference, and the origin of ours.
pub(crate) trait Explained {
    fn explained(self, deviation: u32) -> Self;
    fn made(self, origin: Origin) -> Self;
    /// Marks a mean over the programs, which this run measures, or over the recorded networks.
    fn of_group(self, hpc: bool) -> Self;
}

impl Explained for Quantity {
    fn explained(self, deviation: u32) -> Self {
        Self { deviation: Some(deviation), ..self }
    }

    fn made(self, origin: Origin) -> Self {
        Self { origin: Some(origin), ..self }
    }

    fn of_group(self, hpc: bool) -> Self {
        self.made(if hpc { Origin::Measured } else { Origin::Recorded })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = EXPERIMENTS.iter().map(|one| one.about().name).collect();
        assert_eq!(names.len(), EXPERIMENTS.len());
    }
}
