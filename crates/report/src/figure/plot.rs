//! A chart as SVG: bars, lines or points, and the paper's values.
//!
//! Every mark carries its value as `data-v`, and every series is a group that the page's script can
//! hide.

use buddy_record::{AxisInfo, Chart, Mark, SeriesInfo, Shape};

use crate::{
    escape,
    format::{number, tick},
    scale::Scale,
};

const LEFT: f64 = 78.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 14.0;
/// Number of colours; further series are dashed or pale.
pub(super) const COLOURS: usize = 10;
/// Up to this many labels of marks, the legend has them all.
const MOST_LABELS: usize = 3;
/// Up to this many groups, names are flat.
const FLAT_GROUPS: usize = 5;
/// Up to this many groups or lines, half a page is wide enough.
const NARROW: usize = 8;

/// A chart as SVG, and its size in pixels.
pub(super) struct Plot {
    pub(super) width: f64,
    pub(super) height: f64,
    /// True if it needs the full width of a page.
    pub(super) wide: bool,
    /// Content of the SVG element.
    pub(super) inner: String,
}

/// Geometry of a chart.
struct Frame<'a> {
    chart: &'a Chart,
    width: f64,
    height: f64,
    bottom: f64,
    x: Scale,
    y: Scale,
    /// Base of the bars; `None` on a logarithmic axis without one.
    base: Option<f64>,
}

/// Draws axes, then guides, then each series, then the paper's values on top.
pub(super) fn plot(chart: &Chart) -> Plot {
    let frame = Frame::new(chart);
    let mut inner = frame.y_axis() + &frame.x_axis();
    let numbered = || chart.series.iter().enumerate();
    let (guides, others) =
        (numbered().filter(|(_, one)| one.guide), numbered().filter(|(_, one)| !one.guide));
    for (index, series) in guides.chain(others) {
        let marks = match chart.shape {
            _ if series.guide => frame.line(series),
            Shape::Bars => frame.bars(index, series),
            Shape::Lines => frame.line(series) + &frame.points(series),
            Shape::Points => frame.points(series),
        };
        inner.push_str(&format!("<g class=\"{}\" data-s=\"{index}\">{marks}</g>", colour(chart, index)));
    }
    let marks: String = chart.marks.iter().map(|mark| frame.mark(mark)).collect();
    inner.push_str(&format!("<g class=\"paper\" data-s=\"paper\">{marks}</g>"));
    Plot { width: frame.width, height: frame.height, wide: frame.width > 700.0, inner }
}

/// Returns the legend of the chart's marks: their labels if they are few.
pub(super) fn mark_legend(chart: &Chart) -> Option<String> {
    let mut labels: Vec<&str> = chart.marks.iter().map(|mark| mark.label.as_str()).collect();
    labels.sort_unstable();
    labels.dedup();
    match labels.len() {
        0 => None,
        1..=MOST_LABELS => Some(labels.join("; ")),
        _ => Some("stated in the paper".to_owned()),
    }
}

/// Returns the class of a series; guides have no colour.
pub(super) fn colour(chart: &Chart, series: usize) -> String {
    let before = chart.series.iter().take(series);
    let guides = before.filter(|one| one.guide).count();
    if chart.series.get(series).is_some_and(|one| one.guide) {
        return format!("guide g{}", guides.div_ceil(2));
    }
    let (place, again) = (series - guides, if series - guides >= COLOURS { " again" } else { "" });
    format!("k{}{again}", place % COLOURS)
}

impl<'a> Frame<'a> {
    fn new(chart: &'a Chart) -> Self {
        let groups = chart.groups.len();
        let own = chart.series.iter().filter(|one| !one.guide).count();
        let many = if chart.shape == Shape::Bars { groups } else { own };
        let (width, height) = if many > NARROW { (1120.0, 340.0) } else { (640.0, 300.0) };
        let bottom = if groups > FLAT_GROUPS { 92.0 } else { 50.0 };
        let values = || chart.series.iter().flat_map(|series| series.points.iter().copied());
        let marks = || chart.marks.iter().map(|mark| mark.y);
        let up = (height - bottom, TOP);
        let heights = || values().map(|(_, y)| y).chain(marks()).chain(chart.y.from);
        let base = chart.y.from.or((!chart.y.log).then_some(0.0));
        let y = match (chart.y.log, chart.shape) {
            (true, _) => Scale::factors(heights().collect::<Vec<_>>().into_iter(), up),
            (false, Shape::Bars) => Scale::about(base.unwrap_or(0.0), heights(), up),
            (false, _) => Scale::about(chart.y.from.unwrap_or_else(|| least(heights())), heights(), up),
        };
        let along = (LEFT, width - RIGHT);
        let places: Vec<f64> =
            values().map(|(x, _)| x).chain(chart.marks.iter().filter_map(|m| m.x)).collect();
        let x = match (chart.shape, chart.x.log) {
            (Shape::Bars, _) => Scale::across([-0.5, groups as f64 - 0.5].into_iter(), along),
            (_, true) => Scale::factors(places.into_iter(), along),
            (_, false) => Scale::across(places.into_iter(), along),
        };
        Self { chart, width, height, bottom, x, y, base }
    }

