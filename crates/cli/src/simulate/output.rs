//! Text and record of a run or a sweep.

use std::io::{self, Write};

use anyhow::{Context, Result};
use buddy_record::{Record, RecordKind};
use buddy_report::{Align, Cell, Column, Table, count, number, share};
use buddy_scenario::{Point, Scenario};
use buddy_sim::Report;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Run,
    measures::{MEASURES, Measure, SPARE, SPEED},
};

/// Columns of a plain terminal.
const TERMINAL: usize = 80;
pub(super) const TOOL: &str = concat!("buddy ", env!("CARGO_PKG_VERSION"));

/// All runs of a sweep.
#[derive(Debug, Serialize, Deserialize)]
struct Runs {
    what: String,
    runs: Vec<OneRun>,
}

/// One run: swept settings and report.
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

/// Prints the shared settings, the metrics with their meaning, and a remark on assumptions.
pub(crate) fn print(what: &str, runs: &[Run<'_>]) -> Result<()> {
    let Some(first) = runs.first() else { return Ok(()) };
    let mut text = format!("{what}: {}\n", words(&settings(runs, true)));
    text += &match runs {
        [run] => figures(run),
        _ => {
            let (table, left_out) = narrow(table(runs));
            table.to_text() + &meanings(runs, &left_out)
        }
    };
    text += &remark(first).unwrap_or_default();
    io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")
}

/// Returns a remark on unknown opcodes, which all runs share.
pub(super) fn remark(first: &Run<'_>) -> Option<String> {
    let report = &first.done.report;
    let (unknown, whole) = (report.unknown_opcodes(), report.instructions.max(1));
    let sum: u64 = unknown.values().sum();
    let names: Vec<String> =
        unknown.iter().map(|(name, times)| format!("{name} {}", count(*times))).collect();
    (sum > 0).then(|| {
        format!(
            "{} warp instructions ({}) have unknown opcodes; they are timed as integer instructions, or as \
             loads and stores where they have addresses: {}\n",
            count(sum),
            share(sum as f64 / whole as f64),
            names.join(", ")
        )
    })
}

/// Returns the settings of a run by name; unset ones are empty.
fn own(run: &Run<'_>) -> [(&'static str, String); 7] {
    let (point, report) = (&run.scenario.point, &run.done.report);
    [
        ("GPU", report.gpu.clone()),
        ("mode", report.mode.name().to_owned()),
        ("link", link(run)),
        ("target", point.targets.clone().unwrap_or_default()),
        (
            "metadata",
            point
                .effective()
                .metadata_bytes
                .map_or_else(String::new, |bytes| format!("{} B", count(bytes.into()))),
        ),
        ("over", oversubscribed(point)),
        ("settings", run.settings.to_owned()),
    ]
}

/// Returns the link, or nothing if the run does not use it.
fn link(run: &Run<'_>) -> String {
    let is_used = run.scenario.config.timed_copies || !run.scenario.point.ignores("link");
    if is_used { run.done.report.link.clone() } else { String::new() }
}

fn oversubscribed(point: &Point) -> String {
    let over = point.oversubscription.get();
    if over == 0.0 { String::new() } else { share(over) }
}

/// Returns, for each run, the settings that all runs share, or those that differ.
pub(super) fn settings(runs: &[Run<'_>], same: bool) -> Vec<Vec<(&'static str, String)>> {
    let all: Vec<_> = runs.iter().map(own).collect();
    let kept = |at: usize| all.iter().all(|one| one[at].1 == all[0][at].1) == same;
    let of = |one: &[(&'static str, String); 7]| {
        (0..one.len()).filter(|at| kept(*at)).map(|at| one[at].clone()).collect()
    };
    all.iter().map(of).collect()
}

/// `GPU paper, mode buddy, link 150`.
pub(super) fn words(settings: &[Vec<(&'static str, String)>]) -> String {
    let known = settings.first().into_iter().flatten().filter(|(_, value)| !value.is_empty());
    known.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

/// Returns the metrics that at least one run has.
pub(super) fn shown<'a>(runs: &'a [Run<'_>]) -> impl Iterator<Item = &'static Measure> + 'a {
    let single = runs.len() == 1;
    MEASURES
        .iter()
        .filter(move |one| !(single && one.name == SPEED) && runs.iter().any(|run| one.of(run).is_some()))
}

pub(super) fn cell(measure: &Measure, run: &Run<'_>) -> Cell {
    let value = measure.of(run);
    value.map_or_else(|| Cell::text("-"), |value| Cell::number(value, number(measure.unit, value)))
}

/// Lists the metrics of one run with their meanings.
fn figures(run: &Run<'_>) -> String {
    let one = std::slice::from_ref(run);
    let line = |measure: &Measure| {
        let value = measure.of(run).map_or_else(String::new, |value| number(measure.unit, value));
        format!("  {:<10} {value:>12}  {}\n", measure.name, measure.about(run))
    };
    shown(one).map(line).collect()
}

/// Explains the columns of a table, and names the omitted ones.
fn meanings(runs: &[Run<'_>], left_out: &[&str]) -> String {
    let line = |measure: &Measure| format!("  {:<10} {}\n", measure.name, measure.about(&runs[0]));
    let kept = shown(runs).filter(|measure| !left_out.contains(&measure.name));
    let more = match left_out {
        [] => String::new(),
        names => format!("  --json and --html have more: {}\n", names.join(", ")),
    };
    format!("\n{}{more}", kept.map(line).collect::<String>())
}

/// Narrows a table to a plain terminal; returns it with the names of the omitted columns.
fn narrow(mut table: Table) -> (Table, Vec<&'static str>) {
    let mut left_out = Vec::new();
    for name in SPARE {
        if table.to_text().lines().all(|line| line.chars().count() <= TERMINAL) {
            break;
        }
        if let Some(at) = table.columns.iter().position(|column| column.name == name) {
            table.columns.remove(at);
            table.rows.iter_mut().for_each(|row| drop(row.remove(at)));
            left_out.push(name);
        }
    }
    (table, left_out)
}

fn table(runs: &[Run<'_>]) -> Table {
    let column = |name, align| Column { name, group: "", align };
    let varied = settings(runs, false);
    let names = varied.first().into_iter().flatten().map(|(name, _)| column(name, Align::Left));
    let numbers = shown(runs).map(|measure| column(measure.name, Align::Right));
    let row = |(run, own): (&Run<'_>, &Vec<(&'static str, String)>)| {
        let own = own.iter().map(|(_, value)| Cell::text(if value.is_empty() { "-" } else { value }));
        own.chain(shown(runs).map(|measure| cell(measure, run))).collect()
    };
    Table {
        columns: names.chain(numbers).collect(),
        rows: runs.iter().zip(&varied).map(row).collect(),
        total: Vec::new(),
    }
}

/// Returns the record of one run, or of all runs of a sweep.
pub(crate) fn record(what: &str, runs: &[Run<'_>], single: bool) -> String {
    if let ([Run { scenario, done, .. }], true) = (runs, single) {
        let mut record = Record::new(done.report.clone());
        record.spec = scenario.spec(what);
        return record.to_json();
    }
    let run = |Run { scenario: Scenario { point, .. }, done, settings, .. }: &Run<'_>| OneRun {
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
