//! What an experiment is, and the list of them.

use buddy_core::{Figure, Quantity, Unit};

use crate::{Findings, Point, figures};

/// One figure or table.
pub trait Experiment: Sync {
    /// Its name and its words, which do not depend on what was found.
    fn about(&self) -> About;

    /// Whether it looks at the memory of the HPC programs.
    fn needs_programs(&self) -> bool {
        true
    }

    /// The simulations that it looks at, of the memory that was found.
    fn points(&self, _found: &Findings) -> Vec<Point> {
        Vec::new()
    }

    /// Whether it shows the speed of the simulator.
    fn needs_speed(&self) -> bool {
        false
    }

    /// Makes the figure of what was found.
    fn draw(&self, found: &Findings) -> Figure;
}

/// What an experiment is.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Its name, for `--only`.
    pub name: &'static str,
    /// What it shows, in a few words.
    pub title: &'static str,
    /// Where the paper has it.
    pub place: &'static str,
    /// What to see in it.
    pub text: &'static str,
}

impl About {
    /// A figure with nothing in it yet.
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

/// Every experiment, in the paper's order and then beyond it.
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
    &figures::Results,
    &figures::Codecs,
    &figures::Pages,
    &figures::Public,
    &figures::Fit,
    &figures::Networks,
    &figures::Roles,
    &figures::NetworkMaps,
];

/// A number that the paper states, beside ours.
pub(crate) fn quantity(name: &str, unit: Unit, paper: f64, ours: Option<f64>, place: &str) -> Quantity {
    Quantity {
        name: name.to_owned(),
        unit,
        paper,
        ours: ours.filter(|ours| ours.is_finite()),
        place: place.to_owned(),
        headline: false,
        deviation: None,
    }
}

/// The same, among the first that a reader sees.
pub(crate) fn headline(name: &str, unit: Unit, paper: f64, ours: Option<f64>, place: &str) -> Quantity {
    Quantity { headline: true, ..quantity(name, unit, paper, ours, place) }
}

/// Names the deviation that explains it.
pub(crate) trait Explained {
    fn explained(self, deviation: u32) -> Self;
}

impl Explained for Quantity {
    fn explained(self, deviation: u32) -> Self {
        Self { deviation: Some(deviation), ..self }
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
