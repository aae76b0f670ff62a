//! Compressibility over time, with the paper's eight sizes.

use buddy_record::{AxisInfo, Figure, Mark, SeriesInfo, Unit};

use super::{Column, bar_chart, charts, line_chart};
use crate::{
    About, Experiment, Findings, Subject,
    experiment::{Explained, headline, quantity},
    findings::CPU,
    reading::{Reading, SECOND},
};

/// Ten snapshots of every workload.
#[derive(Debug)]
pub struct OverTime;

const HPC: f64 = 2.51;
const DL: f64 = 1.85;

/// Largest over smallest ratio from which a program's line is drawn.
const CHANGES: f64 = 1.1;

impl Experiment for OverTime {
    fn about(&self) -> About {
        About {
            name: "fig3",
            title: "Compressibility over time",
            place: "Figure 3, section 3.1",
            text: "The ratio of all memory in ten snapshots, if every entry could have the best of eight sizes. \
                   355.seismic begins as zeros and falls as its wave spreads, as in the paper. The first two charts have \
                   the workloads whose ratio changes by more than a tenth; snapshots that are all zeros have no ratio and \
                   are left out. The bars have both readings of BPC: bpc, and bpc-best, which also codes a block without \
                   the transform and keeps the smaller, as in Compresso (MICRO 2018). Networks have bpc-best in \
                   records of a CPU, where the third bar is bpc.",
        }
    }

    fn draw(&self, found: &Findings) -> Figure {
        let (subjects, second) = (found.subjects(), Reading::of(found, SECOND));
        let ratio = AxisInfo::new("ratio", Unit::Ratio).logarithmic();
        let lines = |title: &str, x: &str, hpc: bool| {
            let shown = subjects.iter().filter(|subject| subject.hpc == hpc);
            let lines = shown.filter_map(over_time).filter(changes).collect();
            line_chart(title, AxisInfo::new(x, Unit::Count), ratio.clone(), lines)
        };
        let programs = lines("Programs whose ratio changes", "tenth of the run", true);
        let networks = lines("Networks whose ratio changes", "tenth of the iteration", false);
        let means = Column::ratios(&subjects, |profile| profile.optimistic_ratio);
        let again = Column::ratios(&second.subjects(found), |profile| profile.optimistic_ratio);
        let on_cpu = |one: &Subject<'_>| found.in_set(CPU, one.name)?.optimistic_ratio;
        let same = Column::of(&subjects, on_cpu, crate::geometric);
        let bars = vec![
            means.bars("bpc"),
            again.bars(SECOND.name()),
            same.bars("bpc of the networks' records on a CPU"),
        ];
        let mut bars = bar_chart("The whole run", &subjects, ratio.starting_at(1.0), bars);
        let mark = |group: usize, y: f64| Mark {
            label: "the paper's mean".to_owned(),
            x: Some((subjects.len() + group) as f64),
            series: None,
            y,
        };
        bars.marks = vec![mark(0, HPC), mark(1, DL)];
        let seismic = found.programs.get("seismic").map(|program| &program.profile);
        let last = seismic.and_then(|profile| *profile.optimistic.last()?);
        let of = |name: &str, paper, ours| quantity(name, Unit::Ratio, paper, ours, "section 3.1");
        let first = |name: &str, paper, ours| headline(name, Unit::Ratio, paper, ours, "section 3.1");
        Figure {
            quantities: vec![
                first("Eight sizes, HPC mean", HPC, means.hpc).explained(46).of_group(true),
                first("Eight sizes, DL mean", DL, means.dl).explained(49).of_group(false),
                of("Eight sizes, HPC mean, bpc-best", HPC, again.hpc).explained(3).of_group(true),
                of("Eight sizes, DL mean, bpc-best", DL, again.dl).explained(3).of_group(false),
                of("355.seismic at its end", 2.0, last).explained(46).of_group(true),
            ],
            panels: charts([programs, networks, bars]),
            missing: found.missing(),
            deviations: vec![3, 44, 46, 49],
            ..self.about().figure()
        }
    }
}

fn over_time(subject: &Subject<'_>) -> Option<SeriesInfo> {
    let ratios = subject.profile?.optimistic.iter().enumerate();
    let points = ratios.filter_map(|(index, ratio)| Some((index as f64 + 1.0, (*ratio)?)));
    Some(SeriesInfo::new(subject.label, points.collect()))
}

fn changes(line: &SeriesInfo) -> bool {
    let ratios = || line.points.iter().map(|(_, ratio)| *ratio);
    ratios().fold(0.0, f64::max) > CHANGES * ratios().fold(f64::INFINITY, f64::min)
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
        near(bar(chart(&figure, 2), "bpc", "355.seismic"), seismic);
        near(bar(chart(&figure, 2), "bpc", "HPC mean"), (seismic * cg).sqrt());
        // The second reading of alexnet: 16384 in 48 x 8 + 32 x 32.
        near(bar(chart(&figure, 2), "bpc-best", "AlexNet"), 16384.0 / 1408.0);
        near(ours(&figure, "Eight sizes, DL mean, bpc-best"), 16384.0 / 1408.0);
        assert_eq!(chart(&figure, 1).series.len(), 1, "alexnet does not change, resnet50 does");
        near(ours(&figure, "Eight sizes, HPC mean"), (seismic * cg).sqrt());
        // alexnet: 16384 in 48 x 32 + 32 x 64 = 3584; resnet50: 16384 in itself, then 32768 in
        // 16384 + 12288.
        near(ours(&figure, "Eight sizes, DL mean"), (16384.0 / 3584.0 * 49152.0 / 45056.0_f64).sqrt());
        near(ours(&figure, "355.seismic at its end"), 32768.0 / 20672.0);
    }
}
