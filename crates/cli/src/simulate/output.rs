//! A run or a sweep as a table, a record and a page.

use std::io::{self, Write};

use anyhow::{Context, Result};
use buddy_core::{Record, RecordKind};
use buddy_report::{Align, Axis, Cell, Column, Page, Series, Table, bar_chart, count, share};
use buddy_scenario::{Done, Point, Scenario};
use buddy_sim::Report;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Run;

/// All runs of a sweep.
#[derive(Debug, Serialize, Deserialize)]
struct Runs {
    what: String,
    runs: Vec<OneRun>,
}

/// One run: what was swept, and what came out.
#[derive(Debug, Serialize, Deserialize)]
struct OneRun {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    settings: String,
    targets: Option<String>,
    metadata_bytes: Option<u32>,
    oversubscription: f64,
    report: Report,
}

impl RecordKind for Runs {
    const KIND: &'static str = "simulation-sweep";
    const VERSION: u32 = 1;
}

/// Prints a line for each run, with times relative to the first, and what is a guess.
pub(crate) fn print(runs: &[Run<'_>]) -> Result<()> {
    let (table, remark) = (table(runs).to_text(), remark(runs).unwrap_or_default());
    write!(io::stdout().lock(), "{table}{remark}").context("cannot write to stdout")
}

/// Which opcodes are not known, if there are any; all runs have the same.
fn remark(runs: &[Run<'_>]) -> Option<String> {
    let report = &runs.first()?.done.report;
    let (unknown, whole) = (report.unknown_opcodes(), report.instructions.max(1));
    let sum: u64 = unknown.values().sum();
    let names: Vec<String> =
        unknown.iter().map(|(name, times)| format!("{name} {}", count(*times))).collect();
    (sum > 0).then(|| {
        format!(
            "{} warp instructions ({}) have opcodes that are not known; they are timed as integer instructions, or as \
             loads and stores where they have addresses: {}\n",
            count(sum),
            share(sum as f64 / whole as f64),
            names.join(", ")
        )
    })
}

fn table(runs: &[Run<'_>]) -> Table {
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
    let settings = runs.iter().any(|run| !run.settings.is_empty());
    let own = settings.then(|| column("settings", Align::Left));
    let numbers = numbers.map(|name| column(name, Align::Right));
    let columns = own.into_iter().chain(texts).chain(numbers).collect();
    let first = runs.first().map_or(1, |run| run.done.report.cycles.max(1));
    Table { columns, rows: runs.iter().map(|run| row(run, settings, first)).collect(), total: Vec::new() }
}

fn row(run: &Run<'_>, settings: bool, first: u64) -> Vec<Cell> {
    let (point, report) = (&run.scenario.point, &run.done.report);
    let own = settings.then(|| Cell::text(run.settings));
    own.into_iter().chain(cells(point, report, first)).collect()
}

fn cells(point: &Point, report: &Report, first: u64) -> Vec<Cell> {
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
pub(crate) fn record(what: &str, runs: &[Run<'_>], single: bool) -> String {
    if let ([Run { scenario, done, .. }], true) = (runs, single) {
        let mut record = Record::new(done.report.clone());
        record.spec = scenario.spec(what);
        return record.to_json();
    }
    let run = |Run { scenario: Scenario { point, .. }, done, settings }: &Run<'_>| OneRun {
        settings: (*settings).to_owned(),
        targets: point.targets.clone(),
        metadata_bytes: point.metadata_bytes,
        oversubscription: point.oversubscription.get(),
        report: done.report.clone(),
    };
    let mut record = Record::new(Runs { what: what.to_owned(), runs: runs.iter().map(run).collect() });
    record.spec = Value::Array(runs.iter().map(|run| run.scenario.spec(what)).collect());
    record.to_json()
}

/// A page with a bar for each run and the table.
pub(crate) fn page(what: &str, runs: &[Run<'_>]) -> String {
    let names: Vec<String> = runs
        .iter()
        .map(|Run { done: Done { report, .. }, settings, .. }| {
            format!("{settings} {} {} {}", report.gpu, report.mode.name(), report.link)
                .trim_start()
                .to_owned()
        })
        .collect();
    let groups: Vec<&str> = names.iter().map(String::as_str).collect();
    let first = runs.first().map_or(1.0, |run| run.done.report.cycles.max(1) as f64);
    let values = runs.iter().map(|run| run.done.report.cycles as f64 / first).collect();
    let axis = Axis { name: "time, relative to the first run", format: |value| format!("{value:.2}") };
    let chart = bar_chart(&groups, &[Series { name: "time".to_owned(), values }], axis);
    let tool = concat!("buddy ", env!("CARGO_PKG_VERSION"));
    Page::new(&format!("Simulation of {what}"), "Cycles of a modelled GPU, less is better.")
        .section("Time", "", &chart)
        .section("Runs", &remark(runs).unwrap_or_default(), &table(runs).to_html())
        .render(tool)
}
