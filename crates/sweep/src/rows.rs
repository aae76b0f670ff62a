//! Results as rows: the settings and metrics of each point.

use std::io::{self, Write};

use buddy_record::{Grid, GridCell, Unit};
use buddy_report::{SweepData, csv_text};
use buddy_scenario::Case;
use rayon::prelude::*;
use serde_json::{Map, Value, json};

use crate::{Axis, Outcome, Sweep};

/// Description of the baseline of speeds if the plan has ideal memory.
const IDEAL: &str = "ideal memory on the same GPU";

/// A metric of a result.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Column name.
    pub name: &'static str,
    /// Unit of its numbers.
    pub unit: Unit,
    /// True if higher is better, false if lower is, `None` if neither.
    pub more_is_better: Option<bool>,
    get: fn(&Outcome) -> Option<f64>,
}

const fn metric(
    name: &'static str,
    unit: Unit,
    more: Option<bool>,
    get: fn(&Outcome) -> Option<f64>,
) -> Metric {
    Metric { name, unit, more_is_better: more, get }
}

/// Default columns of a table. The first, `speed`, is relative to ideal memory on the same GPU, or to
/// the first point of the same program if the plan lacks an ideal one.
pub const METRICS: [Metric; 13] = [
    metric("speed", Unit::Ratio, Some(true), |_| None),
    metric("capacity", Unit::Ratio, Some(true), |one| one.capacity),
    metric("seconds", Unit::Number, Some(false), |one| Some(one.report.seconds)),
    metric("cycles", Unit::Count, Some(false), |one| Some(one.report.cycles as f64)),
    metric("ipc", Unit::Number, Some(true), |one| Some(one.report.ipc)),
    metric("overflow", Unit::Percent, Some(false), |one| one.overflow),
    metric("l1_hits", Unit::Percent, Some(true), |one| Some(one.report.l1.hit_rate)),
    metric("l2_hits", Unit::Percent, Some(true), |one| Some(one.report.l2.hit_rate)),
    metric("metadata_hits", Unit::Percent, Some(true), |one| Some(one.report.buddy.metadata_hit_rate)),
    metric("buddy_accesses", Unit::Percent, Some(false), |one| Some(one.report.buddy.buddy_access_share)),
    metric("dram_gb_per_s", Unit::Number, None, |one| Some(one.report.dram.gb_per_s)),
    metric("link_read_gb_per_s", Unit::Number, None, |one| Some(one.report.link_traffic.read_gb_per_s)),
    metric("link_written_gb_per_s", Unit::Number, None, |one| Some(one.report.link_traffic.written_gb_per_s)),
];

/// Results of a sweep with the chosen columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// The columns, and a row per finished point.
    pub grid: Grid,
    /// Points without a complete result.
    pub missing: usize,
}

/// Contents of a column.
enum Column {
    /// A setting: axis, and position in its rows.
    Setting(usize, usize),
    Metric(Metric),
    /// Digest of the point.
    Key,
    /// Any field of the record, such as `report.l2.reads`.
    Field(String),
}

impl Sweep {
    /// Returns the settings with more than one value, in the order of the axes.
    pub fn varied(&self) -> Vec<String> {
        let axes = self.points().plan().axes.iter().filter(|axis| axis.rows.len() > 1);
        axes.flat_map(|axis| axis.keys.clone()).collect()
    }

    /// Returns the finished results; by default the varied settings and every [metric](METRICS).
    ///
    /// # Errors
    /// A message for an unknown column.
    pub fn rows(&self, columns: &[String]) -> Result<Rows, String> {
        let names: Vec<String> = match columns {
            [] => self.varied().into_iter().chain(METRICS.map(|metric| metric.name.to_owned())).collect(),
            chosen => chosen.to_vec(),
        };
        let chosen: Vec<Column> = names.iter().map(|name| self.column(name)).collect::<Result<_, _>>()?;
        let (results, mut rows) = (self.results(), Vec::new());
        self.each(&results, &self.baselines().0, |point, outcome, speed| {
            rows.push(self.row(point, outcome, &chosen, speed)?);
            Ok(())
        })?;
        let missing = results.iter().filter(|one| one.is_none()).count();
        let columns = names.into_iter().zip(chosen.iter().map(Column::unit)).collect();
        Ok(Rows { grid: Grid { title: String::new(), columns, rows }, missing })
    }

