//! Hit rates of the metadata cache by its size.

use buddy_record::{AxisInfo, Figure, Grid, GridCell, Panel, SeriesInfo, Unit};
use buddy_sim::Mode;

use super::{line_chart, of_this_run};
use crate::{
    About, Experiment, Findings, Point, Settings, Subject,
    performance::{Row, Timings, caches, compressed_caches},
};

/// The metadata cache from 16 to 512 KiB.
#[derive(Debug)]
pub struct Metadata;

/// Slices of the paper's GPU, and bytes of metadata cache in each.
const SLICES: u32 = 32;
const BYTES: [u32; 6] = [512, 1024, 2048, 4096, 8192, 16_384];
/// Size in the paper's GPU.
const OWN: u32 = 4096;

impl Experiment for Metadata {
    fn about(&self) -> About {
        About {
            name: "fig5b",
            title: "The metadata cache",
            place: "Figure 5b, section 3.2",
            text: "The share of lookups that find the four bits of their entry on chip, by the size of all slices \
                   together, with everything compressed, simulated. The paper finds high rates in most programs, and lower \
                   ones in 351.palm and 355.seismic. The evaluated GPU has 128 KiB. The first two charts are recorded: of \
                   programs with 64 MB, half of which 128 KiB cover, with the imposed sizes of figure 11; and of 20 million \
                   warp instructions of a network's iteration with its own sizes. The table is recorded with D78, of programs \
                   with a fifth of the paper's footprint. The last chart is of this run.",
        }
    }

    fn points(&self, found: &Findings) -> Vec<Point> {
        // A quick run takes fewer sizes, and the HPC programs only.
        let quick = found.settings == Settings::QUICK;
        let subjects = if quick { found.hpc() } else { found.subjects() };
        let sizes = BYTES.into_iter().filter(|bytes| !quick || [BYTES[0], OWN].contains(bytes));
        let of =
            |subject: &Subject<'_>| sizes.clone().map(|bytes| point(subject.name, bytes)).collect::<Vec<_>>();
        subjects.iter().flat_map(of).collect()
    }

    fn draw(&self, found: &Findings) -> Figure {
        let x = AxisInfo::new("KiB of metadata cache", Unit::Count).logarithmic();
        let y = AxisInfo::new("hit rate", Unit::Percent);
        let subjects = found.subjects();
        let rows = compressed_caches();
        let recorded = |title: &str, hpc: bool| {
            let shown = subjects.iter().filter(|subject| subject.hpc == hpc);
            line_chart(
                title,
                x.clone(),
                y.clone(),
                shown.filter_map(|one| recorded_line(&rows, one)).collect(),
            )
        };
        let charts = [
            recorded("Hit rate by size: programs, recorded", true),
            recorded("Hit rate by size: networks, recorded", false),
        ];
        let lines = subjects.iter().filter_map(|one| line(found, one)).collect();
        let here = line_chart("Hit rate by size: this run", x.clone(), y.clone(), lines);
        let panels = charts.map(Panel::Chart).into_iter();
        Figure {
            panels: panels.chain([Panel::Table(table(&caches()))]).chain(of_this_run(here)).collect(),
            missing: found.missing(),
            deviations: vec![10, 78],
            ..self.about().figure()
        }
    }
}

/// Compresses everything, so that every program looks metadata up.
fn point(program: &str, bytes: u32) -> Point {
    let (targets, metadata_bytes) = (Some("compressed".to_owned()), Some(bytes));
    Point { targets, metadata_bytes, ..Point::new(program, Mode::Buddy) }
}

fn line(found: &Findings, subject: &Subject<'_>) -> Option<SeriesInfo> {
    let rate = |bytes: u32| {
        let report = found.reports.get(&point(subject.name, bytes))?;
        // A program without compressed memory has no look-ups.
        let lookups = report.buddy.metadata_hits + report.buddy.metadata_misses;
        (lookups > 0).then(|| (f64::from(bytes * SLICES / 1024), report.buddy.metadata_hit_rate))
    };
    let points: Vec<(f64, f64)> = BYTES.into_iter().filter_map(rate).collect();
    (points.len() > 1).then(|| SeriesInfo::new(subject.label, points))
}

