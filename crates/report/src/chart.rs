//! Charts as inline SVG: bar groups and lines. Colours and fonts are in the page's style sheet.

use crate::{escape, scale::Scale};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 250.0;
/// Minimum space for the numbers of the axis.
const LEFT: f64 = 72.0;
/// Space between a number and the plot.
const GAP: f64 = 8.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;
const UP: (f64, f64) = (HEIGHT - BOTTOM, TOP);
/// Approximate width of a letter.
const LETTER: f64 = 8.4;
/// Maximum letters of a slanted group name.
const NAME_LETTERS: usize = 26;
/// Additional space below for slanted names.
const SLANTED: f64 = 110.0;

/// Name and number format of an axis.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// Name, with its unit.
    pub name: &'static str,
    /// Formats a number at a tick and in a tooltip.
    pub format: fn(f64) -> String,
}

/// One bar in every group.
#[derive(Debug, Clone)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Value in each group.
    pub values: Vec<f64>,
}

/// A line through points.
#[derive(Debug, Clone)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Points by ascending x.
    pub points: Vec<(f64, f64)>,
}

/// Draws groups of bars from zero, up or down, with one bar per series.
pub fn bar_chart(groups: &[&str], series: &[Series], y: Axis) -> String {
    let all = series.iter().flat_map(|series| series.values.iter().copied());
    let scale = Scale::about(0.0, all, UP);
    let left = left_of(&scale, y);
    let step = (WIDTH - left - RIGHT) / groups.len().max(1) as f64;
    let width = (step * 0.7 / series.len().max(1) as f64).min(36.0);
    let slanted = groups.iter().any(|group| group.chars().count() as f64 * LETTER > step);
    let mut svg = y_axis(&scale, y, left);
    for (g, group) in groups.iter().enumerate() {
        let middle = left + step * (g as f64 + 0.5);
        svg.push_str(&group_name(middle, group, slanted));
        for (s, one) in series.iter().enumerate() {
            let value = one.values.get(g).copied().unwrap_or(0.0);
            let x = middle + width * (s as f64 - series.len() as f64 / 2.0);
            let title = format!("{}, {group}: {}", one.name, (y.format)(value));
            svg.push_str(&bar(s, (x, width), (scale.at(0.0), scale.at(value)), &title));
        }
    }
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    figure(y.name, &names, &svg, if slanted { HEIGHT + SLANTED - BOTTOM } else { HEIGHT })
}

/// Draws the name below a group: flat, or slanted if names would overlap.
fn group_name(x: f64, name: &str, slanted: bool) -> String {
    let y = HEIGHT - BOTTOM + 18.0;
    if !slanted {
        return label(x, y, "middle", name);
    }
    let short = escape(&crate::names::shorten(name, NAME_LETTERS));
    let (x, y, name) = (x + 6.0, y - 4.0, escape(name));
    format!(
        "<text transform=\"translate({x:.1} {y:.1}) rotate(-32)\" text-anchor=\"end\">{short}<title>{name}</title></text>"
    )
}

/// Draws lines over a common x. The y axis starts at `least.0` and shows at least the range
/// `least`.
pub fn line_chart(lines: &[Line], x: Axis, y: Axis, least: (f64, f64)) -> String {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let scale = Scale::about(least.0, points().map(|(_, y)| y).chain([least.1]), UP);
    let left = left_of(&scale, y);
    let across = Scale::across(points().map(|(x, _)| x), (left, WIDTH - RIGHT));
    let mut svg = y_axis(&scale, y, left) + &x_axis(&across, x, left);
    for (s, line) in lines.iter().enumerate() {
        let place = |&(px, py): &(f64, f64)| format!("{:.1},{:.1}", across.at(px), scale.at(py));
        let path: Vec<String> = line.points.iter().map(place).collect();
        svg.push_str(&format!("<polyline class=\"s{s}\" points=\"{}\"/>", path.join(" ")));
        for &(px, py) in &line.points {
            let title = escape(&format!("{}: {} at {}", line.name, (y.format)(py), (x.format)(px)));
            let (cx, cy) = (across.at(px), scale.at(py));
            svg.push_str(&format!(
                "<circle class=\"s{s}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\"><title>{title}</title></circle>"
            ));
        }
    }
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    figure(y.name, &names, &svg, HEIGHT)
}

/// Returns the left edge of the plot, which leaves space for the widest number of the axis.
fn left_of(scale: &Scale, axis: Axis) -> f64 {
    let letters = scale.ticks().into_iter().map(|tick| (axis.format)(tick).chars().count()).max();
    LEFT.max(GAP + LETTER * (letters.unwrap_or(0) + 1) as f64)
}

