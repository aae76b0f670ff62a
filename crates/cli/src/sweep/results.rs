//! `buddy sweep table` and `page`: results as text, CSV, JSON lines or an HTML page.

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use anyhow::{Context, Result, bail};
use buddy_record::Grid;
use buddy_report::{grid_text_within, sweep_page};
use buddy_sweep::{Tasks, Tries};
use clap::{Args, ValueEnum};

use super::Which;
use crate::{display::width, output, say};

/// Print the finished results of a sweep as a table
///
/// Columns are settings of the axes (link, l2.bytes), metrics (speed, capacity, seconds, cycles,
/// ipc, overflow, l1_hits, l2_hits, metadata_hits, buddy_accesses, dram_gb_per_s,
/// link_read_gb_per_s, link_written_gb_per_s), key, and any field of a record by its dotted name
/// (report.l2.reads). The speed is relative to ideal memory on the same GPU, or to the first point
/// of the same program if the plan lacks an ideal one. The capacity is the program's bytes divided
/// by the device memory used.
#[derive(Args)]
pub(crate) struct Table {
    #[command(flatten)]
    which: Which,

    /// Print only these columns, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Columns for a terminal
    Text,
    /// Comma-separated values with a header line
    Csv,
    /// One JSON object per point
    Jsonl,
    /// One record with all results and the text of the plan
    Record,
}

impl Table {
    /// Runs the verb.
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

    /// Renders the table as wide as the terminal; chosen columns are never dropped.
    fn text(&self, grid: &Grid) -> String {
        let width = width().filter(|_| self.columns.is_empty());
        grid_text_within(grid, width, &SPARE)
    }
}

/// Metrics that a narrow terminal omits, in this order.
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

/// Write an HTML page of the finished results
///
/// The page has charts of one axis against another as small multiples, the Pareto front of capacity
/// and speed, the best and worst points, and the data to download. Axes and metrics can be chosen
/// in the page. It is one self-contained file.
#[derive(Args)]
pub(crate) struct PageVerb {
    #[command(flatten)]
    which: Which,

    /// File to write [default: PLAN.html next to the plan]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

impl PageVerb {
    /// Runs the verb.
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
            bail!("{plan}: none of its {} points is done; run `buddy sweep {plan}` first", points.len());
        }
        output::write(&path, &sweep_page(&data, concat!("buddy ", env!("CARGO_PKG_VERSION"))))?;
        say(format_args!("{} points in {}", data.rows.len(), path.display()));
        Ok(())
    }
}
