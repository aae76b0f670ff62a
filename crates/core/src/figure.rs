//! A figure of the study: what is drawn, and what the paper says of it.
//!
//! An experiment fills it and a report draws it; neither knows the other. Every number that is shown is in the record.

use serde::{Deserialize, Serialize};

use crate::{PageMap, RecordKind};

/// One figure or table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its short name, such as `fig7`.
    pub name: String,
    /// What it shows, in a few words.
    pub title: String,
    /// Where the paper has it, or that it does not.
    pub place: String,
    /// What to see in it.
    pub text: String,
    /// Numbers that the paper states, beside ours.
    #[serde(default)]
    pub quantities: Vec<Quantity>,
    /// The charts, tables and maps, in the order in which they are drawn.
    #[serde(default)]
    pub panels: Vec<Panel>,
    /// What is missing, and why.
    #[serde(default)]
    pub missing: Vec<String>,
    /// What an interruption left undone; where there is any, all that the figure shows is of the rest alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<String>,
    /// Numbers of the deviations that belong to all of it.
    #[serde(default)]
    pub deviations: Vec<u32>,
}

impl RecordKind for Figure {
    const KIND: &'static str = "figure";
    const VERSION: u32 = 1;
}

/// A number that the paper states, beside ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantity {
    /// What was measured, as a row of the table names it.
    pub name: String,
    /// How both are written.
    pub unit: Unit,
    /// What the paper says, in the same unit.
    pub paper: f64,
    /// Ours, where it was measured.
    pub ours: Option<f64>,
    /// Where the paper states it.
    pub place: String,
    /// Whether it belongs to the few that a summary shows first.
    #[serde(default)]
    pub headline: bool,
    /// The deviation that explains the difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<u32>,
}

impl Quantity {
    /// Ours over the paper's.
    pub fn ratio(&self) -> Option<f64> {
        self.ours.filter(|_| self.paper != 0.0).map(|ours| ours / self.paper)
    }
}

/// How a number is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A plain number with as many digits as it needs.
    #[default]
    Number,
    /// A ratio, drawn as `1.50x`.
    Ratio,
    /// A share from 0 to 1, as percent.
    Percent,
    /// Bytes, in powers of ten as the paper has them.
    Bytes,
    /// A bandwidth, drawn as `150 GB/s`.
    GbPerS,
    /// A whole count, drawn without decimals.
    Count,
}

/// A part of a figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Panel {
    /// Bars, lines or points.
    Chart(Chart),
    /// Pages by size class.
    Heat(Heat),
    /// Rows of texts and numbers.
    Table(Grid),
}

/// How a chart draws its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// A bar of each series in every group; x is the number of the group.
    Bars,
    /// Points joined by lines.
    Lines,
    /// Points that no line joins.
    Points,
}

/// One axis of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxisInfo {
    /// The quantity along it, as the axis is labelled.
    pub name: String,
    /// How its numbers are written.
    pub unit: Unit,
    /// Whether equal steps are equal factors.
    #[serde(default)]
    pub log: bool,
    /// Where it begins, if not at the least value. Bars begin there, or else at zero, and go down where a value is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<f64>,
}

impl AxisInfo {
    /// An axis with equal steps.
    pub fn new(name: &str, unit: Unit) -> Self {
        Self { name: name.to_owned(), unit, log: false, from: None }
    }

    /// An axis that begins here.
    #[must_use]
    pub fn starting_at(self, from: f64) -> Self {
        Self { from: Some(from), ..self }
    }

    /// An axis of equal factors.
    #[must_use]
    pub fn logarithmic(self) -> Self {
        Self { log: true, ..self }
    }
}

/// Numbers over numbers or groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    /// What the chart shows, above it.
    pub title: String,
    /// How the series are drawn.
    pub shape: Shape,
    /// The horizontal axis, of all series.
    pub x: AxisInfo,
    /// The vertical axis, of all series.
    pub y: AxisInfo,
    /// Names of the groups of bars; empty for lines and points.
    #[serde(default)]
    pub groups: Vec<String>,
    /// The lines, bars or points, in the order of the legend.
    pub series: Vec<SeriesInfo>,
    /// What the paper states.
    #[serde(default)]
    pub marks: Vec<Mark>,
}

