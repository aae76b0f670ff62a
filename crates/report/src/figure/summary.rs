//! Ours beside the paper's: a picture, a table, and the same table in Markdown.

use buddy_core::{Figure, Quantity, Record};

use super::{quantity_table, svg};
use crate::{Align, Cell, Column, Table, escape, format::number, scale::Scale};

const ROW: f64 = 30.0;
const LEFT: f64 = 330.0;
const RIGHT: f64 = 190.0;
const WIDTH: f64 = 900.0;
const TOP: f64 = 74.0;
/// What is farther off is put at the edge; its numbers stand beside it.
const LEAST: f64 = 0.1;
const MOST: f64 = 10.0;

/// The headline quantities that were measured: ours over the paper's, on a scale of equal factors. A band shows 15%.
pub fn summary_picture(figures: &[Record<Figure>]) -> String {
    let (height, inner) = drawn(figures);
    svg::file(WIDTH, height, "Ours beside the paper's figures", &inner)
}

/// The same as part of a page.
pub(super) fn picture_html(figures: &[Record<Figure>]) -> String {
    let (height, inner) = drawn(figures);
    format!(
        "<figure class=\"plot summary\"><div class=\"wide\"><svg viewBox=\"0 0 {WIDTH} {height}\" \
         style=\"min-width:620px\" role=\"img\" aria-label=\"Ours beside the paper's figures\">{inner}</svg></div></figure>\n"
    )
}

fn drawn(figures: &[Record<Figure>]) -> (f64, String) {
    let shown: Vec<(&Quantity, f64)> =
        headlines(figures).into_iter().filter_map(|quantity| Some((quantity, quantity.ratio()?))).collect();
    let height = TOP + ROW * shown.len() as f64 + 34.0;
    let ratios: Vec<f64> =
        shown.iter().map(|(_, ratio)| ratio.clamp(LEAST, MOST)).chain([0.4, 2.0]).collect();
    let scale = Scale::factors(ratios.into_iter(), (LEFT, WIDTH - RIGHT));
    let (low, one, high) = (scale.at(1.0 / 1.15), scale.at(1.0), scale.at(1.15));
    let floor = height - 30.0;
    let mut inner = format!(
        "<text class=\"title\" x=\"16\" y=\"26\">Ours over the paper's</text>\
         <text x=\"16\" y=\"46\">The line is the paper's figure, the band is 15% to either side of it.</text>\
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
        inner.push_str(&row(
            quantity,
            scale.at(ratio.clamp(LEAST, MOST)),
            one,
            TOP + ROW * (index as f64 + 0.4),
        ));
    }
    (height, inner)
}

/// One quantity: its name, a line from the paper's value to ours, both values.
fn row(quantity: &Quantity, x: f64, one: f64, y: f64) -> String {
    let name = escape(&quantity.name);
    let [ours, paper] = [quantity.ours.unwrap_or(f64::NAN), quantity.paper].map(|v| number(quantity.unit, v));
    let value = escape(&format!("{}: {ours}, the paper {paper}", quantity.name));
    format!(
        "<text class=\"strong\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>\
         <g class=\"k0\" data-s=\"0\"><polyline points=\"{one:.1},{y:.1} {x:.1},{y:.1}\"/>\
         <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" data-v=\"{value}\"/></g>\
         <text x=\"{:.0}\" y=\"{:.1}\"><tspan class=\"strong\">{ours}</tspan>, paper {paper}</text>",
        LEFT - 14.0,
        y + 4.5,
        WIDTH - RIGHT + 16.0,
        y + 4.5
    )
}

fn headlines(figures: &[Record<Figure>]) -> Vec<&Quantity> {
    let all = figures.iter().flat_map(|figure| &figure.data.quantities);
    all.filter(|quantity| quantity.headline).collect()
}

/// Every quantity that the paper states, the headlines first.
pub fn summary_table(figures: &[Record<Figure>], known: &dyn Fn(u32) -> bool) -> String {
    let all = figures.iter().flat_map(|figure| &figure.data.quantities);
    let (first, rest): (Vec<&Quantity>, Vec<&Quantity>) = all.partition(|quantity| quantity.headline);
    quantity_table(&[first, rest].concat(), known)
}

/// Every quantity as a table for the terminal.
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

/// The headlines as a table in Markdown, for a README.
pub fn summary_text(figures: &[Record<Figure>]) -> String {
    let row = |quantity: &Quantity| {
        let ours =
            quantity.ours.map_or_else(|| "not measured".to_owned(), |ours| number(quantity.unit, ours));
        let why = quantity.deviation.map(|number| format!("D{number}")).unwrap_or_default();
        format!("| {} | {} | {ours} | {why} |\n", quantity.name, number(quantity.unit, quantity.paper))
    };
    let rows: String = headlines(figures).into_iter().map(row).collect();
    format!("| quantity | paper | ours | why |\n|---|---|---|---|\n{rows}")
}
