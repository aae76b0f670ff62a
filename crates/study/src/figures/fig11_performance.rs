//! Performance relative to an ideal GPU.

use buddy_record::{
    AxisInfo, Chart, Figure, Grid, GridCell, Mark, Origin, Panel, Quantity, SeriesInfo, Unit,
};
use buddy_report::number;
use buddy_sim::Mode;

use super::{Column, bar_chart, of_this_run};
use crate::{
    About, Experiment, Findings, Point, Subject,
    experiment::{Explained, headline, quantity},
    geometric,
    performance::{Row, Timings, WHOLE_L2, causes, footprints},
};

/// Bandwidth-only compression, and Buddy Compression over four links.
#[derive(Debug)]
pub struct Performance;

const LINKS: [u32; 4] = [50, 100, 150, 200];

impl Experiment for Performance {
    fn about(&self) -> About {
        About {
            name: "fig11",
            title: "Slowdown beside an ideal GPU",
            place: "Figure 11, section 4.2",
            text: "Time beside a GPU whose memory is without limit and whose link has 150 GB/s, less one: with compression \
                   between L2 and memory only, and with Buddy Compression over links of 50 to 200 GB/s. Below zero is \
                   faster. The gain of larger memory is not in it. The first chart has the paper's ratios and overflow \
                   imposed on our access patterns, so that the architecture is tested apart from our data; its sizes are \
                   drawn, the time is simulated. The second has our data with everything compressed, as the paper's text \
                   has it. Both are recorded, of programs with 64 MB, half of which the metadata cache covers, and 20 million \
                   warp instructions of a network's iteration. The third leaves uncompressed what 1x does not pay for \
                   (D78), recorded at a fifth of the paper's footprint. The last chart is of this run.",
        }
    }

    fn points(&self, found: &Findings) -> Vec<Point> {
        found.subjects().iter().flat_map(points_of).collect()
    }

    fn draw(&self, found: &Findings) -> Figure {
        let subjects = found.subjects();
        let runs = Runs::recorded();
        let here = Timings::of(found);
        let charts = [
            with_marks(
                &subjects,
                slowdowns(&subjects, &runs.imposed, "imposed ratios and overflow, simulated"),
            ),
            compressed_chart(&subjects, &runs),
            without_outlier(
                &subjects,
                slowdowns(&subjects, &runs.own, "our data, D78, recorded at a fifth of the footprint"),
            ),
            access_chart(&subjects, &runs),
        ];
        let mut panels = vec![Panel::Table(claims(&subjects, &runs))];
        panels.extend(charts.map(Panel::Chart));
        panels.push(Panel::Table(footprint_table(&footprints())));
        panels.push(Panel::Table(causes_table(&subjects, &runs.imposed)));
        let this_run = slowdowns(&subjects, &here, "our data, D78, this run");
        panels.extend(of_this_run(without_outlier(&subjects, this_run)));
        Figure {
            quantities: quantities(&subjects, &runs),
            panels,
            missing: found.missing(),
            deviations: vec![50, 51, 64, 72, 73, 78, 79],
            ..self.about().figure()
        }
    }
}

/// The recorded designs: the paper's data imposed, ours with everything compressed, ours with D78.
struct Runs {
    imposed: Timings,
    compressed: Timings,
    own: Timings,
}

impl Runs {
    fn recorded() -> Self {
        Self { imposed: Timings::imposed(), compressed: Timings::compressed(), own: Timings::recorded() }
    }

    fn all(&self) -> [&Timings; 3] {
        [&self.imposed, &self.compressed, &self.own]
    }
}

fn points_of(subject: &Subject<'_>) -> Vec<Point> {
    let buddy = LINKS.map(|link| Point::new(subject.name, Mode::Buddy).link(link));
    let plain = [Mode::Ideal, Mode::Bandwidth].map(|mode| Point::new(subject.name, mode));
    plain.into_iter().chain(buddy).collect()
}

