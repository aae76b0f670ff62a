//! The simulator beside hardware, and its speed.

use buddy_core::{AxisInfo, Chart, Figure, SeriesInfo, Shape, Unit};
use buddy_sim::{Mode, Report, bench};

use super::{charts, line_chart};
use crate::{
    About, Experiment, Findings, Point, correlation,
    experiment::{Explained, quantity},
    geometric,
    tensors::H200_COPY_GB_PER_S,
};

/// Bandwidths that were published or measured, and speed beside Accel-Sim.
#[derive(Debug)]
pub struct SimulatorSpeed;

/// A figure of hardware: the generated program that reaches it, and GB/s.
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
/// GB/s of the link under the pinned memory, as a copy reaches it.
const PINNED_LINK: u32 = 55;

impl Known {
    fn point(&self) -> Point {
        let point = Point { gpu: self.gpu.to_owned(), ..Point::new(self.program, self.mode) };
        if self.mode == Mode::Pinned { point.link(PINNED_LINK) } else { point }
    }

    fn ours(&self, report: &Report) -> f64 {
        if self.mode == Mode::Pinned { report.link_traffic.read_gb_per_s } else { report.dram.gb_per_s }
    }
}

impl Experiment for SimulatorSpeed {
    fn about(&self) -> About {
        About {
            name: "fig10",
            title: "The simulator: beside hardware, and how fast",
            place: "Figure 10, section 4.1",
            text: "Left, bandwidths of the model beside published and measured ones. Right, warp instructions a second \
                   on one core of this machine beside Accel-Sim, the successor of the simulator that the paper compares \
                   with, on traces of the same kinds.",
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
        let both: Vec<(f64, f64)> = pairs.iter().map(|(x, y, _)| (*x, *y)).collect();
        let section = "section 4.1";
        let faster =
            geometric(found.speed.iter().filter_map(|row| Some(row.million_per_s / row.accel_sim()?)));
        Figure {
            quantities: vec![
                quantity(
                    "Correlation with hardware (ours: four bandwidths)",
                    Unit::Number,
                    0.989,
                    correlation(&both),
                    section,
                )
                .explained(77),
                quantity("Speed beside GPGPU-Sim or Accel-Sim", Unit::Ratio, 100.0, faster, section)
                    .explained(77),
            ],
            panels: charts([hardware_chart(&pairs), speed_chart(found)]),
            deviations: vec![77],
            ..self.about().figure()
        }
    }
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
            one.dram.gb_per_s = gb_per_s;
            found.reports.insert(known.point(), one);
        }
        let row =
            |trace: &str, million_per_s| SpeedRow { trace: trace.to_owned(), instructions: 1, million_per_s };
        found.speed = vec![row("arithmetic", 0.21), row("streaming", 0.1), row("mixed", 3.0)];
        found
    }

    /// Means 2113.333 and 2066.667. Differences -1280.333, 2123.667, -843.333 and -1166.667, 2233.333, -1066.667:
    /// products 1493722.2 + 4742855.6 + 899555.6 = 7136133.3; squares 6860432.7 and 7486666.7, whose root is
    /// 7166711.5. Their ratio is 0.995733.
    #[test]
    fn bandwidths_are_correlated() {
        let figure = SimulatorSpeed.draw(&found());
        let correlation = ours(&figure, "Correlation with hardware").unwrap();
        assert!((correlation - 0.995_733).abs() < 1e-6, "{correlation}");
        assert_eq!(chart(&figure, 0).series.len(), 4, "hardware and three points");
    }

    /// Accel-Sim has 0.105 and 0.0125: twice and eight times as fast, whose geometric mean is 4.
    #[test]
    fn speed_is_that_of_traces_that_both_ran() {
        let figure = SimulatorSpeed.draw(&found());
        near(ours(&figure, "Speed beside"), 4.0);
        near(bar(chart(&figure, 1), "ours", "mixed"), 3.0);
        assert_eq!(bar(chart(&figure, 1), "Accel-Sim", "mixed"), None);
    }
}
