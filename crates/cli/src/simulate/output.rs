//! A run or a sweep as a table, a record and a page.

use std::io::{self, Write};

use anyhow::{Context, Result};
use buddy_core::{Record, RecordKind};
use buddy_report::{Align, Axis, Cell, Column, Page, Series, Table, bar_chart, count, share};
use buddy_scenario::{Done, Point, Scenario};
use buddy_sim::Report;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// All runs of a sweep.
#[derive(Debug, Serialize, Deserialize)]
struct Runs {
    what: String,
    runs: Vec<Run>,
}

/// One run: what was swept, and what came out.
#[derive(Debug, Serialize, Deserialize)]
struct Run {
    targets: Option<String>,
    metadata_bytes: Option<u32>,
    oversubscription: f64,
    report: Report,
}

impl RecordKind for Runs {
    const KIND: &'static str = "simulation-sweep";
    const VERSION: u32 = 1;
}

/// Prints a line for each run, with times relative to the first.
pub(crate) fn print(runs: &[(&Scenario<'_>, &Done)]) -> Result<()> {
    write!(io::stdout().lock(), "{}", table(runs).to_text()).context("cannot write to stdout")
}

fn table(runs: &[(&Scenario<'_>, &Done)]) -> Table {
    let column = |name, align| Column { name, group: "", align };
    let texts = ["GPU", "mode", "link", "target"].map(|name| column(name, Align::Left));
    let numbers = [
        "metadata",
        "over",
        "cycles",
        "relative",
        "IPC",
        "L1 hits",
        "L2 hits",
        "DRAM GB/s",
        "link GB/s",
        "metadata hits",
        "buddy",
    ];
    let columns = texts.into_iter().chain(numbers.map(|name| column(name, Align::Right))).collect();
    let first = runs.first().map_or(1, |(_, done)| done.report.cycles.max(1));
    Table {
        columns,
        rows: runs.iter().map(|(scenario, done)| row(&scenario.point, &done.report, first)).collect(),
        total: Vec::new(),
    }
}

fn row(point: &Point, report: &Report, first: u64) -> Vec<Cell> {
    let rate = |value: f64| Cell::number(value, format!("{value:.1}"));
    let part = |value: f64| Cell::number(value, share(value));
    let relative = report.cycles as f64 / first as f64;
    let link = report.link_traffic.read_gb_per_s + report.link_traffic.written_gb_per_s;
    vec![
        Cell::text(&report.gpu),
        Cell::text(report.mode.name()),
        Cell::text(&report.link),
        Cell::text(point.targets.as_deref().unwrap_or("-")),
        point.metadata_bytes.map_or(Cell::text("-"), |bytes| Cell::number(bytes.into(), count(bytes.into()))),
        part(point.oversubscription.get()),
        Cell::number(report.cycles as f64, count(report.cycles)),
        Cell::number(relative, format!("{relative:.3}")),
        rate(report.ipc),
        part(report.l1.hit_rate),
        part(report.l2.hit_rate),
        rate(report.dram.gb_per_s),
        rate(link),
        part(report.buddy.metadata_hit_rate),
        part(report.buddy.buddy_access_share),
    ]
}

/// The record: of one run, or of all runs of a sweep.
pub(crate) fn record(what: &str, runs: &[(&Scenario<'_>, &Done)], single: bool) -> String {
    if let ([(scenario, done)], true) = (runs, single) {
        let mut record = Record::new(done.report.clone());
        record.spec = scenario.spec(what);
        return record.to_json();
    }
    let run = |(Scenario { point, .. }, done): &(&Scenario<'_>, &Done)| Run {
        targets: point.targets.clone(),
        metadata_bytes: point.metadata_bytes,
        oversubscription: point.oversubscription.get(),
        report: done.report.clone(),
    };
    let mut record = Record::new(Runs { what: what.to_owned(), runs: runs.iter().map(run).collect() });
    record.spec = Value::Array(runs.iter().map(|(scenario, _)| scenario.spec(what)).collect());
    record.to_json()
}

/// A page with a bar for each run and the table.
pub(crate) fn page(what: &str, runs: &[(&Scenario<'_>, &Done)]) -> String {
    let names: Vec<String> = runs
        .iter()
        .map(|(_, Done { report, .. })| format!("{} {} {}", report.gpu, report.mode.name(), report.link))
        .collect();
    let groups: Vec<&str> = names.iter().map(String::as_str).collect();
    let first = runs.first().map_or(1.0, |(_, done)| done.report.cycles.max(1) as f64);
    let values = runs.iter().map(|(_, done)| done.report.cycles as f64 / first).collect();
    let axis = Axis { name: "time, relative to the first run", format: |value| format!("{value:.2}") };
    let chart = bar_chart(&groups, &[Series { name: "time".to_owned(), values }], axis);
    let tool = concat!("buddy ", env!("CARGO_PKG_VERSION"));
    Page::new(&format!("Simulation of {what}"), "Cycles of a modelled GPU, less is better.")
        .section("Time", "", &chart)
        .section("Runs", "", &table(runs).to_html())
        .render(tool)
}
