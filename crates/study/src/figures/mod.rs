//! One file per figure or table.

mod caffe;
mod claims;
mod codecs;
mod fig10_simulator;
mod fig11_performance;
mod fig12_unified_memory;
mod fig13_training;
mod fig3_over_time;
mod fig5_metadata;
mod fig6_spatial;
mod fig7_optimisations;
mod fig8_iteration;
mod fig9_thresholds;
mod fit;
#[cfg(test)]
pub(crate) mod made;
mod networks;
mod pages;
mod public;
mod results;
mod roles;
mod smaller;
mod table1_workloads;
mod table2_design;

pub use claims::Claims;
pub use codecs::Codecs;
pub use fig3_over_time::OverTime;
pub use fig5_metadata::Metadata;
pub use fig6_spatial::Spatial;
pub use fig7_optimisations::Optimisations;
pub use fig8_iteration::Iteration;
pub use fig9_thresholds::Thresholds;
pub use fig10_simulator::SimulatorSpeed;
pub use fig11_performance::Performance;
pub use fig12_unified_memory::UnifiedMemory;
pub use fig13_training::{Footprints, Speedup, Throughput, Training};
pub use fit::Fit;
pub use networks::{NetworkMaps, Networks};
pub use pages::Pages;
pub use public::Public;
pub use results::Results;
pub use roles::Roles;
pub use smaller::Smaller;
pub use table1_workloads::Workloads;
pub use table2_design::Design;

use buddy_record::{AxisInfo, Chart, Panel, Profile, SeriesInfo, Shape, Unit};

use crate::{Subject, geometric};

/// A column of numbers for all subjects, followed by the means of HPC programs and networks.
struct Column {
    values: Vec<Option<f64>>,
    hpc: Option<f64>,
    dl: Option<f64>,
}

impl Column {
    /// Maps each profile to a number; `mean` combines them.
    fn new(
        subjects: &[Subject<'_>],
        value: impl Fn(&Profile) -> Option<f64>,
        mean: fn(Vec<f64>) -> Option<f64>,
    ) -> Self {
        Self::of(subjects, |subject| subject.profile.and_then(&value), mean)
    }

    /// Maps each subject to a number.
    fn of(
        subjects: &[Subject<'_>],
        value: impl Fn(&Subject<'_>) -> Option<f64>,
        mean: fn(Vec<f64>) -> Option<f64>,
    ) -> Self {
        let values: Vec<Option<f64>> = subjects.iter().map(value).collect();
        let of = |hpc: bool| {
            let known = subjects.iter().zip(&values).filter(|(subject, _)| subject.hpc == hpc);
            mean(known.filter_map(|(_, value)| *value).collect())
        };
        Self { hpc: of(true), dl: of(false), values }
    }

    /// Ratios with their geometric mean.
    fn ratios(subjects: &[Subject<'_>], value: impl Fn(&Profile) -> Option<f64>) -> Self {
        Self::new(subjects, value, geometric)
    }

    /// Shares with their arithmetic mean.
    fn shares(subjects: &[Subject<'_>], value: impl Fn(&Profile) -> Option<f64>) -> Self {
        Self::new(subjects, value, crate::arithmetic)
    }

    /// Returns the column as bars, means last.
    fn bars(&self, name: &str) -> SeriesInfo {
        SeriesInfo::bars(name, self.values.iter().copied().chain([self.hpc, self.dl]))
    }
}

/// Returns the names of all subjects and of the two means.
fn groups(subjects: &[Subject<'_>]) -> Vec<String> {
    let names = subjects.iter().map(|subject| subject.label.to_owned());
    names.chain(["HPC mean".to_owned(), "DL mean".to_owned()]).collect()
}

/// Creates a bar chart of all subjects.
fn bar_chart(title: &str, subjects: &[Subject<'_>], y: AxisInfo, series: Vec<SeriesInfo>) -> Chart {
    Chart {
        title: title.to_owned(),
        shape: Shape::Bars,
        x: AxisInfo::new("", Unit::Number),
        y,
        groups: groups(subjects),
        series,
        marks: Vec::new(),
    }
}

/// Creates a line chart.
fn line_chart(title: &str, x: AxisInfo, y: AxisInfo, series: Vec<SeriesInfo>) -> Chart {
    let (title, groups, marks) = (title.to_owned(), Vec::new(), Vec::new());
    Chart { title, shape: Shape::Lines, x, y, groups, series, marks }
}

/// Wraps a chart of this run's simulations; `None` if nothing was simulated.
fn of_this_run(chart: Chart) -> Option<Panel> {
    chart.series.iter().any(|series| !series.points.is_empty()).then_some(Panel::Chart(chart))
}

/// Wraps charts as the panels of a figure.
fn charts<const N: usize>(charts: [Chart; N]) -> Vec<Panel> {
    charts.map(Panel::Chart).into()
}