    /// Returns the data of the sweep's page.
    pub fn data(&self, failed: Vec<(String, String)>) -> SweepData {
        let plan = self.points().plan();
        let name = |axis: &Axis| axis.keys.join(", ");
        let values = |axis: &Axis| axis.rows.iter().map(|row| row.join(", ")).collect();
        let varied: Vec<usize> =
            (0..plan.axes.len()).filter(|axis| plan.axes[*axis].rows.len() > 1).collect();
        let same = plan.axes.iter().filter(|axis| axis.rows.len() == 1);
        let same: Vec<String> =
            same.map(|axis| format!("{} {}", name(axis), axis.rows[0].join(", "))).collect();
        let columns: Vec<String> = METRICS.map(|metric| metric.name.to_owned()).into();
        let (mut rows, results) = (Vec::new(), self.results());
        let columns: Vec<Column> = columns.iter().filter_map(|name| self.column(name).ok()).collect();
        let (bases, is_ideal) = self.baselines();
        self.each(&results, &bases, |point, outcome, speed| {
            let places = self.points().places(point);
            let figure =
                |cell: &GridCell| if let GridCell::Number(number) = cell { Some(*number) } else { None };
            let figures = self.row(point, outcome, &columns, speed)?.iter().map(figure).collect();
            rows.push((varied.iter().map(|axis| places[*axis]).collect(), figures));
            Ok(())
        })
        .expect("metrics are always present");
        SweepData {
            name: plan.name.clone(),
            axes: varied.iter().map(|axis| (name(&plan.axes[*axis]), values(&plan.axes[*axis]))).collect(),
            metrics: METRICS.map(|one| (one.name.to_owned(), one.unit, one.more_is_better)).into(),
            missing: results.iter().filter(|one| one.is_none()).count(),
            rows,
            same: same.join(", "),
            baseline: if is_ideal { IDEAL.to_owned() } else { String::new() },
            failed,
        }
    }

    fn results(&self) -> Vec<Option<Outcome>> {
        (0..self.points().len()).into_par_iter().map(|point| self.outcome(point)).collect()
    }

    /// Returns the point that each point's speed is relative to, and whether all of them are ideal
    /// memory.
    fn baselines(&self) -> (Vec<usize>, bool) {
        let points = self.points();
        let cases: Vec<Case> = (0..points.len()).map(|point| points.case(point)).collect();
        if let Some(ideal) = buddy_scenario::baselines(&cases) {
            return (ideal, true);
        }
        let mut first = 0;
        let first = |point: usize| {
            if points.input(point) != points.input(first) {
                first = point;
            }
            first
        };
        ((0..points.len()).map(first).collect(), false)
    }

    /// Calls `found` with every result and its speed; without a result of its baseline it has none.
    fn each(
        &self,
        results: &[Option<Outcome>],
        bases: &[usize],
        mut found: impl FnMut(usize, &Outcome, Option<f64>) -> Result<(), String>,
    ) -> Result<(), String> {
        let seconds = |point: usize| results[point].as_ref().map(|one| one.report.seconds);
        for (point, outcome) in results.iter().enumerate() {
            if let Some(outcome) = outcome {
                found(point, outcome, seconds(bases[point]).map(|base| base / outcome.report.seconds))?;
            }
        }
        Ok(())
    }

    fn column(&self, name: &str) -> Result<Column, String> {
        let axes = self.points().plan().axes.iter().enumerate();
        let key = buddy_scenario::canonical(name);
        let mut places =
            axes.filter_map(|(axis, one)| Some((axis, one.keys.iter().position(|other| other == key)?)));
        let metric = METRICS.into_iter().find(|metric| metric.name == name);
        match (places.next(), metric) {
            (Some((axis, place)), _) => Ok(Column::Setting(axis, place)),
            (None, Some(metric)) => Ok(Column::Metric(metric)),
            (None, None) if name == "key" => Ok(Column::Key),
            (None, None) if name.contains('.') => Ok(Column::Field(name.to_owned())),
            (None, None) => {
                let metrics: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
                Err(format!(
                    "unknown column '{name}'; use one of the settings of the axes, {}, key, and any field of a record by \
                     its dotted name, such as report.l2.reads",
                    metrics.join(", ")
                ))
            }
        }
    }

