//! One target for the program, one for each allocation, and 16x for what stays zero.

use buddy_core::{AxisInfo, Chart, Figure, Mark, Policy, PolicyOutcome, Unit};

use super::{Column, bar_chart, charts};
use crate::{
    About, Experiment, Findings, Subject,
    experiment::{Explained, headline, quantity},
};

/// What each optimisation of the design gives.
#[derive(Debug)]
pub struct Optimisations;

const STEPS: [(Policy, &str); 3] = [
    (Policy::Naive, "naive"),
    (Policy::Allocation, "per allocation"),
    (Policy::Allocation16x, "final design"),
];
/// The paper's ratios: for each step, HPC and DL.
const RATIOS: [[f64; 2]; 3] = [[1.57, 1.18], [1.7, 1.42], [1.9, 1.5]];
/// The paper's shares of buddy accesses, where it states them.
const SHARES: [Option<[f64; 2]>; 3] = [Some([0.08, 0.32]), None, Some([0.0008, 0.04])];

impl Experiment for Optimisations {
    fn about(&self) -> About {
        About {
            name: "fig7",
            title: "Design optimisations",
            place: "Figure 7, sections 3.4 and 3.5",
            text: "The ratio of data to device memory and the share of entries that need buddy memory, with one \
                   target for the whole program, with one for each allocation, and with 16x for allocations that \
                   stay mostly zero. The threshold is 30%, in every snapshot.",
        }
    }

    fn draw(&self, found: &Findings) -> Figure {
        let subjects = found.subjects();
        let ratios = STEPS.map(|(policy, _)| Column::ratios(&subjects, |p| Some(outcome(p, policy)?.ratio)));
        let shares =
            STEPS.map(|(policy, _)| Column::shares(&subjects, |p| Some(outcome(p, policy)?.mean_overflow)));
        let mut quantities = Vec::new();
        for (step, (_, name)) in STEPS.iter().enumerate() {
            for (class, paper) in ["HPC", "DL"].iter().zip(RATIOS[step]) {
                let ours = if *class == "HPC" { ratios[step].hpc } else { ratios[step].dl };
                let text = format!("Ratio, {name}, {class}");
                let make = if step == 2 { headline } else { quantity };
                quantities
                    .push(make(&text, Unit::Ratio, paper, ours, "section 3.4").explained(why(step, class)));
            }
            for (class, paper) in ["HPC", "DL"].iter().zip(SHARES[step].into_iter().flatten()) {
                let ours = if *class == "HPC" { shares[step].hpc } else { shares[step].dl };
                let text = format!("Buddy accesses, {name}, {class}");
                let make = if step == 2 { headline } else { quantity };
                quantities.push(
                    make(&text, Unit::Percent, paper, ours, "section 3.4").explained(if step == 0 {
                        71
                    } else {
                        75
                    }),
                );
            }
        }
        Figure {
            quantities,
            panels: charts([ratio_chart(&subjects, &ratios), share_chart(&subjects, &shares)]),
            missing: found.missing(),
            deviations: vec![40, 41, 42, 45, 46, 49, 71, 75],
            ..self.about().figure()
        }
    }
}

/// The deviation that explains a step.
fn why(step: usize, class: &str) -> u32 {
    match (step, class) {
        (0, _) => 71,
        (_, "HPC") => 46,
        _ => 49,
    }
}

fn outcome(profile: &buddy_core::Profile, policy: Policy) -> Option<&PolicyOutcome> {
    profile.outcome(policy, "bpc")
}

fn ratio_chart(subjects: &[Subject<'_>], columns: &[Column; 3]) -> Chart {
    let series = columns.iter().zip(STEPS).map(|(column, (_, name))| column.bars(name)).collect();
    let y = AxisInfo::new("ratio", Unit::Ratio).starting_at(0.0);
    let marks = (0..3).flat_map(|step| mean_marks(subjects, step, RATIOS[step])).collect();
    Chart { marks, ..bar_chart("Compression ratio", subjects, y, series) }
}

fn share_chart(subjects: &[Subject<'_>], columns: &[Column; 3]) -> Chart {
    let series = columns.iter().zip(STEPS).map(|(column, (_, name))| column.bars(name)).collect();
    let y = AxisInfo::new("entries in buddy memory", Unit::Percent).starting_at(0.0);
    let marks = (0..3).filter_map(|step| Some(mean_marks(subjects, step, SHARES[step]?)));
    let marks = marks.flatten().collect();
    Chart { marks, ..bar_chart("Buddy accesses", subjects, y, series) }
}

/// The paper's means of one step.
fn mean_marks(subjects: &[Subject<'_>], step: usize, [hpc, dl]: [f64; 2]) -> [Mark; 2] {
    let mark = |group: usize, y: f64| Mark {
        label: format!("the paper, {}", STEPS[step].1),
        x: Some((subjects.len() + group) as f64),
        series: Some(step),
        y,
    };
    [mark(0, hpc), mark(1, dl)]
}