fn y_axis(scale: &Scale, axis: Axis, left: f64) -> String {
    let tick = |value: f64| {
        let y = scale.at(value);
        let text = label(left - GAP, y + 4.0, "end", &(axis.format)(value));
        format!(
            "<line class=\"grid\" x1=\"{left}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>{text}",
            WIDTH - RIGHT
        )
    };
    scale.ticks().into_iter().map(tick).collect()
}

fn x_axis(scale: &Scale, axis: Axis, left: f64) -> String {
    let y = HEIGHT - BOTTOM + 18.0;
    let tick = |value: f64| label(scale.at(value), y, "middle", &(axis.format)(value));
    let name = label((left + WIDTH - RIGHT) / 2.0, HEIGHT - 6.0, "middle", axis.name);
    scale.ticks().into_iter().map(tick).collect::<String>() + &name
}

fn label(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(text))
}

/// Draws a bar from zero to its value.
fn bar(series: usize, (x, width): (f64, f64), (zero, at): (f64, f64), title: &str) -> String {
    let (width, y, height, title) = (width - 2.0, at.min(zero), (zero - at).abs(), escape(title));
    format!(
        "<rect class=\"s{series}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\">\
         <title>{title}</title></rect>"
    )
}

fn figure(name: &str, series: &[&str], svg: &str, height: f64) -> String {
    let name = escape(name);
    let item = |(s, name): (usize, &&str)| format!("<li><i class=\"s{s}\"></i>{}</li>", escape(name));
    let legend: String = series.iter().enumerate().map(item).collect();
    format!(
        "<figure class=\"chart\"><figcaption>{name}<ul class=\"legend\">{legend}</ul></figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{name}\">{svg}</svg></figure>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Axis = Axis { name: "share", format: |value| format!("{value}") };

    #[test]
    fn long_axis_numbers_are_not_clipped() {
        let start = |value: f64, format: fn(f64) -> String| {
            let svg = bar_chart(
                &["a"],
                &[Series { name: "s".to_owned(), values: vec![value] }],
                Axis { name: "y", format },
            );
            let line = svg.split("<line class=\"grid\" x1=\"").nth(1).unwrap().to_owned();
            line.split('"').next().unwrap().parse::<f64>().unwrap()
        };
        assert_eq!(start(0.5, |value| format!("{value:.1}")), LEFT);
        let long = start(4e-5, |value| format!("{:.6}%", 100.0 * value));
        assert!(long >= GAP + LETTER * "0.004000%".len() as f64, "{long}");
    }

    #[test]
    fn bars_are_proportional() {
        let series = Series { name: "a<b".to_owned(), values: vec![1.0, 0.5] };
        let svg = bar_chart(&["x", "y"], &[series], PLAIN);
        let full = HEIGHT - BOTTOM - TOP;
        assert!(
            svg.contains(&format!("height=\"{full:.1}\""))
                && svg.contains(&format!("height=\"{:.1}\"", full / 2.0))
        );
        assert!(svg.contains("<title>a&lt;b, x: 1</title>"));
    }

    #[test]
    fn negative_bars_start_at_zero() {
        let series = Series { name: "gain".to_owned(), values: vec![1.0, -1.0] };
        let svg = bar_chart(&["x", "y"], &[series], PLAIN);
        let (zero, half) = ((TOP + HEIGHT - BOTTOM) / 2.0, (HEIGHT - BOTTOM - TOP) / 2.0);
        for y in [TOP, zero] {
            let bar = format!("y=\"{y:.1}\" width=\"34.0\" height=\"{half:.1}\"");
            assert!(svg.contains(&bar), "{bar} in {svg}");
        }
    }

    #[test]
    fn overlapping_names_are_slanted_with_full_tooltips() {
        let name = "paper buddy 150 with a codec of its own";
        let svg = bar_chart(&[name; 9], &[], PLAIN);
        assert_eq!(svg.matches("rotate(-32)").count(), 9);
        assert!(svg.contains(&format!("<title>{name}</title>")) && svg.contains("viewBox=\"0 0 640 316\""));
        assert!(!bar_chart(&["a", "b"], &[], PLAIN).contains("rotate"));
    }

    #[test]
    fn lines_span_the_plot_and_empty_charts_are_empty() {
        let line = Line { name: "l".to_owned(), points: vec![(0.0, 1.0), (2.0, 2.0)] };
        let rounded = Axis { name: "share", format: |value| format!("{value:.1}") };
        let svg = line_chart(&[line], PLAIN, rounded, (1.0, 1.1));
        let points = format!("points=\"{LEFT:.1},{:.1} {:.1},{TOP:.1}\"", HEIGHT - BOTTOM, WIDTH - RIGHT);
        assert!(svg.contains(&points), "{svg}");
        assert!(!line_chart(&[], PLAIN, PLAIN, (0.0, 0.0)).contains("NaN"));
        assert!(!bar_chart(&[], &[], PLAIN).contains("NaN"));
    }
}
