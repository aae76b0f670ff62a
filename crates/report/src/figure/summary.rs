//! Our numbers compared with the paper's: a picture, a table, and the table in Markdown.

use buddy_record::{Figure, Origin, Quantity, Record};

use super::{quantity_table, svg};
use crate::{Align, Cell, Column, Table, escape, format::number, scale::Scale};

const TOP: f64 = 74.0;

/// Geometry of the picture.
struct Layout {
    width: f64,
    left: f64,
    right: f64,
    row: f64,
    /// Position of a name: x, offset above its row, and alignment.
    name: (f64, f64, &'static str),
    /// Position of the two values, likewise.
    values: (f64, f64, &'static str),
}

/// Names left of the lines, values right.
const WIDE: Layout = Layout {
    width: 900.0,
    left: 352.0,
    right: 190.0,
    row: 30.0,
    name: (338.0, -4.5, "end"),
    values: (726.0, -4.5, "start"),
};
/// For phones: names above the lines, values below.
const NARROW: Layout = Layout {
    width: 400.0,
    left: 24.0,
    right: 24.0,
    row: 66.0,
    name: (12.0, 14.0, "start"),
    values: (388.0, -21.0, "end"),
};
/// Ratios outside this range are drawn at the edge.
const LEAST: f64 = 0.1;
const MOST: f64 = 10.0;

/// Draws the measured headline quantities as ours over the paper's, on a logarithmic scale. A band
/// shows 15%.
pub fn summary_picture(figures: &[Record<Figure>]) -> String {
    let (height, inner) = drawn(figures, &WIDE);
    svg::file(WIDE.width, height, "Ours beside the paper's figures", &inner)
}

/// Renders the picture as part of a page.
pub(super) fn picture_html(figures: &[Record<Figure>]) -> String {
    let picture = |class: &str, layout: &Layout| {
        let (height, inner) = drawn(figures, layout);
        format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {} {height}\" role=\"img\" \
             aria-label=\"Ours beside the paper's figures\">{inner}</svg>",
            layout.width
        )
    };
    format!(
        "<figure class=\"plot summary\">{}{}</figure>\n",
        picture("on-screen", &WIDE),
        picture("on-phone", &NARROW)
    )
}

fn drawn(figures: &[Record<Figure>], layout: &Layout) -> (f64, String) {
    let shown: Vec<(&Quantity, f64)> =
        headlines(figures).into_iter().filter_map(|quantity| Some((quantity, quantity.ratio()?))).collect();
    let height = TOP + layout.row * shown.len() as f64 + 34.0;
    let ratios: Vec<f64> =
        shown.iter().map(|(_, ratio)| ratio.clamp(LEAST, MOST)).chain([0.4, 2.0]).collect();
    let scale = Scale::factors(ratios.into_iter(), (layout.left, layout.width - layout.right));
    let (low, one, high) = (scale.at(1.0 / 1.15), scale.at(1.0), scale.at(1.15));
    let floor = height - 30.0;
    let mut inner = format!(
        "<text class=\"title\" x=\"16\" y=\"26\">Ours over the paper's</text>\
         <text x=\"16\" y=\"46\">The line is the paper's figure, the band 15%.</text>\
         <rect class=\"band\" x=\"{low:.1}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"{:.0}\"/>\
         <line class=\"one\" x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"{y:.0}\" y2=\"{floor:.0}\"/>",
        high - low,
        floor - TOP + 12.0,
        y = TOP - 12.0
    );
    for tick in scale.ticks() {
        let x = scale.at(tick);
        inner.push_str(&format!(
            "<text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{tick}</text>",
            height - 10.0
        ));
    }
    for (index, (quantity, ratio)) in shown.iter().enumerate() {
        let (x, y) = (scale.at(ratio.clamp(LEAST, MOST)), TOP + layout.row * (index as f64 + 0.4));
        inner.push_str(&row(quantity, layout, *ratio, (x, one, y)));
    }
    (height, inner)
}

/// Draws one quantity: its name, a line from the paper's value to ours, and both values. A value
/// beyond the edge, such as a loss where the paper gains, ends in an arrow.
fn row(quantity: &Quantity, layout: &Layout, ratio: f64, (x, one, y): (f64, f64, f64)) -> String {
    let name = escape(&quantity.name);
    let [ours, paper] = [quantity.ours.unwrap_or(f64::NAN), quantity.paper].map(|v| number(quantity.unit, v));
    let value = escape(&format!("{}: {ours}, the paper {paper}", quantity.name));
    let mark = match ratio {
        _ if ratio < LEAST => format!("<path d=\"M{x:.1} {y:.1}l10 -7v14z\" data-v=\"{value}\"/>"),
        _ if ratio > MOST => format!("<path d=\"M{x:.1} {y:.1}l-10 -7v14z\" data-v=\"{value}\"/>"),
        _ => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" data-v=\"{value}\"/>"),
    };
    let ((name_x, up, side), (values_x, values_up, values_side)) = (layout.name, layout.values);
    format!(
        "<text class=\"strong\" x=\"{name_x}\" y=\"{:.1}\" text-anchor=\"{side}\">{name}</text>\
         <g class=\"k0\" data-s=\"0\"><polyline points=\"{one:.1},{y:.1} {x:.1},{y:.1}\"/>{mark}</g>\
         <text x=\"{values_x}\" y=\"{:.1}\" text-anchor=\"{values_side}\">\
         <tspan class=\"strong\">{ours}</tspan>, paper {paper}</text>",
        y - up,
        y - values_up
    )
}

