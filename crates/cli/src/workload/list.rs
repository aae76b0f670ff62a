//! `buddy workload list`.

use std::io::{self, Write};

use anyhow::{Context, Result};
use buddy_report::{Align, Cell, Column, Table};
use buddy_scenario::decimal;
use buddy_workloads::{ALL, Info};
use clap::Args;

/// List the workloads: the paper's program, footprints and method
///
/// The footprint is the size of all arrays. It is close to the requested scale, from 1 MB to the
/// paper's footprint.
#[derive(Args)]
pub(crate) struct List {}

impl List {
    pub(crate) fn run(self) -> Result<()> {
        io::stdout().write_all(table().to_text().as_bytes()).context("cannot write to stdout")
    }
}

fn table() -> Table {
    let column = |name, align| Column { name, group: "", align };
    let columns = vec![
        column("name", Align::Left),
        column("the paper ran", Align::Left),
        column("in", Align::Right),
        column("at 1MB", Align::Right),
        column("at 0.25", Align::Right),
        column("at 1", Align::Right),
        column("method", Align::Left),
    ];
    Table { columns, rows: ALL.iter().map(row).collect(), total: Vec::new() }
}

fn row(info: &Info) -> Vec<Cell> {
    let ran = format!("{} of {}", info.paper_name, info.suite());
    let at = |bytes| decimal((info.footprint)(bytes));
    let (quarter, paper) = (at(info.paper_bytes / 4), at(info.paper_bytes));
    let cells = [info.name, &ran, &decimal(info.paper_bytes), &at(1_000_000), &quarter, &paper, info.method];
    cells.map(Cell::text).into()
}