/// One series of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesInfo {
    /// Its name in the legend.
    pub name: String,
    /// Its points by rising x; what is not known is left out.
    pub points: Vec<(f64, f64)>,
    /// Names of the points, where they have any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Whether it is a line that only guides the eye, behind all others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guide: bool,
}

impl SeriesInfo {
    /// A series of points.
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points, labels: Vec::new(), guide: false }
    }

    /// One bar in each group; what is not known is left out.
    pub fn bars(name: &str, values: impl IntoIterator<Item = Option<f64>>) -> Self {
        let known = values.into_iter().enumerate().filter_map(|(group, value)| Some((group as f64, value?)));
        Self::new(name, known.collect())
    }
}

/// A value that the paper states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// What the mark is, as it is drawn beside it.
    pub label: String,
    /// Where along x (a group's number for bars); everywhere if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// Which series it stands beside, by its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<usize>,
    /// The value on the vertical axis.
    pub y: f64,
}

/// Pages by size class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heat {
    /// The program and the moment that the map is of, above it.
    pub title: String,
    /// What to know about it.
    pub remark: String,
    /// The size class of every entry, page by page.
    pub map: PageMap,
}

/// Texts and numbers in rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// What it shows; may be empty.
    pub title: String,
    /// Names of the columns, and how their numbers are written.
    pub columns: Vec<(String, Unit)>,
    /// The rows, each with a cell for every column.
    pub rows: Vec<Vec<GridCell>>,
}

/// One cell of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum GridCell {
    /// A number in the column's unit.
    Number(f64),
    /// A text, set as it is.
    Text(String),
    /// A cell that stays empty.
    Empty,
}

impl From<&str> for GridCell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for GridCell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for GridCell {
    fn from(number: f64) -> Self {
        if number.is_finite() { Self::Number(number) } else { Self::Empty }
    }
}

impl From<Option<f64>> for GridCell {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::Empty, Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;

    #[test]
    fn a_figure_survives_json() {
        let chart = Chart {
            title: "c".to_owned(),
            shape: Shape::Bars,
            x: AxisInfo::new("", Unit::Number),
            y: AxisInfo::new("ratio", Unit::Ratio).starting_at(1.0),
            groups: vec!["a".to_owned(), "b".to_owned()],
            series: vec![SeriesInfo::bars("s", [Some(1.5), None])],
            marks: vec![Mark { label: "paper".to_owned(), x: Some(0.0), series: None, y: 1.9 }],
        };
        let rows = vec![vec![GridCell::from("x"), GridCell::from(1.5), GridCell::from(None)]];
        let columns = ["a", "b", "c"].map(|name| (name.to_owned(), Unit::Ratio)).to_vec();
        let table = Grid { title: String::new(), columns, rows };
        let panels = vec![Panel::Chart(chart), Panel::Table(table)];
        let record = Record::new(Figure { name: "fig7".to_owned(), panels, ..Figure::default() });
        assert_eq!(Record::from_json(&record.to_json()).unwrap(), record);
    }

    /// A figure that is drawn from records must not depend on whether they were read back.
    #[test]
    fn every_number_survives_json() {
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (bits >> 11) as f64 / 1e15
        };
        let points = (0..1000).map(|_| (next(), 1.0 / next())).collect();
        let series = SeriesInfo::new("s", points);
        let text = serde_json::to_string(&series).unwrap();
        assert_eq!(serde_json::from_str::<SeriesInfo>(&text).unwrap(), series);
    }

    #[test]
    fn a_ratio_needs_both_numbers() {
        let quantity = |paper, ours| Quantity {
            name: String::new(),
            unit: Unit::Ratio,
            paper,
            ours,
            place: String::new(),
            headline: false,
            deviation: None,
        };
        assert_eq!(quantity(2.0, Some(3.0)).ratio(), Some(1.5));
        assert_eq!(quantity(0.0, Some(3.0)).ratio(), None);
        assert_eq!(quantity(2.0, None).ratio(), None);
        assert_eq!(GridCell::from(f64::NAN), GridCell::Empty);
    }
}