/// A number of the paper's section 4.2.
struct Stated {
    name: &'static str,
    unit: Unit,
    paper: f64,
    headline: bool,
    why: u32,
    of: fn(&[Subject<'_>], &Timings) -> Option<f64>,
}

const fn stated(
    name: &'static str,
    paper: f64,
    why: u32,
    of: fn(&[Subject<'_>], &Timings) -> Option<f64>,
) -> Stated {
    Stated { name, unit: Unit::Percent, paper, headline: false, why, of }
}

const fn first(stated: Stated) -> Stated {
    Stated { headline: true, ..stated }
}

const STATED: [Stated; 8] = [
    first(stated("Slowdown, 150 GB/s, HPC", 0.01, 72, |subjects, timings| {
        slower(buddy(subjects, timings, 150).hpc)
    })),
    first(stated("Slowdown, 150 GB/s, DL", 0.022, 73, |subjects, timings| {
        slower(buddy(subjects, timings, 150).dl)
    })),
    first(stated("Gain of compressed bandwidth alone, all", 0.055, 72, |subjects, timings| {
        Some(all(subjects, timings, &bandwidth(subjects, timings))? - 1.0)
    })),
    stated("Gain at 200 GB/s, all", 0.02, 72, |subjects, timings| {
        Some(all(subjects, timings, &buddy(subjects, timings, 200))? - 1.0)
    }),
    stated("Slowdown, 50 GB/s, all (paper: more)", 0.2, 72, |subjects, timings| {
        slower(all(subjects, timings, &buddy(subjects, timings, 50)))
    }),
    stated("Slowdown, 150 GB/s, AlexNet", 0.065, 73, |_, timings| slower(alexnet(timings, 150))),
    stated("Slowdown, 50 GB/s, AlexNet", 0.35, 73, |_, timings| slower(alexnet(timings, 50))),
    stated("Buddy accesses, AlexNet", 0.054, 73, |_, timings| share(timings, "alexnet")),
];

/// Returns the paper's statements beside the imposed design and beside ours.
fn quantities(subjects: &[Subject<'_>], runs: &Runs) -> Vec<Quantity> {
    let one = |stated: &Stated, timings: &Timings, text: &str, why: u32, origin: Origin| {
        let make = if stated.headline { headline } else { quantity };
        let name = format!("{}{text}", stated.name);
        let ours = (stated.of)(subjects, timings);
        make(&name, stated.unit, stated.paper, ours, "section 4.2").explained(why).made(origin)
    };
    let both = |stated: &Stated| {
        [
            one(stated, &runs.imposed, ", imposed", 79, Origin::Imposed),
            one(stated, &runs.own, "", stated.why, Origin::Simulated),
        ]
    };
    STATED.iter().flat_map(both).collect()
}

/// Returns every number of the paper beside the three designs, and the programs that it names.
fn claims(subjects: &[Subject<'_>], runs: &Runs) -> Grid {
    let names =
        ["the paper", "imposed, 64 MB", "everything compressed, 64 MB", "with D78, a fifth of the footprint"];
    let head = std::iter::once(("statement", Unit::Number)).chain(names.map(|name| (name, Unit::Percent)));
    let row = |stated: &Stated| -> Vec<GridCell> {
        let ours = runs.all().map(|timings| (stated.of)(subjects, timings).into());
        [stated.name.into(), stated.paper.into()].into_iter().chain(ours).collect()
    };
    let named = |(label, name, mode): (&str, &str, Mode)| -> Vec<GridCell> {
        let of = |timings: &Timings| slower(timings.speed(&Point::new(name, mode)));
        let paper: GridCell = "slower".into();
        [label.into(), paper].into_iter().chain(runs.all().map(|one| of(one).into())).collect()
    };
    let slow = [
        ("Slowdown of 354.cg, bandwidth only", "cg", Mode::Bandwidth),
        ("Slowdown of 360.ilbdc, bandwidth only", "ilbdc", Mode::Bandwidth),
        ("Slowdown of FF_Lulesh, bandwidth only", "lulesh", Mode::Bandwidth),
        ("Slowdown of 351.palm, 150 GB/s", "palm", Mode::Buddy),
        ("Slowdown of 355.seismic, 150 GB/s", "seismic", Mode::Buddy),
    ];
    Grid {
        title: "The paper's statements, simulated".to_owned(),
        columns: head.map(|(name, unit)| (name.to_owned(), unit)).collect(),
        rows: STATED.iter().map(row).chain(slow.map(named)).collect(),
    }
}

/// Returns the slowdown of a speed: the time beside the ideal GPU's, less one.
fn slower(speed: Option<f64>) -> Option<f64> {
    speed.map(|speed| 1.0 / speed - 1.0)
}

fn alexnet(timings: &Timings, link: u32) -> Option<f64> {
    timings.speed(&Point::new("alexnet", Mode::Buddy).link(link))
}

/// Returns the speeds of bandwidth-only compression.
fn bandwidth(subjects: &[Subject<'_>], timings: &Timings) -> Column {
    column(subjects, timings, |name| Point::new(name, Mode::Bandwidth))
}

/// Returns the speeds with Buddy Compression over a link.
fn buddy(subjects: &[Subject<'_>], timings: &Timings, link: u32) -> Column {
    column(subjects, timings, |name| Point::new(name, Mode::Buddy).link(link))
}

fn column(subjects: &[Subject<'_>], timings: &Timings, point: impl Fn(&str) -> Point) -> Column {
    Column::of(subjects, |subject| timings.speed(&point(subject.name)), geometric)
}

/// Returns the mean of all workloads; `None` unless all with a time on the ideal GPU have one.
fn all(subjects: &[Subject<'_>], timings: &Timings, column: &Column) -> Option<f64> {
    let is_known = |(subject, value): (&Subject<'_>, &Option<f64>)| {
        value.is_some() || timings.get(&Point::new(subject.name, Mode::Ideal)).is_none()
    };
    let known = subjects.iter().zip(&column.values).all(is_known);
    known.then(|| geometric(column.values.iter().copied().flatten())).flatten()
}

impl Column {
    /// Returns the slowdowns of a column of speeds as bars.
    fn slowdowns(&self, name: &str) -> SeriesInfo {
        let speeds = self.values.iter().copied().chain([self.hpc, self.dl]);
        SeriesInfo::bars(name, speeds.map(slower))
    }
}

/// Returns the chart of slowdowns with bandwidth only and over the links that all were simulated
/// with.
fn slowdowns(subjects: &[Subject<'_>], timings: &Timings, of: &str) -> Chart {
    let known = |column: &Column| column.values.iter().flatten().count();
    let most = known(&buddy(subjects, timings, 150));
    let mut series = vec![bandwidth(subjects, timings).slowdowns("bandwidth only")];
    let over = |link: u32| (link, buddy(subjects, timings, link));
    let links = LINKS.map(over).into_iter().filter(|(_, column)| known(column) == most);
    series.extend(links.map(|(link, column)| column.slowdowns(&format!("buddy, {link} GB/s"))));
    slowdown_chart(&format!("Slowdown: {of}"), subjects, series)
}

/// Returns the chart of imposed and of our data at 150 GB/s, both with everything compressed and at
/// one footprint.
fn compressed_chart(subjects: &[Subject<'_>], runs: &Runs) -> Chart {
    let series = vec![
        buddy(subjects, &runs.imposed, 150).slowdowns("imposed"),
        buddy(subjects, &runs.compressed, 150).slowdowns("our data"),
    ];
    let title = "Slowdown at 150 GB/s with everything compressed, simulated, programs of 64 MB";
    let mut chart = slowdown_chart(title, subjects, series);
    chart.marks = means(subjects, Some(0));
    chart
}

/// Leaves out the bars of a workload that is more than twice as far from zero as every other, so that
/// it does not flatten them, and names it in the title.
fn without_outlier(subjects: &[Subject<'_>], mut chart: Chart) -> Chart {
    let of = |group: usize| {
        let points = chart.series.iter().flat_map(|series| &series.points);
        points.filter(move |point| point.0 == group as f64).map(|point| point.1)
    };
    let most = |group: usize| of(group).map(f64::abs).fold(0.0, f64::max);
    let mut far: Vec<(f64, usize)> = (0..subjects.len()).map(|group| (most(group), group)).collect();
    far.sort_by(|a, b| b.0.total_cmp(&a.0));
    let [(first, group), (second, _), ..] = far[..] else { return chart };
    if first <= 2.0 * second {
        return chart;
    }
    let [least, most] = [f64::min, f64::max].map(|pick| of(group).reduce(pick).unwrap_or(0.0));
    let [least, most] = [least, most].map(|share| number(Unit::Percent, share));
    chart.title += &format!(" (off the scale: {}, {least} to {most})", subjects[group].label);
    for series in &mut chart.series {
        series.points.retain(|point| point.0 != group as f64);
    }
    chart
}

fn slowdown_chart(title: &str, subjects: &[Subject<'_>], series: Vec<SeriesInfo>) -> Chart {
    let y = AxisInfo::new("slowdown, below 0 is faster", Unit::Percent).starting_at(0.0);
    bar_chart(title, subjects, y, series)
}

/// Adds the paper's slowdowns; each label names its link.
fn with_marks(subjects: &[Subject<'_>], mut chart: Chart) -> Chart {
    let nvlink = series_of(&chart, 150);
    chart.marks = means(subjects, nvlink);
    let alexnet = subjects.iter().position(|subject| subject.name == "alexnet");
    for (link, y) in [(50, 0.35), (150, 0.065)] {
        let (label, x) = (format!("the paper, {link} GB/s"), alexnet.map(|group| group as f64));
        chart.marks.push(Mark { label, x, series: series_of(&chart, link), y });
    }
    chart
}

/// Returns the series of a link.
fn series_of(chart: &Chart, link: u32) -> Option<usize> {
    let name = format!("buddy, {link} GB/s");
    chart.series.iter().position(|series| series.name == name)
}

/// Returns the paper's means at 150 GB/s, at a series.
fn means(subjects: &[Subject<'_>], series: Option<usize>) -> Vec<Mark> {
    let mark = |(group, y): (usize, f64)| Mark {
        label: "the paper, 150 GB/s".to_owned(),
        x: Some((subjects.len() + group) as f64),
        series,
        y,
    };
    [(0, 0.01), (1, 0.022)].map(mark).into()
}

/// Returns the chart of L2 misses that used the link, counted by the simulator.
fn access_chart(subjects: &[Subject<'_>], runs: &Runs) -> Chart {
    let column = |timings: &Timings, name: &str| {
        Column::of(subjects, |subject| share(timings, subject.name), crate::arithmetic).bars(name)
    };
    let series = vec![column(&runs.imposed, "imposed"), column(&runs.own, "our data, D78")];
    let y = AxisInfo::new("accesses that need the link", Unit::Percent).starting_at(0.0);
    bar_chart("Buddy accesses, counted in simulation", subjects, y, series)
}

/// Returns the share of L2's memory accesses that used the link.
fn share(timings: &Timings, program: &str) -> Option<f64> {
    Some(timings.get(&Point::new(program, Mode::Buddy))?.buddy_accesses)
}

/// Returns the mean slowdowns of the imposed design, as it is and changed.
fn causes_table(subjects: &[Subject<'_>], imposed: &Timings) -> Grid {
    let columns = [("imposed design", Unit::Number), ("HPC", Unit::Percent), ("DL", Unit::Percent)];
    let row = |name: &str, column: Column| -> Vec<GridCell> {
        vec![name.into(), slower(column.hpc).into(), slower(column.dl).into()]
    };
    let mut rows = vec![
        row("as it is", buddy(subjects, imposed, 150)),
        row("compressed bandwidth alone", bandwidth(subjects, imposed)),
    ];
    rows.extend(causes().iter().map(|cause| row(&cause.change, buddy(subjects, &cause.timings, 150))));
    Grid {
        title: "Slowdown at 150 GB/s of the imposed design, as it is and changed, simulated".to_owned(),
        columns: columns.map(|(name, unit)| (name.to_owned(), unit)).into(),
        rows,
    }
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
    use crate::figures::made::{bar, chart, findings, near, report, simulated};

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
    fn slowdowns_are_relative_to_the_ideal_gpu() {
        let found = found();
        let (subjects, here) = (found.subjects(), Timings::of(&found));
        let of = |name: &str| {
            let stated = STATED.iter().find(|stated| stated.name.starts_with(name)).unwrap();
            (stated.of)(&subjects, &here)
        };
        // 1000 / 1000 and 900 / 900; 750 / 600.
        near(of("Slowdown, 150 GB/s, HPC"), 0.0);
        near(of("Slowdown, 150 GB/s, DL"), 0.25);
        near(of("Slowdown, 150 GB/s, AlexNet"), 0.25);
        near(of("Slowdown, 50 GB/s, AlexNet"), 1.0);
        // 1.25, 1 and 1.2: their product is 1.5.
        near(of("Gain of compressed bandwidth alone"), 1.5_f64.cbrt() - 1.0);
        // 1.25, 1 and 1.
        near(of("Gain at 200 GB/s"), 1.25_f64.cbrt() - 1.0);
        // 2, 1 and 2.
        near(of("Slowdown, 50 GB/s, all"), 4.0_f64.cbrt() - 1.0);
        let figure = Performance.draw(&found);
        near(bar(chart(&figure, 7), "buddy, 100 GB/s", "354.cg"), 0.25);
        near(bar(chart(&figure, 7), "bandwidth only", "HPC mean"), 0.8_f64.sqrt() - 1.0);
    }

    #[test]
    fn accesses_are_those_at_the_papers_link() {
        let mut found = found();
        let mut one = report(1000);
        one.buddy.buddy_access_share = 0.1;
        found.reports.insert(Point::new("alexnet", Mode::Buddy), one);
        assert_eq!(share(&Timings::of(&found), "alexnet"), Some(0.1));
    }

    /// The numbers compared with the paper are the recorded ones of all sixteen, whatever this run
    /// simulated.
    #[test]
    fn recorded_simulations_are_compared_with_the_paper() {
        let figure = Performance.draw(&found());
        assert_eq!(figure.quantities, Performance.draw(&findings()).quantities);
        assert!(figure.quantities.iter().all(|one| one.ours.is_some()));
        for (panel, bars) in [(1, 18), (2, 18), (3, 17)] {
            let slowdowns = chart(&figure, panel);
            // Sixteen and two means; the third chart leaves seismic out.
            assert!(slowdowns.series.iter().all(|one| one.points.len() == bars), "{}", slowdowns.title);
        }
    }

    #[test]
    fn every_statement_has_a_number_with_every_design() {
        let (found, runs) = (findings(), Runs::recorded());
        let rows = claims(&found.subjects(), &runs).rows;
        assert!(rows.iter().flatten().all(|cell| *cell != GridCell::Empty), "{rows:?}");
    }

    #[test]
    fn gains_and_costs_of_the_imposed_design_are_known_of_both_groups() {
        let found = findings();
        let rows = causes_table(&found.subjects(), &Timings::imposed()).rows;
        for change in ["a codec without latency", "no zero entries", "16 KiB of metadata cache"] {
            let row = rows.iter().find(|row| row[0] == change.into()).unwrap();
            assert!(row.iter().all(|cell| *cell != GridCell::Empty), "{row:?}");
        }
    }

    /// 5.4% of AlexNet's entries overflow; its kernels access them somewhat less often than others.
    #[test]
    fn the_imposed_overflow_reaches_the_link() {
        let accesses = share(&Timings::imposed(), "alexnet").unwrap();
        assert!((0.04..0.054).contains(&accesses), "{accesses}");
    }

    #[test]
    fn an_outlier_is_named_and_does_not_flatten_the_rest() {
        let found = findings();
        let subjects = found.subjects();
        let chart_of = |seismic: f64| {
            let shares = subjects.iter().map(|one| Some(if one.name == "seismic" { seismic } else { 0.1 }));
            slowdown_chart("Slowdown", &subjects, vec![SeriesInfo::bars("buddy", shares)])
        };
        let far = without_outlier(&subjects, chart_of(-0.5));
        assert_eq!(bar(&far, "buddy", "355.seismic"), None);
        assert_eq!(far.series[0].points.len(), 15);
        assert_eq!(far.title, "Slowdown (off the scale: 355.seismic, -50.0% to -50.0%)");
        assert_eq!(without_outlier(&subjects, chart_of(-0.2)), chart_of(-0.2), "twice as far is drawn");
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
