//! Unified Memory and pinned memory with too little device memory.

use buddy_record::{
    AxisInfo, Chart, Figure, Grid, GridCell, Origin, Panel, Quantity, SeriesInfo, Shape, Unit,
};
use buddy_report::number;
use buddy_sim::Mode;
use buddy_workloads::{ALL, Info};

use super::line_chart;
use crate::{
    About, Experiment, Findings, Point, Settings, Share,
    experiment::{Explained, quantity},
    geometric,
    performance::{AtCapacity, at_capacity},
};

/// Programs at growing capacity: Unified Memory, pinned memory and Buddy Compression.
#[derive(Debug)]
pub struct UnifiedMemory;

/// Programs with lines, which a whole run simulates. The paper does not name its three.
const PROGRAMS: [&str; 3] = ["palm", "sp", "ilbdc"];
/// Bytes of all memory over those of device memory in a whole run, and the percent that do not fit.
const CAPACITIES: [(f64, u32); 4] = [(10.0 / 9.0, 10), (1.25, 20), (10.0 / 7.0, 30), (2.0, 50)];
/// The same of the records.
const RECORDED: [f64; 4] = [1.1, 1.25, 1.5, 2.0];
/// GB/s of three NVLink2 bricks to a Power9.
const LINK: u32 = 75;
/// GB/s of the paper's statement.
const SLOW: u32 = 50;
/// Capacities that the paper's "50%" may mean: half more memory, and half of it missing.
const STATED: [f64; 2] = [1.5, 2.0];
/// Designs by column and bar, each with its mode.
const DESIGNS: [(&str, Mode); 3] =
    [("Unified Memory", Mode::Um), ("pinned memory", Mode::Pinned), ("Buddy Compression", Mode::Buddy)];

impl Experiment for UnifiedMemory {
    fn about(&self) -> About {
        About {
            name: "fig12",
            title: "Unified Memory, pinned memory and Buddy Compression at equal capacity",
            place: "Figure 12, section 4.3",
            text: "Time of programs beside a V100 that holds everything, by capacity: the bytes of all memory over \
                   those of device memory. Unified Memory migrates what does not fit, pinned memory is all on the host, \
                   and Buddy Compression has the targets that reach the capacity with the fewest overflowing entries, \
                   whether the data compresses so far or not. The link has 75 GB/s, as the paper's. The paper measured \
                   Unified Memory on hardware; all times here are simulated. Lines are of three programs over 75 and 50 GB/s, \
                   bars of all ten over 50 GB/s. These charts and the table are recorded, of programs with 32 MB; charts of \
                   a run that is not quick follow.",
        }
    }

    fn points(&self, found: &Findings) -> Vec<Point> {
        // Toy sizes fit the caches, so that their times mean nothing.
        if found.settings == Settings::QUICK {
            return Vec::new();
        }
        let of = |program: &&str| {
            let equal = CAPACITIES.iter().flat_map(|at| [um(program, at), buddy(program, at)]);
            let all = equal.collect::<Vec<_>>().into_iter();
            all.chain([on_v100(program, Mode::Ideal), on_v100(program, Mode::Pinned)])
        };
        PROGRAMS.iter().flat_map(of).collect()
    }

    fn draw(&self, found: &Findings) -> Figure {
        let (recorded, here) = (at_capacity(), simulated(found));
        let charts = |rows: &[AtCapacity], of: &str| {
            let known = PROGRAMS.iter().filter(|program| rows.iter().any(|row| row.program == **program));
            known.map(|program| Panel::Chart(chart(rows, program, of))).collect::<Vec<_>>()
        };
        let mut panels = charts(&recorded, "recorded");
        panels.extend(STATED.map(|capacity| Panel::Chart(bars(&recorded, capacity))));
        panels.push(Panel::Table(table(&recorded)));
        panels.extend(charts(&here, "this run"));
        Figure { quantities: quantities(&recorded), panels, deviations: vec![74], ..self.about().figure() }
    }
}

fn quantities(rows: &[AtCapacity]) -> Vec<Quantity> {
    let worst = |capacity: f64| {
        let times = ALL.iter().filter_map(|info| time(rows, info.name, Mode::Buddy, SLOW, capacity));
        times.reduce(f64::max)
    };
    let of = |name: &str, capacity| {
        quantity(name, Unit::Ratio, 1.67, worst(capacity), "section 4.3")
            .explained(74)
            .made(Origin::Simulated)
    };
    vec![
        of("Largest time with Buddy Compression, 50% too much, 50 GB/s", STATED[0]),
        of("Largest time with Buddy Compression, capacity 2x, 50 GB/s", STATED[1]),
    ]
}

/// Returns the time of a program with a design. Pinned memory has one time at every capacity.
fn time(rows: &[AtCapacity], program: &str, mode: Mode, link: u32, capacity: f64) -> Option<f64> {
    let is_it = |row: &&AtCapacity| {
        (row.program.as_str(), row.mode, row.link) == (program, mode, link)
            && (mode == Mode::Pinned || (row.capacity / capacity - 1.0).abs() < 1e-3)
    };
    rows.iter().find(is_it).map(|row| row.time)
}

