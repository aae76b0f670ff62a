//! Table, chart and figure panels of a correlation.

use buddy_record::{AxisInfo, Chart, Grid, GridCell, Panel, SeriesInfo, Shape, Unit};
use buddy_report::{Align, Cell, Column, Table, count, share};

use super::{Agreement, Correlation, CorrelationRow};

/// Number of worst kernels listed.
const WORST: usize = 10;

/// Returns a table of all kernels.
pub fn table(found: &Correlation) -> Table {
    let column = |name, align| Column { name, group: "", align };
    let names = ["kernel", "group"].map(|name| column(name, Align::Left));
    let numbers = ["card us", "model us", "model / card", "instructions", "unknown"];
    let row = |row: &CorrelationRow| {
        let time = |ns: f64| Cell::number(ns / 1e3, format!("{:.2}", ns / 1e3));
        vec![
            Cell::text(&row.name),
            Cell::text(&row.group),
            time(row.card_ns),
            time(row.model_ns),
            Cell::number(row.ratio(), format!("{:.3}", row.ratio())),
            Cell::number(row.instructions as f64, count(row.instructions)),
            Cell::number(row.unknown as f64, count(row.unknown)),
        ]
    };
    Table {
        columns: names.into_iter().chain(numbers.map(|name| column(name, Align::Right))).collect(),
        rows: found.rows.iter().map(row).collect(),
        total: Vec::new(),
    }
}

/// Returns the agreement of each group as lines of text.
pub fn summary(found: &Correlation) -> Vec<String> {
    let r = |r: Option<f64>| r.map_or("-".to_owned(), |r| format!("{r:.3}"));
    let line = |one: &Agreement| {
        format!(
            "{:<12} {:>3} kernels: mean error {}, median {}, mean {} {}, r {} (of logarithms {})",
            one.group,
            one.kernels,
            share(one.mean_error),
            share(one.median_error),
            share(one.mean_signed_error.abs()),
            if one.mean_signed_error < 0.0 { "too fast" } else { "too slow" },
            r(one.r),
            r(one.r_log)
        )
    };
    found.groups.iter().map(line).collect()
}

/// Returns a chart of model time over measured time by group, with bands around equality.
pub fn chart(found: &Correlation) -> Chart {
    let axis = |name| AxisInfo::new(name, Unit::Number).logarithmic();
    let ends = found.rows.iter().map(|row| row.card_ns / 1e3);
    let (low, high) = ends.fold((f64::MAX, 0f64), |(low, high), time| (low.min(time), high.max(time)));
    let line = |name: &str, factor: f64| SeriesInfo {
        guide: true,
        ..SeriesInfo::new(name, vec![(low, factor * low), (high, factor * high)])
    };
    let bands = [("equal", 1.0), ("+20%", 1.2), ("-20%", 0.8), ("twice", 2.0), ("half", 0.5)];
    let mut series: Vec<SeriesInfo> =
        found.groups.iter().skip(1).map(|group| points(found, &group.group)).collect();
    series.extend(bands.map(|(name, factor)| line(name, factor)));
    Chart {
        title: format!("{}: {} on the model of {}", found.what, found.card, found.spec),
        shape: Shape::Points,
        x: axis("card, microseconds"),
        y: axis("model, microseconds"),
        groups: Vec::new(),
        series,
        marks: Vec::new(),
    }
}

fn points(found: &Correlation, group: &str) -> SeriesInfo {
    let mut rows: Vec<&CorrelationRow> = found.rows.iter().filter(|row| row.group == group).collect();
    rows.sort_by(|a, b| a.card_ns.total_cmp(&b.card_ns));
    let points = rows.iter().map(|row| (row.card_ns / 1e3, row.model_ns / 1e3)).collect();
    SeriesInfo { labels: rows.iter().map(|row| row.name.clone()).collect(), ..SeriesInfo::new(group, points) }
}

/// Returns the chart, the agreement of the groups, and the worst kernels.
pub fn panels(found: &Correlation) -> Vec<Panel> {
    let number = |value: Option<f64>| value.map_or(GridCell::Empty, GridCell::Number);
    let group = |one: &Agreement| {
        vec![
            GridCell::from(one.group.as_str()),
            GridCell::Number(one.kernels as f64),
            GridCell::Number(one.mean_error),
            GridCell::Number(one.median_error),
            GridCell::Number(one.mean_signed_error),
            number(one.r),
            number(one.r_log),
        ]
    };
    let columns =
        |names: &[(&str, Unit)]| names.iter().map(|(name, unit)| ((*name).to_owned(), *unit)).collect();
    let agreement = Grid {
        title: format!("{} on {}: by group", found.what, found.card),
        columns: columns(&[
            ("group", Unit::Count),
            ("kernels", Unit::Count),
            ("mean error", Unit::Percent),
            ("median error", Unit::Percent),
            ("mean, signed", Unit::Percent),
            ("r", Unit::Number),
            ("r of logarithms", Unit::Number),
        ]),
        rows: found.groups.iter().map(group).collect(),
    };
    let worst = |row: &&CorrelationRow| {
        let numbers = [row.card_ns / 1e3, row.model_ns / 1e3, row.ratio()].map(GridCell::Number);
        [GridCell::from(row.name.as_str()), GridCell::from(row.group.as_str())]
            .into_iter()
            .chain(numbers)
            .collect()
    };
    let worst = Grid {
        title: format!("{}: the worst ten", found.what),
        columns: columns(&[
            ("kernel", Unit::Count),
            ("group", Unit::Count),
            ("card, us", Unit::Number),
            ("model, us", Unit::Number),
            ("model / card", Unit::Number),
        ]),
        rows: found.worst(WORST).iter().map(worst).collect(),
    };
    vec![Panel::Chart(chart(found)), Panel::Table(agreement), Panel::Table(worst)]
}
