//! Correlation of the simulator with hardware, and its speed.

use buddy_record::{AxisInfo, Chart, Figure, Origin, Record, SeriesInfo, Shape, Unit};
use buddy_sim::{Mode, Report};

use super::{charts, line_chart, of_this_run};
use crate::{
    About, Experiment, Findings, Point, bench,
    correlate::{Correlation, panels},
    experiment::{Explained, quantity},
    geometric,
    tensors::H200_COPY_GB_PER_S,
};

/// Published or measured kernels and bandwidths, and speed relative to Accel-Sim.
#[derive(Debug)]
pub struct SimulatorSpeed;

/// Records of `buddy gpu correlate`. The first is compared with the paper's number.
const RECORDS: [&str; 3] = [
    include_str!("../../records/correlation-h200-programs.json"),
    include_str!("../../records/correlation-h200-small.json"),
    include_str!("../../records/correlation-v100-programs.json"),
];

/// A measured bandwidth in GB/s, and the generated program that reaches it.
struct Known {
    name: &'static str,
    program: &'static str,
    gpu: &'static str,
    mode: Mode,
    measured: f64,
}

const fn known(name: &'static str, program: &'static str, gpu: &'static str, measured: f64) -> Known {
    Known { name, program, gpu, mode: Mode::Ideal, measured }
}

const KNOWN: [Known; 4] = [
    known("V100, streaming (BabelStream)", "stream", "v100", 833.0),
    known("H200, copy on the card", "stream", "h200", H200_COPY_GB_PER_S),
    known("H200, random sectors (fitted)", "random", "h200", 1270.0),
    Known { mode: Mode::Pinned, ..known("H200, reading pinned host memory", "stream", "h200", 51.4) },
];
/// Bandwidth of the link for pinned memory, in GB/s, as measured by a copy.
const PINNED_LINK: u32 = 55;

impl Known {
    fn point(&self) -> Point {
        let point = Point { gpu: self.gpu.to_owned(), ..Point::new(self.program, self.mode) };
        if self.mode == Mode::Pinned { point.link(PINNED_LINK) } else { point }
    }

    /// Returns the bandwidth that a benchmark on the card would report: the bytes that the program
    /// asks for. Device memory moves others: a scattered sector comes with its neighbour, and the
    /// last written lines stay in L2.
    fn ours(&self, report: &Report) -> f64 {
        if self.mode == Mode::Pinned {
            return report.link_traffic.read_gb_per_s;
        }
        let sectors = report.l1.missed_sectors + report.l1.stored_sectors;
        32.0 * sectors as f64 / report.seconds / 1e9
    }
}

impl Experiment for SimulatorSpeed {
    fn about(&self) -> About {
        About {
            name: "fig10",
            title: "The simulator: beside hardware, and how fast",
            place: "Figure 10, section 4.1",
            text: "Kernels on the model beside the same kernels on a card, as buddy gpu correlate recorded them: public \
                   programs and small kernels of one behaviour each on an H200, and programs whose cycles on a V100 are \
                   published. Lines mark equality, 20% and a factor of two. Then bandwidths beside published and \
                   measured ones, and warp instructions a second on one core of this machine beside Accel-Sim, the \
                   successor of the simulator that the paper compares with: its figures are of traces of the same \
                   kinds on a comparable machine, not of this run.",
        }
    }

    fn needs_programs(&self) -> bool {
        false
    }

    fn points(&self, _: &Findings) -> Vec<Point> {
        KNOWN.iter().map(Known::point).collect()
    }

    fn needs_speed(&self) -> bool {
        true
    }

    fn draw(&self, found: &Findings) -> Figure {
        let pairs: Vec<(f64, f64, &str)> = KNOWN
            .iter()
            .filter_map(|known| {
                let report = found.reports.get(&known.point())?;
                Some((known.measured, known.ours(report), known.name))
            })
            .collect();
        let recorded = RECORDS.map(read);
        let section = "section 4.1";
        let faster =
            geometric(found.speed.iter().filter_map(|row| Some(row.million_per_s / row.accel_sim()?)));
        Figure {
            quantities: vec![
                quantity(
                    "Correlation with hardware (ours: kernels of programs, H200)",
                    Unit::Number,
                    0.989,
                    recorded[0].groups[0].r,
                    section,
                )
                .made(Origin::Simulated)
                .explained(77),
                quantity("Speed beside GPGPU-Sim or Accel-Sim", Unit::Ratio, 100.0, faster, section)
                    .made(Origin::Measured)
                    .explained(77),
            ],
            panels: recorded
                .iter()
                .flat_map(panels)
                .chain(of_this_run(hardware_chart(&pairs)))
                .chain(charts([speed_chart(found)]))
                .collect(),
            deviations: vec![77],
            ..self.about().figure()
        }
    }
}