fn headlines(figures: &[Record<Figure>]) -> Vec<&Quantity> {
    let all = figures.iter().flat_map(|figure| &figure.data.quantities);
    all.filter(|quantity| quantity.headline).collect()
}

/// Renders every quantity that the paper states, headlines first.
pub fn summary_table(figures: &[Record<Figure>], known: &dyn Fn(u32) -> bool) -> String {
    let all = figures.iter().flat_map(|figure| &figure.data.quantities);
    let (first, rest): (Vec<&Quantity>, Vec<&Quantity>) = all.partition(|quantity| quantity.headline);
    quantity_table(&[first, rest].concat(), known)
}

/// Renders every quantity as a table for the terminal.
pub fn summary_table_text(figures: &[Record<Figure>]) -> String {
    let column = |name, align| Column { name, group: "", align };
    let columns = vec![
        column("quantity", Align::Left),
        column("paper", Align::Right),
        column("ours", Align::Right),
        column("ours / paper", Align::Right),
    ];
    let row = |quantity: &Quantity| {
        let ours = quantity.ours.map_or_else(|| "-".to_owned(), |ours| number(quantity.unit, ours));
        let ratio = quantity.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        [quantity.name.clone(), number(quantity.unit, quantity.paper), ours, ratio].map(Cell::text).into()
    };
    let rows = figures.iter().flat_map(|figure| &figure.data.quantities).map(row).collect();
    Table { columns, rows, total: Vec::new() }.to_text()
}

/// Renders the headlines as a Markdown table for a README.
pub fn summary_text(figures: &[Record<Figure>]) -> String {
    let row = |quantity: &Quantity| {
        let ours =
            quantity.ours.map_or_else(|| "not measured".to_owned(), |ours| number(quantity.unit, ours));
        let why = quantity.deviation.map(|number| format!("D{number}")).unwrap_or_default();
        let origin = quantity.origin.map_or("", Origin::name);
        let paper = number(quantity.unit, quantity.paper);
        format!("| {} | {paper} | {ours} | {origin} | {why} |\n", quantity.name)
    };
    let rows: String = headlines(figures).into_iter().map(row).collect();
    format!("| quantity | paper | ours | ours is | why |\n|---|---|---|---|---|\n{rows}")
}
