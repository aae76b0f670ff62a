//! A figure of the study: charts, tables and the numbers that the paper states.
//!
//! Experiments fill figures and reports draw them. Every number drawn is in the record.

use serde::{Deserialize, Serialize};

use crate::RecordKind;
use buddy_core::PageMap;

/// One figure or table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Short name, such as `fig7`.
    pub name: String,
    /// Title in a few words.
    pub title: String,
    /// Figure or table number in the paper, or a note that the paper has none.
    pub place: String,
    /// Explanation of the result.
    pub text: String,
    /// Numbers stated by the paper, with ours.
    #[serde(default)]
    pub quantities: Vec<Quantity>,
    /// Charts, tables and maps in drawing order.
    #[serde(default)]
    pub panels: Vec<Panel>,
    /// Missing data, each with its reason.
    #[serde(default)]
    pub missing: Vec<String>,
    /// Work left undone by an interruption; the figure then shows the rest only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<String>,
    /// Numbers of the deviations that apply to the whole figure.
    #[serde(default)]
    pub deviations: Vec<u32>,
}

impl RecordKind for Figure {
    const KIND: &'static str = "figure";
    const VERSION: u32 = 1;
}

/// A number stated by the paper, with ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantity {
    /// Name of the quantity: a row of the table.
    pub name: String,
    /// Display unit of both numbers.
    pub unit: Unit,
    /// The paper's number.
    pub paper: f64,
    /// Our number; `None` if not measured.
    pub ours: Option<f64>,
    /// Section, figure or table of the paper that states it.
    pub place: String,
    /// True if summaries show it first.
    #[serde(default)]
    pub headline: bool,
    /// Number of the deviation that explains the difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<u32>,
    /// Origin of our number; `None` in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// Origin of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Memory or time of programs that this run executed.
    Measured,
    /// Memory or time recorded on a GPU.
    Recorded,
    /// The model GPU, with our data.
    Simulated,
    /// The model GPU, with the paper's ratios and overflow imposed.
    Imposed,
    /// An analytical model.
    Modelled,
    /// A constant of the design.
    Chosen,
}

impl Origin {
    /// Returns its name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Recorded => "recorded",
            Self::Simulated => "simulated",
            Self::Imposed => "imposed",
            Self::Modelled => "modelled",
            Self::Chosen => "chosen",
        }
    }
}

impl Quantity {
    /// Returns our number over the paper's.
    pub fn ratio(&self) -> Option<f64> {
        self.ours.filter(|_| self.paper != 0.0).map(|ours| ours / self.paper)
    }
}

/// Display format of a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A plain number with as many digits as needed.
    #[default]
    Number,
    /// A ratio, shown as `1.50x`.
    Ratio,
    /// A share from 0 to 1, shown as percent.
    Percent,
    /// Bytes in decimal units, as in the paper.
    Bytes,
    /// A bandwidth, shown as `150 GB/s`.
    GbPerS,
    /// An integer, shown without decimals.
    Count,
}

/// One part of a figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Panel {
    /// Bars, lines or points.
    Chart(Chart),
    /// Pages coloured by size class.
    Heat(Heat),
    /// Rows of text and numbers.
    Table(Grid),
}

/// Mark type of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Grouped bars, one bar per series in each group; x is the group index.
    Bars,
    /// Points joined by lines.
    Lines,
    /// Unconnected points.
    Points,
}

/// One axis of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxisInfo {
    /// Axis label.
    pub name: String,
    /// Display unit of the tick labels.
    pub unit: Unit,
    /// True for a logarithmic axis.
    #[serde(default)]
    pub log: bool,
    /// Start of the axis; `None` for the smallest value. Bars have their base here, or at zero if
    /// `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<f64>,
}

impl AxisInfo {
    /// Creates a linear axis.
    pub fn new(name: &str, unit: Unit) -> Self {
        Self { name: name.to_owned(), unit, log: false, from: None }
    }

    /// Sets the start of the axis.
    #[must_use]
    pub fn starting_at(self, from: f64) -> Self {
        Self { from: Some(from), ..self }
    }

    /// Makes the axis logarithmic.
    #[must_use]
    pub fn logarithmic(self) -> Self {
        Self { log: true, ..self }
    }
}

/// A chart of numbers over numbers or over groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    /// Title above the chart.
    pub title: String,
    /// Mark type of every series.
    pub shape: Shape,
    /// Horizontal axis.
    pub x: AxisInfo,
    /// Vertical axis.
    pub y: AxisInfo,
    /// Group names of a bar chart; empty otherwise.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Series in legend order.
    pub series: Vec<SeriesInfo>,
    /// Values stated by the paper.
    #[serde(default)]
    pub marks: Vec<Mark>,
}

/// One series of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesInfo {
    /// Name in the legend.
    pub name: String,
    /// Points by ascending x; unknown values are omitted.
    pub points: Vec<(f64, f64)>,
    /// Labels of the points; may be empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// True for a guide line, drawn behind all series.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guide: bool,
}

impl SeriesInfo {
    /// Creates a series of points.
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points, labels: Vec::new(), guide: false }
    }

    /// Creates a series with one bar per group; unknown values are omitted.
    pub fn bars(name: &str, values: impl IntoIterator<Item = Option<f64>>) -> Self {
        let known = values.into_iter().enumerate().filter_map(|(group, value)| Some((group as f64, value?)));
        Self::new(name, known.collect())
    }
}

/// A reference value stated by the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Label drawn next to the mark.
    pub label: String,
    /// Position along x (a group index for bars); `None` spans the whole axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// Index of the series that the mark belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<usize>,
    /// Value on the vertical axis.
    pub y: f64,
}

/// A heat map of pages by size class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heat {
    /// Program and snapshot shown.
    pub title: String,
    /// Remark below the map.
    pub remark: String,
    /// Size class of every entry, page by page.
    pub map: PageMap,
}

/// A table of text and numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Title; may be empty.
    pub title: String,
    /// Column names and their display units.
    pub columns: Vec<(String, Unit)>,
    /// Rows with one cell per column.
    pub rows: Vec<Vec<GridCell>>,
}

/// One cell of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum GridCell {
    /// A number in the column's unit.
    Number(f64),
    /// Text, shown verbatim.
    Text(String),
    /// An empty cell.
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

    /// A figure drawn from records must not depend on whether they were read back.
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
            origin: None,
        };
        assert_eq!(quantity(2.0, Some(3.0)).ratio(), Some(1.5));
        assert_eq!(quantity(0.0, Some(3.0)).ratio(), None);
        assert_eq!(quantity(2.0, None).ratio(), None);
        assert_eq!(GridCell::from(f64::NAN), GridCell::Empty);
    }
}