fn on_v100(program: &str, mode: Mode) -> Point {
    Point { gpu: "v100".to_owned(), ..Point::new(program, mode).link(LINK) }
}

fn um(program: &str, &(_, percent): &(f64, u32)) -> Point {
    Point { oversubscription: Share::percent(percent), ..on_v100(program, Mode::Um) }
}

fn buddy(program: &str, &(capacity, _): &(f64, u32)) -> Point {
    Point { targets: Some(format!("capacity:{capacity}")), ..on_v100(program, Mode::Buddy) }
}

/// Returns the times of this run.
fn simulated(found: &Findings) -> Vec<AtCapacity> {
    let time = |point: &Point| {
        let ideal = found.reports.get(&on_v100(&point.program, Mode::Ideal))?.cycles;
        Some(found.reports.get(point)?.cycles as f64 / ideal as f64)
    };
    let row = |point: Point, capacity: f64| {
        let (program, mode, time) = (point.program.clone(), point.mode, time(&point)?);
        Some(AtCapacity { program, mode, link: LINK, capacity, time })
    };
    let of = |program: &&str| {
        let equal =
            CAPACITIES.iter().flat_map(|at| [row(um(program, at), at.0), row(buddy(program, at), at.0)]);
        let pinned = row(on_v100(program, Mode::Pinned), 1.0);
        equal.chain([pinned]).flatten().collect::<Vec<_>>()
    };
    PROGRAMS.iter().flat_map(of).collect()
}

/// Returns the chart of one program. Pinned memory costs the same at every capacity.
fn chart(rows: &[AtCapacity], program: &str, of: &str) -> Chart {
    let line = |name: &str, mode: Mode, link: u32| {
        let is_it = |row: &&AtCapacity| (row.program.as_str(), row.mode, row.link) == (program, mode, link);
        let mut points: Vec<(f64, f64)> =
            rows.iter().filter(is_it).map(|row| (row.capacity, row.time)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if let (Mode::Pinned, Some(&(_, time))) = (mode, points.first()) {
            points = vec![(1.0, time), (2.0, time)];
        }
        SeriesInfo::new(name, points)
    };
    let lines = vec![
        line("Unified Memory, 75 GB/s", Mode::Um, LINK),
        line("pinned memory, 75 GB/s", Mode::Pinned, LINK),
        line("Buddy Compression, 75 GB/s", Mode::Buddy, LINK),
        line("Unified Memory, 50 GB/s", Mode::Um, SLOW),
        line("pinned memory, 50 GB/s", Mode::Pinned, SLOW),
        line("Buddy Compression, 50 GB/s", Mode::Buddy, SLOW),
    ];
    line_chart(
        &format!("{}, simulated, {of}", label(program)),
        AxisInfo::new("capacity", Unit::Ratio),
        AxisInfo::new("time, a GPU that holds everything = 1", Unit::Ratio).logarithmic(),
        lines.into_iter().filter(|line| !line.points.is_empty()).collect(),
    )
}

/// Returns the programs that have the times of every design over the slower link.
fn compared(rows: &[AtCapacity]) -> Vec<&'static Info> {
    let is_known = |info: &&Info| {
        let at = STATED.into_iter().flat_map(|capacity| DESIGNS.map(|(_, mode)| (mode, capacity)));
        at.into_iter().all(|(mode, capacity)| time(rows, info.name, mode, SLOW, capacity).is_some())
    };
    ALL.iter().filter(is_known).collect()
}

/// Returns the times of these programs at one capacity over the slower link, with their means.
fn bars(rows: &[AtCapacity], capacity: f64) -> Chart {
    let programs = compared(rows);
    let series = DESIGNS.map(|(name, mode)| {
        let times: Vec<Option<f64>> =
            programs.iter().map(|info| time(rows, info.name, mode, SLOW, capacity)).collect();
        let mean = geometric(times.iter().copied().flatten());
        SeriesInfo::bars(name, times.into_iter().chain([mean]))
    });
    Chart {
        title: format!("Capacity {}, {SLOW} GB/s, simulated, recorded", number(Unit::Ratio, capacity)),
        shape: Shape::Bars,
        x: AxisInfo::new("", Unit::Number),
        y: AxisInfo::new("time, a GPU that holds everything = 1", Unit::Ratio).starting_at(1.0).logarithmic(),
        groups: programs.iter().map(|info| info.paper_name.to_owned()).chain(["mean".to_owned()]).collect(),
        series: series.into(),
        marks: Vec::new(),
    }
}

