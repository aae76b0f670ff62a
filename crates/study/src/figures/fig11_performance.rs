//! Performance beside an ideal GPU.

use buddy_core::{AxisInfo, Chart, Figure, Mark, SeriesInfo, Unit};
use buddy_sim::Mode;

use super::{Column, bar_chart, charts};
use crate::{
    About, Experiment, Findings, Point, Subject,
    experiment::{Explained, headline, quantity},
    geometric,
};

/// Bandwidth-only compression and Buddy Compression over four links.
#[derive(Debug)]
pub struct Performance;

pub(super) const LINKS: [u32; 4] = [50, 100, 150, 200];

impl Experiment for Performance {
    fn about(&self) -> About {
        About {
            name: "fig11",
            title: "Performance beside an ideal GPU",
            place: "Figure 11, section 4.2",
            text: "Speed beside a GPU whose memory is without limit and whose link has 150 GB/s: with compression \
                   between L2 and memory only, and with Buddy Compression over links of 50 to 200 GB/s. The gain of \
                   larger memory is not in it.",
        }
    }

    fn points(&self, found: &Findings) -> Vec<Point> {
        found.subjects().iter().flat_map(points_of).collect()
    }

    fn draw(&self, found: &Findings) -> Figure {
        let subjects = found.subjects();
        let bandwidth = column(found, &subjects, |name| Point::new(name, Mode::Bandwidth));
        let buddy =
            LINKS.map(|link| column(found, &subjects, |name| Point::new(name, Mode::Buddy).link(link)));
        let [slow, _, nvlink, fast] = &buddy;
        let place = "section 4.2";
        let alexnet = |link| speed(found, &Point::new("alexnet", Mode::Buddy).link(link));
        let more = |speed: Option<f64>| speed.map(|speed| speed - 1.0);
        let quantities = vec![
            headline("Speed, 150 GB/s, HPC", Unit::Percent, 0.99, nvlink.hpc, place).explained(72),
            headline("Speed, 150 GB/s, DL", Unit::Percent, 0.978, nvlink.dl, place).explained(73),
            headline(
                "Gain of compressed bandwidth alone, all",
                Unit::Percent,
                0.055,
                more(all(&bandwidth)),
                place,
            )
            .explained(72),
            quantity("Gain at 200 GB/s, all", Unit::Percent, 0.02, more(all(fast)), place).explained(72),
            quantity("Speed, 50 GB/s, all (paper: less)", Unit::Percent, 0.8, all(slow), place).explained(72),
            quantity("Speed, 150 GB/s, AlexNet", Unit::Percent, 0.935, alexnet(150), place).explained(73),
            quantity("Speed, 50 GB/s, AlexNet", Unit::Percent, 0.65, alexnet(50), place).explained(73),
            quantity("Buddy accesses, AlexNet", Unit::Percent, 0.054, share(found, "alexnet"), place)
                .explained(73),
        ];
        let mut series = vec![bandwidth.bars("bandwidth only")];
        series.extend(
            buddy.iter().zip(LINKS).map(|(column, link)| column.bars(&format!("buddy, {link} GB/s"))),
        );
        Figure {
            quantities,
            panels: charts([speed_chart(&subjects, series), access_chart(found, &subjects)]),
            missing: found.missing(),
            deviations: vec![50, 51, 64, 72, 73],
            ..self.about().figure()
        }
    }
}

fn points_of(subject: &Subject<'_>) -> Vec<Point> {
    let buddy = LINKS.map(|link| Point::new(subject.name, Mode::Buddy).link(link));
    let plain = [Mode::Ideal, Mode::Bandwidth].map(|mode| Point::new(subject.name, mode));
    plain.into_iter().chain(buddy).collect()
}

/// Speed of a point beside the ideal GPU.
pub(super) fn speed(found: &Findings, point: &Point) -> Option<f64> {
    let ideal = found.reports.get(&Point::new(&point.program, Mode::Ideal))?;
    let cycles = found.reports.get(point)?.cycles;
    (cycles > 0).then(|| ideal.cycles as f64 / cycles as f64)
}