    fn row(
        &self,
        point: usize,
        outcome: &Outcome,
        columns: &[Column],
        speed: Option<f64>,
    ) -> Result<Vec<GridCell>, String> {
        let (places, plan) = (self.points().places(point), self.points().plan());
        let fields = columns.iter().any(|column| matches!(column, Column::Field(_)));
        let record = if fields { json!(outcome) } else { Value::Null };
        let cell = |column: &Column| match column {
            Column::Setting(axis, place) if self.points().ignores(point, &plan.axes[*axis].keys[*place]) => {
                Ok(GridCell::Empty)
            }
            Column::Setting(axis, place) => {
                let text = &plan.axes[*axis].rows[places[*axis]][*place];
                Ok(text.parse::<f64>().map_or_else(|_| GridCell::from(text.as_str()), GridCell::from))
            }
            Column::Metric(metric) if metric.name == "speed" => Ok(GridCell::from(speed)),
            Column::Metric(metric) => Ok(GridCell::from((metric.get)(outcome))),
            Column::Key => Ok(GridCell::from(format!("{:032x}", self.points().digest(point)))),
            Column::Field(name) => field(&record, name),
        };
        columns.iter().map(cell).collect()
    }
}

impl Column {
    fn unit(&self) -> Unit {
        if let Self::Metric(metric) = self { metric.unit } else { Unit::Number }
    }
}

fn field(record: &Value, name: &str) -> Result<GridCell, String> {
    match record.pointer(&format!("/{}", name.replace('.', "/"))) {
        Some(Value::Number(number)) => Ok(GridCell::from(number.as_f64())),
        Some(Value::String(text)) => Ok(GridCell::from(text.as_str())),
        Some(Value::Null) => Ok(GridCell::Empty),
        _ => Err(format!("a record has no number or text named '{name}'")),
    }
}

impl Rows {
    /// Writes CSV with a header line.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let names: Vec<String> = self.grid.columns.iter().map(|(name, _)| csv_text(name)).collect();
        writeln!(out, "{}", names.join(","))?;
        let cell = |cell: &GridCell| match cell {
            GridCell::Number(number) => number.to_string(),
            GridCell::Text(text) => csv_text(text),
            GridCell::Empty => String::new(),
        };
        self.grid
            .rows
            .iter()
            .try_for_each(|row| writeln!(out, "{}", row.iter().map(cell).collect::<Vec<_>>().join(",")))
    }

    /// Writes JSON lines, one object per point.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write_json_lines(&self, out: &mut dyn Write) -> io::Result<()> {
        self.objects().try_for_each(|object| writeln!(out, "{}", Value::Object(object)))
    }

    /// Returns one object per point with its columns by name.
    pub(crate) fn objects(&self) -> impl Iterator<Item = Map<String, Value>> {
        let value = |cell: &GridCell| match cell {
            GridCell::Number(number) => json!(number),
            GridCell::Text(text) => json!(text),
            GridCell::Empty => Value::Null,
        };
        let names = || self.grid.columns.iter().map(|(name, _)| name.clone());
        self.grid.rows.iter().map(move |row| names().zip(row.iter().map(value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_and_json_lines_hold_the_same() {
        let columns = ["program", "speed", "capacity"].map(|name| (name.to_owned(), Unit::Number)).to_vec();
        let rows = vec![vec![GridCell::from("a,\"b\""), GridCell::from(0.5), GridCell::Empty]];
        let rows = Rows { grid: Grid { title: String::new(), columns, rows }, missing: 0 };
        let (mut csv, mut json) = (Vec::new(), Vec::new());
        rows.write_csv(&mut csv).unwrap();
        rows.write_json_lines(&mut json).unwrap();
        assert_eq!(String::from_utf8(csv).unwrap(), "program,speed,capacity\n\"a,\"\"b\"\"\",0.5,\n");
        let line: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(line, json!({"program": "a,\"b\"", "speed": 0.5, "capacity": null}));
    }
}
