//! Performance relative to an ideal GPU.

use buddy_record::{AxisInfo, Chart, Figure, Grid, GridCell, Mark, Panel, Quantity, SeriesInfo, Unit};
use buddy_sim::Mode;

use super::{Column, bar_chart};
use crate::{
    About, Experiment, Findings, Point, Subject,
    experiment::{Explained, headline, quantity},
    geometric,
    performance::{Row, Timings, WHOLE_L2, footprints},
};

/// Bandwidth-only compression, and Buddy Compression over four links.
#[derive(Debug)]
pub struct Performance;

const LINKS: [u32; 4] = [50, 100, 150, 200];

impl Experiment for Performance {
    fn about(&self) -> About {
        About {
            name: "fig11",
            title: "Performance beside an ideal GPU",
            place: "Figure 11, section 4.2",
            text: "Speed beside a GPU whose memory is without limit and whose link has 150 GB/s: with compression \
                   between L2 and memory only, and with Buddy Compression over links of 50 to 200 GB/s. The gain of \
                   larger memory is not in it. The numbers beside the paper's and the first two charts are recorded: \
                   programs of a fifth of the paper's footprint, 230 to 550 MiB, and 240 million warp instructions of a \
                   network's iteration. The last two charts are of this run.",
        }
    }

    fn points(&self, found: &Findings) -> Vec<Point> {
        found.subjects().iter().flat_map(points_of).collect()
    }

