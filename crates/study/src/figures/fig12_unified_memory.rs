//! Unified Memory and pinned memory, when the device memory is too small.

use buddy_core::{AxisInfo, Figure, SeriesInfo, Unit};
use buddy_sim::Mode;
use buddy_workloads::ALL;

use super::{charts, fig11_performance::speed, line_chart};
use crate::{
    About, Experiment, Findings, Point, Share,
    experiment::{Explained, quantity},
};

/// Three programs with more and more memory that does not fit.
#[derive(Debug)]
pub struct UnifiedMemory;

/// Which three, the paper's text does not say.
const PROGRAMS: [&str; 3] = ["palm", "sp", "ilbdc"];
/// Percent of the memory that does not fit.
const OVER: [u32; 6] = [0, 10, 20, 30, 40, 50];
/// GB/s of three NVLink2 bricks, to a Power9.
const LINK: u32 = 75;

impl Experiment for UnifiedMemory {
    fn about(&self) -> About {
        About {
            name: "fig12",
            title: "Unified Memory and pinned memory",
            place: "Figure 12, section 4.3",
            text: "Time of three programs beside a V100 that holds everything, over a link of 75 GB/s: with Unified \
                   Memory as more of the memory does not fit, and with everything in host memory. The paper measured \
                   hardware and names no numbers; it finds Unified Memory often slower than host memory. Here both are \
                   models.",
        }
    }

    fn points(&self, _: &Findings) -> Vec<Point> {
        let of = |program: &&str| {
            let over = OVER.map(|over| um(program, over));
            let buddy = Point::new(program, Mode::Buddy).link(50);
            over.into_iter().chain([on_v100(program, Mode::Ideal), on_v100(program, Mode::Pinned), buddy])
        };
        PROGRAMS.iter().flat_map(of).chain(PROGRAMS.map(|program| Point::new(program, Mode::Ideal))).collect()
    }

    fn draw(&self, found: &Findings) -> Figure {
        let lines =
            PROGRAMS.iter().flat_map(|program| [um_line(found, program), pinned_line(found, program)]);
        let chart = line_chart(
            "Time, a GPU that holds everything = 1",
            AxisInfo::new("memory that does not fit", Unit::Percent),
            AxisInfo::new("time", Unit::Ratio).logarithmic(),
            lines.flatten().collect(),
        );
        let slowdown = |program: &&str| Some(1.0 / speed(found, &Point::new(program, Mode::Buddy).link(50))?);
        let worst = PROGRAMS.iter().filter_map(slowdown).reduce(f64::max);
        let name = "Largest slowdown of the three with Buddy Compression over 50 GB/s";
        Figure {
            quantities: vec![quantity(name, Unit::Ratio, 1.67, worst, "section 4.3").explained(74)],
            panels: charts([chart]),
            deviations: vec![74],
            ..self.about().figure()
        }
    }
}

fn on_v100(program: &str, mode: Mode) -> Point {
    Point { gpu: "v100".to_owned(), ..Point::new(program, mode).link(LINK) }
}

fn um(program: &str, percent: u32) -> Point {
    Point { oversubscription: Share::percent(percent), ..on_v100(program, Mode::Um) }
}

/// Time of a point beside the ideal V100.
fn time(found: &Findings, point: &Point) -> Option<f64> {
    let ideal = found.reports.get(&on_v100(&point.program, Mode::Ideal))?.cycles;
    Some(found.reports.get(point)?.cycles as f64 / ideal as f64)
}

fn um_line(found: &Findings, program: &str) -> Option<SeriesInfo> {
    let at = |over: u32| Some((f64::from(over) / 100.0, time(found, &um(program, over))?));
    let points: Option<Vec<(f64, f64)>> = OVER.into_iter().map(at).collect();
    Some(SeriesInfo::new(&format!("{}, Unified Memory", label(program)), points?))
}

/// Everything in host memory costs the same however much does not fit.
fn pinned_line(found: &Findings, program: &str) -> Option<SeriesInfo> {
    let time = time(found, &on_v100(program, Mode::Pinned))?;
    Some(SeriesInfo::new(&format!("{}, host memory", label(program)), vec![(0.0, time), (0.5, time)]))
}

fn label(program: &str) -> &str {
    ALL.iter().find(|info| info.name == program).map_or(program, |info| info.paper_name)
}
