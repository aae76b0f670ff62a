//! `buddy sweep table` and `page`: results as a table, CSV, JSON lines or a page.

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use anyhow::{Context, Result, bail};
use buddy_core::Grid;
use buddy_report::{grid_text_within, sweep_page};
use buddy_sweep::{Tasks, Tries};
use clap::{Args, ValueEnum};

use super::Which;
use crate::{output, say, showing::width};

/// Print the results that are there
///
/// Columns are settings of the axes (link, l2.bytes), figures (speed, capacity, seconds, cycles, ipc, overflow, l1_hits, l2_hits,
/// metadata_hits, buddy_accesses, dram_gb_per_s, link_read_gb_per_s, link_written_gb_per_s), key, and any field of a record by its
/// dotted name (report.l2.reads). The speed is relative to the first point of the same program, in the order of the plan; the
/// capacity is the program's bytes over the device memory that they take.
#[derive(Args)]
pub(crate) struct Table {
    #[command(flatten)]
    which: Which,

    /// Only these columns, with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,

    /// How it is written
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Columns for a terminal
    Text,
    /// Comma-separated values with a line of names first
    Csv,
    /// An object for each point
    Jsonl,
    /// All of it as one record, with the text of the plan
    Record,
}

impl Table {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        let sweep = self.which.open()?;
        let rows = sweep.rows(&self.columns).map_err(anyhow::Error::msg)?;
        let mut out = BufWriter::new(io::stdout().lock());
        let written = match self.format {
            Format::Text => out.write_all(self.text(&rows.grid).as_bytes()),
            Format::Csv => rows.write_csv(&mut out),
            Format::Jsonl => rows.write_json_lines(&mut out),
            Format::Record => out.write_all(sweep.record(&rows, &self.which.text()?).to_json().as_bytes()),
        };
        written.and_then(|()| out.flush()).context("cannot write to stdout")?;
        if rows.missing > 0 {
            say(format_args!("{} of {} points are not done", rows.missing, sweep.points().len()));
        }
        Ok(())
    }

    /// The table as wide as the terminal, unless its columns were chosen.
    fn text(&self, grid: &Grid) -> String {
        let width = width().filter(|_| self.columns.is_empty());
        grid_text_within(grid, width, &SPARE)
    }
}

/// Figures that a narrow terminal does without, the first of them first.
const SPARE: [&str; 10] = [
    "link_written_gb_per_s",
    "link_read_gb_per_s",
    "l1_hits",
    "l2_hits",
    "ipc",
    "cycles",
    "dram_gb_per_s",
    "overflow",
    "metadata_hits",
    "buddy_accesses",
];

/// Write a page of the results that are there
///
/// Lines for each value of one axis against another in small multiples, the front of capacity and speed, the best and the worst
/// points, and the data to download; the reader chooses axes and figures. The page is one file and loads nothing.
#[derive(Args)]
pub(crate) struct PageVerb {
    #[command(flatten)]
    which: Which,

    /// The file to write; PLAN.html beside the plan unless given
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

impl PageVerb {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        let path = self.out.clone().unwrap_or_else(|| self.which.plan().with_extension("html"));
        output::check(&[("--out", Some(&path))], &[self.which.plan().to_owned()])?;
        let sweep = self.which.open()?;
        let (points, tries) = (sweep.point_tasks(), Tries::of(sweep.store())?);
        let (done, counts) = (points.done(), tries.counts());
        let failed =
            (0..points.len()).filter(|point| !done[*point] && counts.contains_key(&points.digest(*point)));
        let failed = failed.map(|point| (points.name(point), tries.words(points.digest(point)))).collect();
        let data = sweep.data(failed);
        if data.rows.is_empty() && data.failed.is_empty() {
            let plan = self.which.plan().display();
            bail!("{plan}: none of its {} points is done; `buddy sweep {plan}` runs them", points.len());
        }
        output::write(&path, &sweep_page(&data, concat!("buddy ", env!("CARGO_PKG_VERSION"))))?;
        say(format_args!("{} points in {}", data.rows.len(), path.display()));
        Ok(())
    }
}
