//! The Buddy Threshold: the share of an allocation that may overflow.

use buddy_record::{AxisInfo, Chart, Figure, Mark, Policy, Profile, SeriesInfo, SweepPoint, Unit};

use super::{Column, bar_chart, charts};
use crate::{
    About, Experiment, Findings, Subject,
    experiment::{Explained, quantity},
    reading::{Reading, SECOND},
};

/// Thresholds from 10 to 40%, and the best achievable ratio.
#[derive(Debug)]
pub struct Thresholds;

const THRESHOLDS: [f64; 4] = [0.10, 0.20, 0.30, 0.40];

impl Experiment for Thresholds {
    fn about(&self) -> About {
        About {
            name: "fig9",
            title: "The Buddy Threshold",
            place: "Figure 9, section 3.4",
            text: "Ratio and buddy accesses when 10 to 40% of an allocation's entries may overflow, with both readings of \
                   BPC. The last series is the ratio if every entry took the bytes of its own class. The paper chooses 30%.",
        }
    }

    fn draw(&self, found: &Findings) -> Figure {
        let (subjects, second) = (found.subjects(), Reading::of(found, SECOND));
        let again = second.subjects(found);
        let [mut ratios, shares] = pair(&subjects, "bpc");
        ratios.marks = [("cg", 1.1), ("bt", 1.3)]
            .into_iter()
            .filter_map(|(name, y)| {
                let x = subjects.iter().position(|subject| subject.name == name)?;
                Some(Mark { label: "the paper at 30%".to_owned(), x: Some(x as f64), series: Some(2), y })
            })
            .collect();
        let [ratios_again, shares_again] = pair(&again, SECOND.name());
        let per_allocation = |subjects: &[Subject<'_>], name: &str, codec: &str| {
            let profile = subjects.iter().find(|subject| subject.name == name)?.profile?;
            Some(profile.outcome(Policy::Allocation, codec)?.ratio)
        };
        let mut quantities = Vec::new();
        for (name, label, paper) in [("cg", "354.cg", 1.1), ("bt", "370.bt", 1.3)] {
            let of =
                |text: String, ours| quantity(&text, Unit::Ratio, paper, ours, "section 3.4").of_group(true);
            let ours = per_allocation(&subjects, name, "bpc");
            quantities.push(of(format!("{label} per allocation"), ours).explained(46));
            let ours = per_allocation(&again, name, SECOND.name());
            quantities.push(of(format!("{label} per allocation, {SECOND}"), ours).explained(3));
        }
        Figure {
            quantities,
            panels: charts([ratios, shares, ratios_again, shares_again]),
            missing: found.missing(),
            deviations: vec![3, 43],
            ..self.about().figure()
        }
    }
}

/// Returns the charts of ratio and of buddy accesses with one codec.
fn pair(subjects: &[Subject<'_>], codec: &str) -> [Chart; 2] {
    let name = |threshold: f64| format!("{:.0}%", threshold * 100.0);
    let series = |value: fn(&SweepPoint) -> f64, ratios: bool| -> Vec<SeriesInfo> {
        let column = |threshold| {
            let of = |profile: &Profile| point(profile, codec, threshold).map(value);
            if ratios { Column::ratios(subjects, of) } else { Column::shares(subjects, of) }
        };
        THRESHOLDS.map(|threshold| column(threshold).bars(&name(threshold))).into()
    };
    let mut ratios = series(|point| point.ratio, true);
    ratios.push(Column::ratios(subjects, |profile| profile.best_ratio).bars("each entry at its own class"));
    let shares = series(|point| point.mean_overflow, false);
    let ratio = AxisInfo::new("ratio", Unit::Ratio).starting_at(0.0);
    let share = AxisInfo::new("entries in buddy memory", Unit::Percent).starting_at(0.0);
    [
        bar_chart(&format!("Ratio by threshold, {codec}"), subjects, ratio, ratios),
        bar_chart(&format!("Buddy accesses by threshold, {codec}"), subjects, share, shares),
    ]
}

fn point<'a>(profile: &'a Profile, codec: &str, threshold: f64) -> Option<&'a SweepPoint> {
    profile.sweep.iter().find(|point| point.codec == codec && (point.threshold - threshold).abs() < 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{bar, chart, findings, near, ours};

    /// A quarter of a and of p overflows, in cg at 2x and in seismic at anything above 1x: too much
    /// below 30%.
    #[test]
    fn targets_fall_with_the_threshold() {
        let figure = Thresholds.draw(&findings());
        let (ratios, shares) = (chart(&figure, 0), chart(&figure, 1));
        for (threshold, cg, seismic, share) in
            [("10%", 1.0, 1.0, 0.0), ("20%", 1.0, 1.0, 0.0), ("30%", 4.0 / 3.0, 32.0 / 17.0, 0.0625)]
        {
            near(bar(ratios, threshold, "354.cg"), cg);
            near(bar(ratios, threshold, "355.seismic"), seismic);
            near(bar(ratios, threshold, "HPC mean"), (cg * seismic).sqrt());
            near(bar(shares, threshold, "HPC mean"), share);
        }
        // In its largest snapshot cg stores 10240 + 10240 bytes of 32768.
        near(bar(ratios, "each entry at its own class", "354.cg"), 1.6);
        near(ours(&figure, "354.cg per allocation"), 4.0 / 3.0);
        assert_eq!(ours(&figure, "370.bt per allocation"), None);
        // The second reading of alexnet: 48 zeros, 48 of 8 bytes and 32 of 32 bytes, 4x without overflow.
        near(bar(chart(&figure, 2), "10%", "AlexNet"), 4.0);
        near(bar(chart(&figure, 3), "40%", "AlexNet"), 0.0);
        assert_eq!(bar(chart(&figure, 2), "30%", "354.cg"), None, "not measured with it");
    }

    #[test]
    fn the_papers_marks_are_at_its_programs() {
        let figure = Thresholds.draw(&findings());
        let marks = chart(&figure, 0).marks.iter().map(|mark| (mark.x, mark.series, mark.y));
        let expected = [(Some(2.0), Some(2), 1.1), (Some(7.0), Some(2), 1.3)];
        assert_eq!(marks.collect::<Vec<_>>(), expected, "cg is the third of the programs, bt the eighth");
    }
}
