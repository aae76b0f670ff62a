//! Unified Memory and pinned memory with too little device memory.

use buddy_record::{AxisInfo, Figure, SeriesInfo, Unit};
use buddy_sim::Mode;
use buddy_workloads::ALL;

use super::{charts, line_chart};
use crate::{
    About, Experiment, Findings, Point, Share,
    experiment::{Explained, quantity},
    performance::Timings,
};

/// Three programs with a growing share of memory that does not fit.
#[derive(Debug)]
pub struct UnifiedMemory;

/// Our choice; the paper does not name its three.
const PROGRAMS: [&str; 3] = ["palm", "sp", "ilbdc"];
/// Percent of the memory that does not fit.
const OVER: [u32; 6] = [0, 10, 20, 30, 40, 50];
/// GB/s of three NVLink2 bricks to a Power9.
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
                   models; the slowdown with Buddy Compression is that of figure 11.",
        }
    }

    fn points(&self, _: &Findings) -> Vec<Point> {
        let of = |program: &&str| {
            let over = OVER.map(|over| um(program, over));
            over.into_iter().chain([on_v100(program, Mode::Ideal), on_v100(program, Mode::Pinned)])
        };
        PROGRAMS.iter().flat_map(of).collect()
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
        let timings = Timings::recorded();
        let slowdown =
            |program: &&str| Some(1.0 / timings.speed(&Point::new(program, Mode::Buddy).link(50))?);
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

/// Returns the time of a point relative to the ideal V100.
fn time(found: &Findings, point: &Point) -> Option<f64> {
    let ideal = found.reports.get(&on_v100(&point.program, Mode::Ideal))?.cycles;
    Some(found.reports.get(point)?.cycles as f64 / ideal as f64)
}

fn um_line(found: &Findings, program: &str) -> Option<SeriesInfo> {
    let at = |over: u32| Some((f64::from(over) / 100.0, time(found, &um(program, over))?));
    let points: Option<Vec<(f64, f64)>> = OVER.into_iter().map(at).collect();
    Some(SeriesInfo::new(&format!("{}, Unified Memory", label(program)), points?))
}

/// Pinned memory costs the same for every share.
fn pinned_line(found: &Findings, program: &str) -> Option<SeriesInfo> {
    let time = time(found, &on_v100(program, Mode::Pinned))?;
    Some(SeriesInfo::new(&format!("{}, host memory", label(program)), vec![(0.0, time), (0.5, time)]))
}

fn label(program: &str) -> &str {
    ALL.iter().find(|info| info.name == program).map_or(program, |info| info.paper_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{chart, findings, near, ours, points, simulated};

    /// A V100 that holds all of palm takes 100 cycles.
    #[test]
    fn times_are_relative_to_a_gpu_that_holds_everything() {
        let mut found = findings();
        let over = OVER.map(|over| (um("palm", over), 100 + 10 * u64::from(over)));
        simulated(&mut found, over);
        let others = [(on_v100("palm", Mode::Ideal), 100), (on_v100("palm", Mode::Pinned), 350)];
        simulated(&mut found, others);
        let figure = UnifiedMemory.draw(&found);
        // At 50% over 600 of 100 cycles; in host memory 350 of 100 everywhere.
        let um = [(0.0, 1.0), (0.1, 2.0), (0.2, 3.0), (0.3, 4.0), (0.4, 5.0), (0.5, 6.0)];
        assert_eq!(points(chart(&figure, 0), "351.palm, Unified Memory"), um);
        assert_eq!(points(chart(&figure, 0), "351.palm, host memory"), [(0.0, 3.5), (0.5, 3.5)]);
        assert_eq!(chart(&figure, 0).series.len(), 2, "the others are incomplete");
        // palm and sp are not compressed, and ilbdc is faster.
        near(ours(&figure, "Largest slowdown"), 1.0);
    }

    #[test]
    fn eight_simulations_of_each_of_three() {
        assert_eq!(UnifiedMemory.points(&findings()).len(), 3 * 8);
    }
}
