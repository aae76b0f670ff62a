//! Buddy accesses over one training iteration with constant targets.

use buddy_record::{AxisInfo, Figure, Policy, SeriesInfo, Unit};

use super::{charts, line_chart};
use crate::{
    About, Experiment, Findings, Subject,
    experiment::{Explained, quantity},
    findings::CPU_CAFFE,
    reading::{Reading, SECOND, read_as},
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
                   paper finds that the share of entries in buddy memory does not change a lot. Lines are of both \
                   readings of BPC, and of Caffe's layout, whose memory is allocated for the whole run; in PyTorch's, \
                   tensors come and go. All is recorded: bpc on an H200, bpc-best on a CPU at smaller batches.",
        }
    }

    fn needs_programs(&self) -> bool {
        false
    }

    fn draw(&self, found: &Findings) -> Figure {
        let (subjects, second) = (found.dl(), Reading::of(found, SECOND));
        let again = second.subjects(found);
        let find = |subjects: &[Subject<'_>], name: &str| {
            subjects.iter().find(|subject| subject.name == name)?.profile.cloned()
        };
        let mut lines = Vec::new();
        let mut quantities = Vec::new();
        for (name, paper) in NAMES {
            let label = subjects.iter().find(|subject| subject.name == name).map_or(name, |one| one.label);
            let second_caffe = found.in_set(CPU_CAFFE, name).and_then(|profile| read_as(profile, SECOND));
            let all = [
                (find(&subjects, name), "bpc", "bpc"),
                (find(&again, name), SECOND.name(), SECOND.name()),
                (second_caffe, SECOND.name(), "bpc-best, Caffe's layout"),
            ];
            for (profile, codec, what) in &all {
                let Some(found) = profile.as_ref().and_then(|one| one.outcome(FINAL, codec)) else {
                    continue;
                };
                let points = found.overflow.iter().enumerate();
                let points = points.map(|(index, share)| (index as f64 + 1.0, *share)).collect();
                lines.push(SeriesInfo::new(&format!("{label}, {what}"), points));
            }
            for ((profile, codec, _), (suffix, why)) in all.iter().zip([("", 49), (", bpc-best", 3)]) {
                let ratio = profile.as_ref().and_then(|one| Some(one.outcome(FINAL, codec)?.ratio));
                let text = format!("Ratio of {label}, constant over the iteration{suffix}");
                quantities.push(
                    quantity(&text, Unit::Ratio, paper, ratio, "figure 8").explained(why).of_group(false),
                );
            }
        }
        let chart = line_chart(
            "Entries in buddy memory",
            AxisInfo::new("tenth of the iteration", Unit::Count),
            AxisInfo::new("entries in buddy memory", Unit::Percent).starting_at(0.0),
            lines,
        );
        Figure {
            quantities,
            panels: charts([chart]),
            missing: found.missing(),
            deviations: vec![3, 47, 48, 49],
            ..self.about().figure()
        }
    }
}

const FINAL: Policy = Policy::Allocation16x;

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
        assert_eq!(points(chart(&figure, 0), "ResNet50, bpc"), [(1.0, 0.0), (2.0, 0.0)]);
        assert_eq!(chart(&figure, 0).series.len(), 1);
        assert!(figure.missing[0].contains("SqueezeNetv1.1") && !figure.missing[0].contains("ResNet50"));
    }
}