/// Parses a recorded correlation; a test parses all of them.
fn read(text: &str) -> Correlation {
    Record::from_json(text).expect("a record of `buddy gpu correlate`").data
}

fn hardware_chart(pairs: &[(f64, f64, &str)]) -> Chart {
    let axis = |name| AxisInfo::new(name, Unit::Number).logarithmic();
    let hardware = SeriesInfo::new("hardware itself", pairs.iter().map(|(x, _, _)| (*x, *x)).collect());
    let points = pairs.iter().map(|(x, y, name)| SeriesInfo::new(name, vec![(*x, *y)]));
    let series = std::iter::once(hardware).chain(points).collect();
    let mut chart = line_chart("Model beside hardware", axis("hardware, GB/s"), axis("model, GB/s"), series);
    chart.shape = Shape::Points;
    chart
}

fn speed_chart(found: &Findings) -> Chart {
    let of = |value: &dyn Fn(&crate::SpeedRow) -> Option<f64>| -> Vec<Option<f64>> {
        let row = |name: &&str| found.speed.iter().find(|row| row.trace == **name).and_then(value);
        bench::TRACES.iter().map(row).collect()
    };
    Chart {
        title: "Million warp instructions a second".to_owned(),
        shape: Shape::Bars,
        x: AxisInfo::new("", Unit::Number),
        y: AxisInfo::new("million a second", Unit::Number).logarithmic(),
        groups: bench::TRACES.map(str::to_owned).into(),
        series: vec![
            SeriesInfo::bars("ours", of(&|row| Some(row.million_per_s))),
            SeriesInfo::bars("Accel-Sim", of(&|row| row.accel_sim())),
        ],
        marks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        SpeedRow,
        figures::made::{bar, chart, findings, near, ours, report},
    };

    fn found() -> Findings {
        let mut found = findings();
        // Three bandwidths, measured as 833, 4237 and 1270.
        for (known, gb_per_s) in KNOWN.iter().zip([900.0, 4300.0, 1000.0]) {
            let mut one = report(1);
            // Device memory moves twice the bytes that are asked for.
            (one.seconds, one.dram.gb_per_s) = (1e-3, 2.0 * gb_per_s);
            one.l1.missed_sectors = (gb_per_s * 1e6 / 32.0) as u64;
            found.reports.insert(known.point(), one);
        }
        let row =
            |trace: &str, million_per_s| SpeedRow { trace: trace.to_owned(), instructions: 1, million_per_s };
        found.speed = vec![row("arithmetic", 0.21), row("streaming", 0.1), row("mixed", 3.0)];
        found
    }

    #[test]
    fn every_record_is_a_comparison_and_its_groups_follow_from_its_rows() {
        for found in RECORDS.map(read) {
            assert!(found.rows.len() > 10, "{}", found.what);
            let gpu = buddy_sim::spec::Gpu::named(&found.spec).unwrap();
            let again = Correlation::new(&found.what, &found.card, &gpu, found.rows.clone());
            assert_eq!(again, found);
        }
    }

    #[test]
    fn the_first_record_is_compared_with_the_paper() {
        let figure = SimulatorSpeed.draw(&found());
        assert_eq!(ours(&figure, "Correlation with hardware"), read(RECORDS[0]).groups[0].r);
        assert_eq!(figure.panels.len(), 3 * 3 + 2);
        let bandwidths = &chart(&figure, 9).series;
        assert_eq!(bandwidths.len(), 4, "hardware and three bandwidths");
        for (series, asked) in bandwidths[1..].iter().zip([900.0, 4300.0, 1000.0]) {
            near(Some(series.points[0].1), asked);
        }
    }

    /// Accel-Sim has 0.105 and 0.0125: speedups of two and eight, with a geometric mean of 4.
    #[test]
    fn speed_is_the_mean_over_traces_of_both_simulators() {
        let figure = SimulatorSpeed.draw(&found());
        near(ours(&figure, "Speed beside"), 4.0);
        near(bar(chart(&figure, 10), "ours", "mixed"), 3.0);
        assert_eq!(bar(chart(&figure, 10), "Accel-Sim", "mixed"), None);
    }
}
