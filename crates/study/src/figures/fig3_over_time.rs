//! Compressibility over time, with the paper's eight sizes.

use buddy_record::{AxisInfo, Figure, Mark, SeriesInfo, Unit};

use super::{Column, bar_chart, charts, line_chart};
use crate::{
    About, Experiment, Findings, Subject,
    experiment::{Explained, headline, quantity},
};

/// Ten snapshots of every workload.
#[derive(Debug)]
pub struct OverTime;

const HPC: f64 = 2.51;
const DL: f64 = 1.85;

impl Experiment for OverTime {
    fn about(&self) -> About {
        About {
            name: "fig3",
            title: "Compressibility over time",
            place: "Figure 3, section 3.1",
            text: "The ratio of all memory in ten snapshots, if every entry could have the best of eight sizes. \
                   355.seismic begins as zeros and falls as its wave spreads, as in the paper. Snapshots that are \
                   all zeros have no ratio and are left out.",
        }
    }

    fn draw(&self, found: &Findings) -> Figure {
        let subjects = found.subjects();
        let ratio = AxisInfo::new("ratio", Unit::Ratio).logarithmic();
        let lines = subjects.iter().filter_map(over_time).collect();
        let time = line_chart(
            "Ratio of eight sizes over the run",
            AxisInfo::new("snapshot", Unit::Count),
            ratio.clone(),
            lines,
        );
        let means = Column::ratios(&subjects, |profile| profile.optimistic_ratio);
        let mut bars =
            bar_chart("The whole run", &subjects, ratio.starting_at(1.0), vec![means.bars("ours")]);
        let mark = |group: usize, y: f64| Mark {
            label: "the paper's mean".to_owned(),
            x: Some((subjects.len() + group) as f64),
            series: None,
            y,
        };
        bars.marks = vec![mark(0, HPC), mark(1, DL)];
        let seismic = found.programs.get("seismic").map(|program| &program.profile);
        let last = seismic.and_then(|profile| *profile.optimistic.last()?);
        Figure {
            quantities: vec![
                headline("Eight sizes, HPC mean", Unit::Ratio, HPC, means.hpc, "section 3.1").explained(46),
                headline("Eight sizes, DL mean", Unit::Ratio, DL, means.dl, "section 3.1").explained(49),
                quantity("355.seismic at its end", Unit::Ratio, 2.0, last, "section 3.1").explained(46),
            ],
            panels: charts([time, bars]),
            missing: found.missing(),
            deviations: vec![44, 46, 49],
            ..self.about().figure()
        }
    }
}

fn over_time(subject: &Subject<'_>) -> Option<SeriesInfo> {
    let ratios = subject.profile?.optimistic.iter().enumerate();
    let points = ratios.filter_map(|(index, ratio)| Some((index as f64 + 1.0, (*ratio)?)));
    Some(SeriesInfo::new(subject.label, points.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{bar, chart, findings, near, ours, points};

    /// seismic: 32768 bytes in 0 + 16384, then in 24 x 8 + 32 x 128 + 16384 = 20672; together 65536
    /// in 37056. cg: in 8192 + 10240, then in 10240 + 10240; together 65536 in 38912.
    #[test]
    fn ratios_are_those_of_each_snapshot_and_of_all() {
        let figure = OverTime.draw(&findings());
        let (seismic, cg) = (65536.0 / 37056.0, 65536.0 / 38912.0_f64);
        assert_eq!(points(chart(&figure, 0), "355.seismic"), [(1.0, 2.0), (2.0, 32768.0 / 20672.0)]);
        assert_eq!(points(chart(&figure, 0), "354.cg"), [(1.0, 32768.0 / 18432.0), (2.0, 1.6)]);
        near(bar(chart(&figure, 1), "ours", "355.seismic"), seismic);
        near(bar(chart(&figure, 1), "ours", "HPC mean"), (seismic * cg).sqrt());
        near(ours(&figure, "Eight sizes, HPC mean"), (seismic * cg).sqrt());
        // alexnet: 16384 in 48 x 32 + 32 x 64 = 3584; resnet50: 16384 in itself, then 32768 in
        // 16384 + 12288.
        near(ours(&figure, "Eight sizes, DL mean"), (16384.0 / 3584.0 * 49152.0 / 45056.0_f64).sqrt());
        near(ours(&figure, "355.seismic at its end"), 32768.0 / 20672.0);
    }
}