    fn y_axis(&self) -> String {
        let AxisInfo { name, unit, .. } = &self.chart.y;
        let line = |value: f64| {
            let y = self.y.at(value);
            let text = label(LEFT - 7.0, y + 4.0, "end", &tick(*unit, value));
            format!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>{text}",
                self.width - RIGHT
            )
        };
        let mut lines: String = self.y.ticks().into_iter().map(line).collect();
        if let (Shape::Bars, Some(base)) = (self.chart.shape, self.base) {
            let (y, to) = (self.y.at(base), self.width - RIGHT);
            lines +=
                &format!("<line class=\"base\" x1=\"{LEFT}\" x2=\"{to:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
        }
        let middle = (TOP + self.height - self.bottom) / 2.0;
        format!(
            "{lines}<text class=\"axis\" transform=\"translate(14 {middle:.0}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escape(name)
        )
    }

    fn x_axis(&self) -> String {
        let floor = self.height - self.bottom;
        if self.chart.shape == Shape::Bars {
            let flat = self.chart.groups.len() <= FLAT_GROUPS;
            let name = |(group, name): (usize, &String)| {
                let x = self.x.at(group as f64);
                match flat {
                    true => label(x, floor + 18.0, "middle", name),
                    false => slanted(x + 4.0, floor + 14.0, name),
                }
            };
            return self.chart.groups.iter().enumerate().map(name).collect();
        }
        let AxisInfo { name, unit, .. } = &self.chart.x;
        let at = |value: f64| label(self.x.at(value), floor + 18.0, "middle", &tick(*unit, value));
        let ticks: String = self.x.ticks().into_iter().map(at).collect();
        ticks + &label((LEFT + self.width - RIGHT) / 2.0, floor + 40.0, "middle", name)
    }

    /// Returns the width of a bar, and its start in a group.
    fn bar_place(&self, series: usize, group: f64) -> (f64, f64) {
        let step = self.x.at(1.0) - self.x.at(0.0);
        let count = self.chart.series.len().max(1) as f64;
        let width = (step * 0.8 / count).min(40.0);
        (width, self.x.at(group) + width * (series as f64 - count / 2.0))
    }

    /// Draws a bar from the base to the value, up or down; a point if the axis has no base.
    fn bars(&self, index: usize, series: &SeriesInfo) -> String {
        let base = self.base.map(|base| self.y.at(base));
        let bar = |&(group, value): &(f64, f64)| {
            let (width, x) = self.bar_place(index, group);
            let y = self.y.at(value);
            let name = self.chart.groups.get(group as usize).map_or("", String::as_str);
            let text = self.value(&format!("{name}, {}", series.name), value);
            let width = (width - 1.0).max(1.0);
            let Some(base) = base else {
                return format!("<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4.5\" {text}/>", x + width / 2.0);
            };
            let (y, height) = (y.min(base), (base - y).abs().max(0.5));
            format!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"1.5\" {text}/>"
            )
        };
        series.points.iter().map(bar).collect()
    }

    fn line(&self, series: &SeriesInfo) -> String {
        let place = |&(x, y): &(f64, f64)| format!("{:.1},{:.1}", self.x.at(x), self.y.at(y));
        let path: Vec<String> = series.points.iter().map(place).collect();
        format!("<polyline points=\"{}\"/>", path.join(" "))
    }

    fn points(&self, series: &SeriesInfo) -> String {
        let point = |(index, &(x, y)): (usize, &(f64, f64))| {
            let place = series.labels.get(index).cloned();
            let place =
                place.unwrap_or_else(|| format!("{} {}", self.chart.x.name, number(self.chart.x.unit, x)));
            let text = self.value(&format!("{}, {place}", series.name), y);
            format!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" {text}/>", self.x.at(x), self.y.at(y))
        };
        series.points.iter().enumerate().map(point).collect()
    }

    /// Draws a value of the paper: a diamond at its bar or group, else a line across.
    fn mark(&self, mark: &Mark) -> String {
        let y = self.y.at(mark.y);
        let text = self.value(&mark.label, mark.y);
        let Some(x) = mark.x else {
            let to = self.width - RIGHT;
            return format!("<line x1=\"{LEFT}\" x2=\"{to:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\" {text}/>");
        };
        let x = match (self.chart.shape, mark.series) {
            (Shape::Bars, Some(series)) => {
                let (width, left) = self.bar_place(series, x);
                left + (width - 1.0) / 2.0
            }
            _ => self.x.at(x),
        };
        // In the colour of its series, so that it is seen which one it belongs to.
        let class = mark.series.map(|series| format!("class=\"{}\" ", colour(self.chart, series)));
        let class = class.unwrap_or_default();
        format!("<path {class}d=\"M{:.1} {y:.1}l5 -5l5 5l-5 5z\" {text}/>", x - 5.0)
    }

    /// Returns the tooltip of a mark.
    fn value(&self, name: &str, value: f64) -> String {
        format!("data-v=\"{}\"", escape(&format!("{name}: {}", number(self.chart.y.unit, value))))
    }
}

/// Returns a round number slightly below all values.
fn least(values: impl Iterator<Item = f64>) -> f64 {
    let least = values.fold(f64::INFINITY, f64::min);
    if least.is_finite() { (least * 10.0 - 0.5).floor() / 10.0 } else { 0.0 }
}

fn label(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(text))
}

fn slanted(x: f64, y: f64, text: &str) -> String {
    let text = escape(text);
    format!("<text transform=\"translate({x:.1} {y:.1}) rotate(-38)\" text-anchor=\"end\">{text}</text>")
}
