//! Buddy accesses over one training iteration with constant targets.

use buddy_record::{AxisInfo, Figure, Policy, SeriesInfo, Unit};

use super::{charts, line_chart};
use crate::{
    About, Experiment, Findings, Subject,
    experiment::{Explained, quantity},
};

/// ResNet50 and SqueezeNet over one iteration.
#[derive(Debug)]
pub struct Iteration;

const NAMES: [(&str, f64); 2] = [("squeezenet", 1.49), ("resnet50", 1.64)];

impl Experiment for Iteration {
    fn about(&self) -> About {
        About {
            name: "fig8",
            title: "Buddy accesses over one training iteration",
            place: "Figure 8, section 3.4",
            text: "Targets stay as they were chosen while the contents of memory change during one iteration. The \
                   paper finds that the share of entries in buddy memory does not change a lot.",
        }
    }

    fn needs_programs(&self) -> bool {
        false
    }

    fn draw(&self, found: &Findings) -> Figure {
        let subjects = found.dl();
        let chosen = |name: &str| subjects.iter().find(|subject| subject.name == name);
        let shown: Vec<&Subject<'_>> = NAMES.iter().filter_map(|(name, _)| chosen(name)).collect();
        let chart = line_chart(
            "Entries in buddy memory",
            AxisInfo::new("tenth of the iteration", Unit::Count),
            AxisInfo::new("entries in buddy memory", Unit::Percent).starting_at(0.0),
            shown.iter().filter_map(|subject| over_time(subject)).collect(),
        );
        let ratio = |name| Some(final_design(chosen(name)?)?.ratio);
        let quantities = NAMES.map(|(name, paper)| {
            let label = chosen(name).map_or(name, |subject| subject.label);
            let text = format!("Ratio of {label}, constant over the iteration");
            quantity(&text, Unit::Ratio, paper, ratio(name), "figure 8").explained(49)
        });
        Figure {
            quantities: quantities.into(),
            panels: charts([chart]),
            missing: found.missing(),
            deviations: vec![47, 48, 49],
            ..self.about().figure()
        }
    }
}

fn final_design<'a>(subject: &Subject<'a>) -> Option<&'a buddy_record::PolicyOutcome> {
    subject.profile?.outcome(Policy::Allocation16x, "bpc")
}

fn over_time(subject: &Subject<'_>) -> Option<SeriesInfo> {
    let overflow = &final_design(subject)?.overflow;
    let points = overflow.iter().enumerate().map(|(index, share)| (index as f64 + 1.0, *share));
    Some(SeriesInfo::new(subject.label, points.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{chart, findings, near, ours, points};

    /// resnet50: 32768 bytes at most, in 16384 + 12288, without overflow. squeezenet is not
    /// recorded.
    #[test]
    fn shares_are_drawn_over_the_iteration() {
        let figure = Iteration.draw(&findings());
        near(ours(&figure, "Ratio of ResNet50"), 8.0 / 7.0);
        assert_eq!(ours(&figure, "Ratio of SqueezeNetv1.1"), None);
        assert_eq!(points(chart(&figure, 0), "ResNet50"), [(1.0, 0.0), (2.0, 0.0)]);
        assert_eq!(chart(&figure, 0).series.len(), 1);
        assert!(figure.missing[0].contains("SqueezeNetv1.1") && !figure.missing[0].contains("ResNet50"));
    }
}