fn column(found: &Findings, subjects: &[Subject<'_>], point: impl Fn(&str) -> Point) -> Column {
    Column::of(subjects, |subject| speed(found, &point(subject.name)), geometric)
}

/// The mean of all workloads.
fn all(column: &Column) -> Option<f64> {
    geometric(column.values.iter().copied().flatten())
}

fn speed_chart(subjects: &[Subject<'_>], series: Vec<SeriesInfo>) -> Chart {
    let y = AxisInfo::new("speed, ideal = 100%", Unit::Percent).starting_at(1.0);
    let mark = |group: usize, series: usize, y: f64| Mark {
        label: "the paper".to_owned(),
        x: Some((subjects.len() + group) as f64),
        series: Some(series),
        y,
    };
    let alexnet = subjects.iter().position(|subject| subject.name == "alexnet");
    let mut marks = vec![mark(0, 3, 0.99), mark(1, 3, 0.978)];
    for (series, y) in [(1, 0.65), (3, 0.935)] {
        let x = alexnet.map(|group| group as f64);
        marks.push(Mark { label: "the paper".to_owned(), x, series: Some(series), y });
    }
    Chart { marks, ..bar_chart("Speed", subjects, y, series) }
}

/// Accesses of L2 to memory that needed the link, counted by the simulator.
fn access_chart(found: &Findings, subjects: &[Subject<'_>]) -> Chart {
    let column = Column::of(subjects, |subject| share(found, subject.name), crate::arithmetic);
    let y = AxisInfo::new("accesses that need the link", Unit::Percent).starting_at(0.0);
    bar_chart("Buddy accesses, counted in simulation", subjects, y, vec![column.bars("final design")])
}

/// The share of L2's accesses to memory that needed the link.
fn share(found: &Findings, program: &str) -> Option<f64> {
    Some(found.reports.get(&Point::new(program, Mode::Buddy))?.buddy.buddy_access_share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{bar, chart, findings, near, ours, report, simulated};

    /// Cycles: ideal, bandwidth only, and links of 50, 100, 150 and 200 GB/s.
    fn found() -> Findings {
        let mut found = findings();
        let cycles = [
            ("cg", [1000, 800, 2000, 1250, 1000, 800]),
            ("seismic", [900, 900, 900, 900, 900, 900]),
            ("alexnet", [600, 500, 1200, 800, 750, 600]),
        ];
        for (name, cycles) in cycles {
            let subjects = found.subjects();
            let subject = subjects.iter().find(|subject| subject.name == name).unwrap();
            let points = points_of(subject).into_iter().zip(cycles);
            simulated(&mut found, points.collect::<Vec<_>>());
        }
        found
    }

    #[test]
    fn speeds_are_beside_the_ideal_gpu() {
        let figure = Performance.draw(&found());
        // 1000 / 1000 and 900 / 900; 600 / 750.
        near(ours(&figure, "Speed, 150 GB/s, HPC"), 1.0);
        near(ours(&figure, "Speed, 150 GB/s, DL"), 0.8);
        near(ours(&figure, "Speed, 150 GB/s, AlexNet"), 0.8);
        near(ours(&figure, "Speed, 50 GB/s, AlexNet"), 0.5);
        // 1.25, 1 and 1.2: their product is 1.5.
        near(ours(&figure, "Gain of compressed bandwidth alone"), 1.5_f64.cbrt() - 1.0);
        // 1.25, 1 and 1.
        near(ours(&figure, "Gain at 200 GB/s"), 1.25_f64.cbrt() - 1.0);
        // 1/2, 1 and 1/2.
        near(ours(&figure, "Speed, 50 GB/s, all"), 0.25_f64.cbrt());
        near(bar(chart(&figure, 0), "buddy, 100 GB/s", "354.cg"), 0.8);
        near(bar(chart(&figure, 0), "bandwidth only", "HPC mean"), 1.25_f64.sqrt());
    }

    #[test]
    fn accesses_are_those_at_the_papers_link() {
        let mut found = found();
        for (name, share) in [("cg", 0.02), ("seismic", 0.04), ("alexnet", 0.1)] {
            let mut one = report(1000);
            one.buddy.buddy_access_share = share;
            found.reports.insert(Point::new(name, Mode::Buddy), one);
        }
        let figure = Performance.draw(&found);
        near(ours(&figure, "Buddy accesses, AlexNet"), 0.1);
        near(bar(chart(&figure, 1), "final design", "HPC mean"), 0.03);
    }

    #[test]
    fn six_simulations_of_each_of_sixteen() {
        assert_eq!(Performance.points(&findings()).len(), 96);
    }
}