fn recorded_line(rows: &[Row], subject: &Subject<'_>) -> Option<SeriesInfo> {
    let own = rows.iter().filter(|row| row.program == subject.name && row.timing.metadata_hits > 0.0);
    let mut points: Vec<(f64, f64)> =
        own.map(|row| (row.metadata * f64::from(SLICES) / 1024.0, row.timing.metadata_hits)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    (points.len() > 1).then(|| SeriesInfo::new(subject.label, points))
}

/// Returns hit rate and speed relative to the ideal GPU, for every recorded cache.
fn table(rows: &[Row]) -> Grid {
    let (timings, paper) = (Timings::recorded(), |name: &str| Point::new(name, Mode::Buddy));
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by(|a, b| {
        a.program
            .cmp(&b.program)
            .then((a.metadata, b.line).partial_cmp(&(b.metadata, a.line)).expect("numbers"))
    });
    let columns = [
        ("program", Unit::Count),
        ("KiB in all", Unit::Count),
        ("bytes of a line", Unit::Count),
        ("metadata found", Unit::Percent),
        ("speed", Unit::Ratio),
    ];
    let line = |row: &Row| {
        let own = timings.get(&paper(&row.program)).map(|own| own.cycles / row.timing.cycles);
        let speed = timings.speed(&paper(&row.program)).zip(own).map(|(speed, more)| speed * more);
        let numbers = [row.metadata * f64::from(SLICES) / 1024.0, row.line, row.timing.metadata_hits];
        let cells = numbers.map(GridCell::from).into_iter().chain([GridCell::from(speed)]);
        std::iter::once(GridCell::from(row.program.as_str())).chain(cells).collect()
    };
    Grid {
        title: "Metadata caches at a fifth of the paper's footprint, 150 GB/s".to_owned(),
        columns: columns.map(|(name, unit)| (name.to_owned(), unit)).into(),
        rows: sorted.into_iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{chart, findings, points, report};

    /// 32 slices of 512 bytes are 16 KiB, of 4096 are 128 KiB.
    #[test]
    fn rates_are_drawn_over_the_size_of_all_slices() {
        let mut found = findings();
        for (bytes, rate) in [(512, 0.25), (4096, 0.75)] {
            let mut one = report(1);
            one.buddy.metadata_hit_rate = rate;
            one.buddy.metadata_hits = 1;
            found.reports.insert(point("cg", bytes), one);
            found.reports.insert(point("sp", bytes), report(1));
        }
        let figure = Metadata.draw(&found);
        assert_eq!(points(chart(&figure, 3), "354.cg"), [(16.0, 0.25), (128.0, 0.75)]);
        assert_eq!(chart(&figure, 3).series.len(), 1, "no line without look-ups or simulations");
    }

    #[test]
    fn all_sixteen_are_recorded_and_hit_rates_grow_with_the_cache() {
        let figure = Metadata.draw(&findings());
        let lines: Vec<&SeriesInfo> =
            [0, 1].iter().flat_map(|panel| &chart(&figure, *panel).series).collect();
        assert_eq!(lines.len(), 16);
        for line in lines {
            assert!(line.points.is_sorted_by(|a, b| a.1 <= b.1 + 1e-3), "{line:?}");
            assert!(line.points.len() >= 4, "{line:?}");
        }
        let rows = caches();
        let own = rows.iter().find(|row| row.metadata == f64::from(OWN) && row.line == 128.0).unwrap();
        let speed = Timings::recorded().speed(&Point::new(&own.program, Mode::Buddy));
        let line = table(std::slice::from_ref(own)).rows.remove(0);
        assert_eq!(line[4], GridCell::from(speed));
    }

    #[test]
    fn a_quick_run_takes_two_sizes_of_the_ten_programs() {
        assert_eq!(Metadata.points(&findings()).len(), 20);
        let whole = Findings { settings: Settings::DEFAULT, ..findings() };
        assert_eq!(Metadata.points(&whole).len(), 6 * 16);
    }
}