    fn draw(&self, found: &Findings) -> Figure {
        let subjects = found.subjects();
        let (recorded, here) = (Timings::recorded(), Timings::of(found));
        let [speeds, accesses] = pair(&subjects, &recorded, "a fifth of the paper's footprint");
        let [speeds_here, accesses_here] = pair(&subjects, &here, "this run");
        let panels = [speeds, accesses].map(Panel::Chart).into_iter();
        let panels = panels.chain([Panel::Table(footprint_table(&footprints()))]);
        Figure {
            quantities: quantities(&subjects, &recorded),
            panels: panels.chain([speeds_here, accesses_here].map(Panel::Chart)).collect(),
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

/// Returns the paper's statements about speed, and ours.
fn quantities(subjects: &[Subject<'_>], timings: &Timings) -> Vec<Quantity> {
    let bandwidth = bandwidth_column(subjects, timings);
    let [slow, _, nvlink, fast] = buddy_columns(subjects, timings);
    let place = "section 4.2";
    let alexnet = |link| timings.speed(&Point::new("alexnet", Mode::Buddy).link(link));
    let more = |speed: Option<f64>| speed.map(|speed| speed - 1.0);
    let percent = |name, paper, ours| quantity(name, Unit::Percent, paper, ours, place);
    let first = |name, paper, ours| headline(name, Unit::Percent, paper, ours, place);
    vec![
        first("Speed, 150 GB/s, HPC", 0.99, nvlink.hpc).explained(72),
        first("Speed, 150 GB/s, DL", 0.978, nvlink.dl).explained(73),
        first("Gain of compressed bandwidth alone, all", 0.055, more(all(&bandwidth))).explained(72),
        percent("Gain at 200 GB/s, all", 0.02, more(all(&fast))).explained(72),
        percent("Speed, 50 GB/s, all (paper: less)", 0.8, all(&slow)).explained(72),
        percent("Speed, 150 GB/s, AlexNet", 0.935, alexnet(150)).explained(73),
        percent("Speed, 50 GB/s, AlexNet", 0.65, alexnet(50)).explained(73),
        percent("Buddy accesses, AlexNet", 0.054, share(timings, "alexnet")).explained(73),
    ]
}

fn bandwidth_column(subjects: &[Subject<'_>], timings: &Timings) -> Column {
    column(subjects, timings, |name| Point::new(name, Mode::Bandwidth))
}

fn buddy_columns(subjects: &[Subject<'_>], timings: &Timings) -> [Column; 4] {
    LINKS.map(|link| column(subjects, timings, |name| Point::new(name, Mode::Buddy).link(link)))
}

fn column(subjects: &[Subject<'_>], timings: &Timings, point: impl Fn(&str) -> Point) -> Column {
    Column::of(subjects, |subject| timings.speed(&point(subject.name)), geometric)
}

/// Returns the mean of all workloads.
fn all(column: &Column) -> Option<f64> {
    geometric(column.values.iter().copied().flatten())
}

/// Returns the charts of speed and of accesses over the link.
fn pair(subjects: &[Subject<'_>], timings: &Timings, of: &str) -> [Chart; 2] {
    let mut series = vec![bandwidth_column(subjects, timings).bars("bandwidth only")];
    let buddy = buddy_columns(subjects, timings);
    series.extend(buddy.iter().zip(LINKS).map(|(column, link)| column.bars(&format!("buddy, {link} GB/s"))));
    let [speeds, accesses] = [speed_chart(subjects, series), access_chart(subjects, timings)];
    [speeds, accesses].map(|chart| Chart { title: format!("{}: {of}", chart.title), ..chart })
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

/// Returns the chart of L2 misses that used the link, counted by the simulator.
fn access_chart(subjects: &[Subject<'_>], timings: &Timings) -> Chart {
    let column = Column::of(subjects, |subject| share(timings, subject.name), crate::arithmetic);
    let y = AxisInfo::new("accesses that need the link", Unit::Percent).starting_at(0.0);
    bar_chart("Buddy accesses, counted in simulation", subjects, y, vec![column.bars("final design")])
}

/// Returns the share of L2's memory accesses that used the link.
fn share(timings: &Timings, program: &str) -> Option<f64> {
    Some(timings.get(&Point::new(program, Mode::Buddy))?.buddy_accesses)
}

/// Returns a table of the sensitivity to footprint: two footprints, and caches scaled down with
/// them.
fn footprint_table(rows: &[Row]) -> Grid {
    let names = ["program", "footprint", "caches", "speed", "metadata found"];
    let units = [Unit::Count, Unit::Count, Unit::Count, Unit::Ratio, Unit::Percent];
    let columns = names.into_iter().zip(units).map(|(name, unit)| (name.to_owned(), unit)).collect();
    let line = |row: &Row| {
        let same = |other: &&Row| {
            other.mode == Mode::Ideal
                && (&other.program, &other.scale, other.l2) == (&row.program, &row.scale, row.l2)
        };
        let speed = rows.iter().find(same).map(|ideal| ideal.timing.cycles / row.timing.cycles);
        let footprint =
            row.scale.as_str().map_or_else(|| format!("{} of the paper's", row.scale), str::to_owned);
        let cut = (WHOLE_L2 / row.l2).round();
        let caches = if cut > 1.0 { format!("1/{cut}") } else { "whole".to_owned() };
        let texts = [row.program.as_str(), &footprint, &caches].map(GridCell::from);
        texts.into_iter().chain([speed, Some(row.timing.metadata_hits)].map(GridCell::from)).collect()
    };
    let mut buddy: Vec<&Row> = rows.iter().filter(|row| row.mode == Mode::Buddy).collect();
    buddy.sort_by(|a, b| {
        (&a.program, a.scale.is_number()).cmp(&(&b.program, b.scale.is_number())).then(b.l2.total_cmp(&a.l2))
    });
    let rows = buddy.into_iter().map(line).collect();
    Grid { title: "Speed by footprint, with caches whole and cut".to_owned(), columns, rows }
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
    fn speeds_are_relative_to_the_ideal_gpu() {
        let found = found();
        let drawn = Performance.draw(&found);
        let figure = Figure { quantities: quantities(&found.subjects(), &Timings::of(&found)), ..drawn };
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
        near(bar(chart(&figure, 3), "buddy, 100 GB/s", "354.cg"), 0.8);
        near(bar(chart(&figure, 3), "bandwidth only", "HPC mean"), 1.25_f64.sqrt());
    }

    #[test]
    fn accesses_are_those_at_the_papers_link() {
        let mut found = found();
        for (name, share) in [("cg", 0.02), ("seismic", 0.04), ("alexnet", 0.1)] {
            let mut one = report(1000);
            one.buddy.buddy_access_share = share;
            found.reports.insert(Point::new(name, Mode::Buddy), one);
        }
        assert_eq!(share(&Timings::of(&found), "alexnet"), Some(0.1));
        near(bar(chart(&Performance.draw(&found), 4), "final design", "HPC mean"), 0.03);
    }

    /// The numbers compared with the paper are the recorded ones of all sixteen, whatever this run
    /// simulated.
    #[test]
    fn recorded_simulations_are_compared_with_the_paper() {
        let figure = Performance.draw(&found());
        assert_eq!(figure.quantities, Performance.draw(&findings()).quantities);
        assert!(figure.quantities.iter().all(|one| one.ours.is_some()));
        let speeds = chart(&figure, 0);
        assert!(speeds.series.iter().all(|one| one.points.len() == 18), "sixteen and two means");
    }

    #[test]
    fn footprints_are_compared_with_their_own_ideal() {
        let row = |mode: &str, l2: u32, cycles: u32| -> Row {
            let text = format!(
                r#"{{"program": "bt", "mode": "{mode}", "link": 150, "scale": 0.2, "l2.bytes": {l2},
                     "cycles": {cycles}, "metadata_hits": 0.5, "buddy_accesses": 0}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let rows = [
            row("ideal", 4_194_304, 90),
            row("buddy", 4_194_304, 100),
            row("ideal", 1_048_576, 120),
            row("buddy", 1_048_576, 160),
        ];
        let cells: Vec<Vec<GridCell>> = footprint_table(&rows).rows;
        let line = |caches: &str, speed: f64| {
            vec!["bt".into(), "0.2 of the paper's".into(), caches.into(), speed.into(), 0.5.into()]
        };
        assert_eq!(cells, [line("whole", 0.9), line("1/4", 0.75)]);
    }

    #[test]
    fn six_simulations_of_each_of_sixteen() {
        assert_eq!(Performance.points(&findings()).len(), 96);
    }
}