/// Returns the times of the three designs, a row for each program, link and capacity, and the means
/// of the programs with bars.
fn table(rows: &[AtCapacity]) -> Grid {
    let names = DESIGNS.map(|(name, _)| (name, Unit::Ratio));
    let columns = [("program", Unit::Number), ("GB/s", Unit::Count), ("capacity", Unit::Ratio)];
    let at: Vec<(u32, f64)> =
        [LINK, SLOW].into_iter().flat_map(|link| RECORDED.map(|capacity| (link, capacity))).collect();
    let times = |program: &str, link: u32, capacity: f64| {
        DESIGNS.map(|(_, mode)| time(rows, program, mode, link, capacity))
    };
    let row = |program: &str, link: u32, capacity: f64, times: [Option<f64>; 3]| -> Vec<GridCell> {
        let head = [program.into(), f64::from(link).into(), capacity.into()];
        head.into_iter().chain(times.map(GridCell::from)).collect()
    };
    let (mut lines, mut means) = (Vec::new(), Vec::new());
    for info in ALL {
        // Pinned memory alone has no capacity.
        let known = at.iter().filter(|(link, capacity)| times(info.name, *link, *capacity)[2].is_some());
        lines.extend(
            known.map(|&(link, capacity)| row(info.name, link, capacity, times(info.name, link, capacity))),
        );
    }
    for &(link, capacity) in &at {
        let all: Vec<[Option<f64>; 3]> =
            compared(rows).iter().map(|info| times(info.name, link, capacity)).collect();
        if all.iter().all(|times| times.iter().all(Option::is_some)) {
            let mean = |design: usize| geometric(all.iter().filter_map(|times| times[design]));
            means.push(row("mean", link, capacity, [mean(0), mean(1), mean(2)]));
        }
    }
    Grid {
        title: "Time at equal capacity".to_owned(),
        columns: columns.into_iter().chain(names).map(|(name, unit)| (name.to_owned(), unit)).collect(),
        rows: lines.into_iter().chain(means).collect(),
    }
}

fn label(program: &str) -> &str {
    ALL.iter().find(|info| info.name == program).map_or(program, |info| info.paper_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{chart, findings, ours, points, simulated};

    /// A V100 that holds all of palm takes 100 cycles.
    #[test]
    fn times_are_relative_to_a_gpu_that_holds_everything() {
        let mut found = findings();
        let equal = CAPACITIES.iter().enumerate().flat_map(|(index, at)| {
            let more = 100 * (index as u64 + 1);
            [(um("palm", at), 100 + more), (buddy("palm", at), 100 + more / 10)]
        });
        simulated(&mut found, equal.collect::<Vec<_>>());
        let others = [(on_v100("palm", Mode::Ideal), 100), (on_v100("palm", Mode::Pinned), 350)];
        simulated(&mut found, others);
        let figure = UnifiedMemory.draw(&found);
        // Lines of the three and bars at two capacities are recorded, then comes the table.
        let here = chart(&figure, PROGRAMS.len() + STATED.len() + 1);
        let at = |times: [f64; 4]| -> Vec<(f64, f64)> {
            CAPACITIES.iter().zip(times).map(|(&(capacity, _), time)| (capacity, time)).collect()
        };
        assert_eq!(points(here, "Unified Memory, 75 GB/s"), at([2.0, 3.0, 4.0, 5.0]));
        assert_eq!(points(here, "Buddy Compression, 75 GB/s"), at([1.1, 1.2, 1.3, 1.4]));
        assert_eq!(points(here, "pinned memory, 75 GB/s"), [(1.0, 3.5), (2.0, 3.5)]);
        assert_eq!(figure.panels.len(), PROGRAMS.len() + STATED.len() + 2, "the others were not simulated");
    }

    #[test]
    fn the_papers_statement_is_compared_at_its_capacity() {
        let figure = UnifiedMemory.draw(&findings());
        let [stated, twice] =
            ["Largest time with Buddy Compression, 50%", "Largest time with Buddy Compression, capacity 2x"]
                .map(|name| ours(&figure, name).unwrap());
        assert!(1.0 < stated && stated < twice, "{stated}, {twice}");
        assert_eq!(chart(&figure, 0).series.len(), 6);
    }

    /// Each bar is a row's time, and the last one of a series the mean of the ten.
    #[test]
    fn bars_and_rows_over_the_slower_link_agree() {
        let figure = UnifiedMemory.draw(&findings());
        let Panel::Table(grid) = &figure.panels[PROGRAMS.len() + STATED.len()] else { panic!("a table") };
        let programs = compared(&at_capacity());
        assert_eq!(programs.len(), ALL.len());
        for (index, capacity) in STATED.into_iter().enumerate() {
            let bars = chart(&figure, PROGRAMS.len() + index);
            assert_eq!((bars.series.len(), bars.groups.len()), (DESIGNS.len(), programs.len() + 1));
            for (group, name) in programs.iter().map(|info| info.name).chain(["mean"]).enumerate() {
                let cells = [name.into(), f64::from(SLOW).into(), GridCell::from(capacity)];
                let row = grid.rows.iter().find(|row| row[..3] == cells).unwrap();
                let drawn = bars.series.iter().map(|series| GridCell::from(series.points[group].1));
                assert_eq!(drawn.collect::<Vec<_>>(), row[3..], "{name}");
            }
        }
    }

    #[test]
    fn ten_simulations_of_each_of_three_unless_quick() {
        let whole = Findings { settings: Settings::DEFAULT, ..findings() };
        assert_eq!(UnifiedMemory.points(&whole).len(), 3 * 10);
        assert!(UnifiedMemory.points(&findings()).is_empty());
    }
}
