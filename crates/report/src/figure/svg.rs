//! Figures as SVG files with their own style, for light and dark screens.

use buddy_record::{Chart, Figure, Heat, Panel};

use super::{
    map::maps,
    plot::{colour, mark_legend, plot},
};
use crate::escape;

const STYLE: &str = include_str!("svg.css");

/// Returns the SVG files of a figure with their names; none for a figure of tables.
pub fn figure_files(figure: &Figure) -> Vec<(String, String)> {
    let charts: Vec<&Chart> = figure
        .panels
        .iter()
        .filter_map(|panel| if let Panel::Chart(chart) = panel { Some(chart) } else { None })
        .collect();
    let heats: Vec<&Heat> = figure
        .panels
        .iter()
        .filter_map(|panel| if let Panel::Heat(heat) = panel { Some(heat) } else { None })
        .collect();
    let name = |index: usize| match charts.len() {
        1 => format!("{}.svg", figure.name),
        _ => format!("{}-{}.svg", figure.name, index + 1),
    };
    let mut files: Vec<(String, String)> =
        charts.iter().enumerate().map(|(index, chart)| (name(index), chart_file(chart))).collect();
    if !heats.is_empty() {
        let (width, height, inner) = maps(&heats);
        files.push((format!("{}.svg", figure.name), file(width, height, &figure.title, &inner)));
    }
    files
}

/// Renders a complete SVG file; `inner` is SVG, `title` is plain text.
pub(super) fn file(width: f64, height: f64, title: &str, inner: &str) -> String {
    let title = escape(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"{title}\"><style>{STYLE}</style>\
         <rect class=\"back\" width=\"100%\" height=\"100%\"/>{inner}</svg>\n"
    )
}

/// Draws a chart with its title and legend above it.
fn chart_file(chart: &Chart) -> String {
    let drawn = plot(chart);
    let (legend, top) = legend(chart, drawn.width);
    let title = escape(&chart.title);
    let inner = format!(
        "<text class=\"title\" x=\"16\" y=\"24\">{title}</text>{legend}<g transform=\"translate(0 {top:.0})\">{}</g>",
        values_as_titles(&drawn.inner)
    );
    file(drawn.width, drawn.height + top, &chart.title, &inner)
}

/// Draws the legend in rows below the title, and returns its end.
fn legend(chart: &Chart, width: f64) -> (String, f64) {
    let (mut text, mut x, mut y) = (String::new(), 16.0, 46.0);
    let marks = mark_legend(chart);
    let names = chart.series.iter().map(|series| series.name.as_str()).enumerate();
    for (index, name) in
        names.map(|(index, name)| (Some(index), name)).chain(marks.as_deref().map(|name| (None, name)))
    {
        let wide = 30.0 + 7.2 * name.chars().count() as f64;
        if x + wide > width && x > 16.0 {
            (x, y) = (16.0, y + 20.0);
        }
        let swatch = match index {
            Some(index) if chart.series[index].guide => format!(
                "<g class=\"{}\"><polyline points=\"{x:.0},{y} {:.0},{y}\"/></g>",
                colour(chart, index),
                x + 13.0,
                y = y - 4.0
            ),
            Some(index) => format!(
                "<g class=\"{}\"><rect x=\"{x:.0}\" y=\"{:.0}\" width=\"11\" height=\"11\" rx=\"2\"/></g>",
                colour(chart, index),
                y - 10.0
            ),
            None => format!("<g class=\"paper\"><path d=\"M{x:.0} {:.0}l5 -5l5 5l-5 5z\"/></g>", y - 5.0),
        };
        text.push_str(&format!("{swatch}<text x=\"{:.0}\" y=\"{y:.0}\">{}</text>", x + 17.0, escape(name)));
        x += wide;
    }
    (text, y + 10.0)
}

/// Replaces `data-v`, which needs the page's script, by titles.
fn values_as_titles(inner: &str) -> String {
    let mut text = String::with_capacity(inner.len() * 2);
    let mut rest = inner;
    while let Some(at) = rest.find(" data-v=\"") {
        let (before, after) = rest.split_at(at);
        let value = &after[9..];
        let end = value.find("\"/>").unwrap_or(0);
        let tag = before.rfind('<').map_or("g", |open| &before[open + 1..]);
        let tag = tag.split(' ').next().unwrap_or("g");
        text.push_str(&format!("{before}><title>{}</title></{tag}>", &value[..end]));
        rest = &value[(end + 3).min(value.len())..];
    }
    text + rest
}
