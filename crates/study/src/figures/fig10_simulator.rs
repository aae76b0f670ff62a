//! The simulator beside hardware, and its speed.

use buddy_core::{AxisInfo, Chart, Figure, SeriesInfo, Shape, Unit};
use buddy_sim::{Mode, Report, bench};

use super::{charts, line_chart};
use crate::{
    About, Experiment, Findings, Point, correlation,
    experiment::{Explained, quantity},
    geometric,
};

/// Bandwidths that were published or measured, and speed beside Accel-Sim.
#[derive(Debug)]
pub struct SimulatorSpeed;

/// A figure of hardware: the generated program that reaches it, and GB/s.
struct Known {
    name: &'static str,
    point: fn() -> Point,
    measured: f64,
    ours: fn(&Report) -> f64,
}

fn on(program: &str, gpu: &str, mode: Mode) -> Point {
    Point { gpu: gpu.to_owned(), ..Point::new(program, mode) }
}

const KNOWN: [Known; 4] = [
    Known {
        name: "V100, streaming (BabelStream)",
        point: || on("stream", "v100", Mode::Ideal),
        measured: 833.0,
        ours: |report| report.dram.gb_per_s,
    },
    Known {
        name: "H200, copy on the card",
        point: || on("stream", "h200", Mode::Ideal),
        measured: 4237.0,
        ours: |report| report.dram.gb_per_s,
    },
    Known {
        name: "H200, random sectors (fitted)",
        point: || on("random", "h200", Mode::Ideal),
        measured: 1270.0,
        ours: |report| report.dram.gb_per_s,
    },
    Known {
        name: "H200, reading pinned host memory",
        point: || on("stream", "h200", Mode::Pinned).link(55),
        measured: 51.4,
        ours: |report| report.link_traffic.read_gb_per_s,
    },
];

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
        KNOWN.iter().map(|known| (known.point)()).collect()
    }

    fn needs_speed(&self) -> bool {
        true
    }

    fn draw(&self, found: &Findings) -> Figure {
        let pairs: Vec<(f64, f64, &str)> = KNOWN
            .iter()
            .filter_map(|known| {
                let report = found.reports.get(&(known.point)())?;
                Some((known.measured, (known.ours)(report), known.name))
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
