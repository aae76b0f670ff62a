//! Unified Memory and pinned memory with too little device memory.

use buddy_record::{AxisInfo, Chart, Figure, Grid, GridCell, Origin, Panel, Quantity, SeriesInfo, Unit};
use buddy_sim::Mode;
use buddy_workloads::ALL;

use super::line_chart;
use crate::{
    About, Experiment, Findings, Point, Settings, Share,
    experiment::{Explained, quantity},
    performance::{AtCapacity, at_capacity},
};

/// Three programs at growing capacity: Unified Memory, pinned memory and Buddy Compression.
#[derive(Debug)]
pub struct UnifiedMemory;

/// Our choice; the paper does not name its three.
const PROGRAMS: [&str; 3] = ["palm", "sp", "ilbdc"];
/// Bytes of all memory over those of device memory, and the percent that do not fit.
const CAPACITIES: [(f64, u32); 4] = [(10.0 / 9.0, 10), (1.25, 20), (10.0 / 7.0, 30), (2.0, 50)];
/// GB/s of three NVLink2 bricks to a Power9.
const LINK: u32 = 75;
/// GB/s of the paper's statement.
const SLOW: u32 = 50;
/// Capacity of the paper's statement.
const STATED: f64 = 1.5;

impl Experiment for UnifiedMemory {
    fn about(&self) -> About {
        About {
            name: "fig12",
            title: "Unified Memory, pinned memory and Buddy Compression at equal capacity",
            place: "Figure 12, section 4.3",
            text: "Time of three programs beside a V100 that holds everything, by capacity: the bytes of all memory over \
                   those of device memory. Unified Memory migrates what does not fit, pinned memory is all on the host, \
                   and Buddy Compression has the targets that reach the capacity with the fewest overflowing entries, \
                   whether the data compresses so far or not. The link has 75 GB/s, as the paper's. The paper measured \
                   Unified Memory on hardware; all times here are simulated. The first charts and the table are recorded, \
                   of programs with 32 MB; charts of a run that is not quick follow.",
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
        panels.push(Panel::Table(table(&recorded)));
        panels.extend(charts(&here, "this run"));
        Figure { quantities: quantities(&recorded), panels, deviations: vec![74], ..self.about().figure() }
    }
}

fn quantities(rows: &[AtCapacity]) -> Vec<Quantity> {
    let worst = |link: u32, capacity: f64| {
        let is_it = |row: &&AtCapacity| {
            (row.mode, row.link) == (Mode::Buddy, link) && (row.capacity - capacity).abs() < 1e-6
        };
        rows.iter().filter(is_it).map(|row| row.time).reduce(f64::max)
    };
    let of = |name: &str, capacity| {
        quantity(name, Unit::Ratio, 1.67, worst(SLOW, capacity), "section 4.3")
            .explained(74)
            .made(Origin::Simulated)
    };
    vec![
        of("Largest time of the three with Buddy Compression, 50% too much, 50 GB/s", STATED),
        of("Largest time of the three with Buddy Compression, capacity 2x, 50 GB/s", 2.0),
    ]
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
        line("Buddy Compression, 50 GB/s", Mode::Buddy, SLOW),
    ];
    line_chart(
        &format!("{}, simulated, {of}", label(program)),
        AxisInfo::new("capacity", Unit::Ratio),
        AxisInfo::new("time, a GPU that holds everything = 1", Unit::Ratio).logarithmic(),
        lines.into_iter().filter(|line| !line.points.is_empty()).collect(),
    )
}

fn table(rows: &[AtCapacity]) -> Grid {
    let columns = [
        ("program", Unit::Number),
        ("design", Unit::Number),
        ("GB/s", Unit::Count),
        ("capacity", Unit::Ratio),
        ("time", Unit::Ratio),
    ];
    let mut sorted: Vec<&AtCapacity> = rows.iter().collect();
    let key = |row: &AtCapacity| (row.program.clone(), design(row.mode), row.link);
    sorted.sort_by(|a, b| key(a).cmp(&key(b)).then(a.capacity.total_cmp(&b.capacity)));
    let line = |row: &&AtCapacity| -> Vec<GridCell> {
        let capacity = (row.mode != Mode::Pinned).then_some(row.capacity);
        let texts = [row.program.as_str(), design(row.mode)].map(GridCell::from);
        texts.into_iter().chain([f64::from(row.link).into(), capacity.into(), row.time.into()]).collect()
    };
    Grid {
        title: "Time at equal capacity".to_owned(),
        columns: columns.map(|(name, unit)| (name.to_owned(), unit)).into(),
        rows: sorted.iter().map(line).collect(),
    }
}

fn design(mode: Mode) -> &'static str {
    match mode {
        Mode::Um => "Unified Memory",
        Mode::Pinned => "pinned memory",
        _ => "Buddy Compression",
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
        let here = chart(&figure, PROGRAMS.len() + 1);
        let at = |times: [f64; 4]| -> Vec<(f64, f64)> {
            CAPACITIES.iter().zip(times).map(|(&(capacity, _), time)| (capacity, time)).collect()
        };
        assert_eq!(points(here, "Unified Memory, 75 GB/s"), at([2.0, 3.0, 4.0, 5.0]));
        assert_eq!(points(here, "Buddy Compression, 75 GB/s"), at([1.1, 1.2, 1.3, 1.4]));
        assert_eq!(points(here, "pinned memory, 75 GB/s"), [(1.0, 3.5), (2.0, 3.5)]);
        assert_eq!(figure.panels.len(), PROGRAMS.len() + 2, "the others were not simulated");
    }

    #[test]
    fn the_papers_statement_is_compared_at_its_capacity() {
        let figure = UnifiedMemory.draw(&findings());
        let [stated, twice] = [
            "Largest time of the three with Buddy Compression, 50%",
            "Largest time of the three with Buddy Compression, capacity 2x",
        ]
        .map(|name| ours(&figure, name).unwrap());
        assert!(1.0 < stated && stated < twice, "{stated}, {twice}");
        assert_eq!(chart(&figure, 0).series.len(), 4);
    }

    #[test]
    fn ten_simulations_of_each_of_three_unless_quick() {
        let whole = Findings { settings: Settings::DEFAULT, ..findings() };
        assert_eq!(UnifiedMemory.points(&whole).len(), 3 * 10);
        assert!(UnifiedMemory.points(&findings()).is_empty());
    }
}
