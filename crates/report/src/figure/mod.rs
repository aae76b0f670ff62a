//! Figures of the study, as parts of a page and as SVG files.

mod map;
mod markdown;
mod plot;
mod run;
mod study;
mod summary;
mod svg;

pub use markdown::{grid_markdown, grid_text_within};
pub use run::run_picture;
pub use study::{Deviation, study_page};
pub use summary::{summary_picture, summary_table, summary_table_text, summary_text};
pub use svg::figure_files;

use buddy_record::{Chart, Figure, Grid, GridCell, Origin, Panel, Quantity, Unit};

use self::plot::{colour, mark_legend, plot};
use crate::{class_legend, escape, format::number, heat_map};

/// Longest text of a table cell that stays on one line, in characters.
const LONG: usize = 40;

/// Renders the panels of a figure as HTML.
fn panels(figure: &Figure) -> String {
    let heats = figure.panels.iter().any(|panel| matches!(panel, Panel::Heat(_)));
    let (open, close) = if heats {
        (class_legend() + "<div class=\"maps\">", "</div>\n")
    } else {
        ("<div class=\"plots\">".to_owned(), "</div>\n")
    };
    let panel = |panel: &Panel| match panel {
        Panel::Chart(chart) => chart_html(chart),
        Panel::Heat(heat) => heat_map(&heat.title, &heat.remark, &heat.map),
        Panel::Table(grid) => grid_html(grid),
    };
    open + &figure.panels.iter().map(panel).collect::<String>() + close
}

fn chart_html(chart: &Chart) -> String {
    let drawn = plot(chart);
    let title = escape(&chart.title);
    let item = |(index, name): (usize, &str)| {
        let (class, name) = (colour(chart, index), escape(name));
        format!(
            "<li><button data-s=\"{index}\" aria-pressed=\"true\"><i class=\"{class}\"></i>{name}</button></li>"
        )
    };
    let mut legend: String =
        chart.series.iter().map(|series| series.name.as_str()).enumerate().map(item).collect();
    if let Some(text) = mark_legend(chart) {
        legend.push_str(&format!(
            "<li><button data-s=\"paper\" aria-pressed=\"true\"><b>◆</b>{}</button></li>",
            escape(&text)
        ));
    }
    let (width, height, inner) = (drawn.width, drawn.height, &drawn.inner);
    format!(
        "<figure class=\"plot{wide}\"><figcaption>{title}</figcaption><ul class=\"legend\">{legend}</ul>\
         <div class=\"wide\"><svg viewBox=\"0 0 {width} {height}\" style=\"min-width:{least}px\" role=\"img\" \
         aria-label=\"{title}\">{inner}</svg></div></figure>\n",
        wide = if drawn.wide { " whole" } else { "" },
        least = if drawn.wide { width * 0.62 } else { 0.0 }
    )
}

fn grid_html(grid: &Grid) -> String {
    let side = |column: usize| match grid.rows.first().and_then(|row| row.get(column)) {
        Some(GridCell::Text(_)) => "",
        _ => " class=\"n\"",
    };
    let head = |(index, (name, _)): (usize, &(String, Unit))| {
        format!("<th{} aria-sort=\"none\"><button>{}</button></th>", side(index), escape(name))
    };
    let cell = |(index, cell): (usize, &GridCell)| {
        let unit = grid.columns.get(index).map_or(Unit::Number, |(_, unit)| *unit);
        match cell {
            GridCell::Number(value) => {
                format!("<td class=\"n\" data-key=\"{value}\">{}</td>", number(unit, *value))
            }
            GridCell::Text(text) => {
                let class = if text.chars().count() > LONG { " class=\"text\"" } else { "" };
                format!("<td{class}>{}</td>", escape(text))
            }
            GridCell::Empty => format!("<td{}>-</td>", side(index)),
        }
    };
    let heads: String = grid.columns.iter().enumerate().map(head).collect();
    let row =
        |row: &Vec<GridCell>| format!("<tr>{}</tr>\n", row.iter().enumerate().map(cell).collect::<String>());
    let title =
        if grid.title.is_empty() { String::new() } else { format!("<h3>{}</h3>", escape(&grid.title)) };
    format!(
        "{title}<div class=\"scroll\"><table class=\"sortable\"><thead><tr>{heads}</tr></thead><tbody>\n{}</tbody></table></div>\n",
        grid.rows.iter().map(row).collect::<String>()
    )
}

/// Renders our numbers and the paper's as rows of a table.
fn quantity_rows(quantities: &[&Quantity], known: &dyn Fn(u32) -> bool) -> String {
    let row = |quantity: &&Quantity| {
        let Quantity { name, unit, paper, ours, place, deviation, origin, .. } = quantity;
        let origin = origin.map_or("-", Origin::name);
        let ours_text = ours.map_or_else(|| "not measured".to_owned(), |value| number(*unit, value));
        let key = ours.map(|value| format!(" data-key=\"{value}\"")).unwrap_or_default();
        let ratio = quantity.ratio();
        let ratio_text = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let ratio_key = ratio.map(|ratio| format!(" data-key=\"{ratio}\"")).unwrap_or_default();
        let far = ratio.is_some_and(|ratio| !(1.0 / 1.15..=1.15).contains(&ratio));
        let class = if far { "n far" } else { "n" };
        let why = deviation.filter(|d| known(*d)).filter(|_| far || ours.is_none());
        let why = why.map(|number| format!("<a href=\"#D{number}\">D{number}</a>")).unwrap_or_default();
        format!(
            "<tr><td>{}</td><td class=\"n\" data-key=\"{paper}\">{}</td><td class=\"n\"{key}>{ours_text}</td>\
             <td class=\"{class}\"{ratio_key}>{ratio_text}</td><td>{origin}</td><td>{}</td><td>{why}</td></tr>\n",
            escape(name),
            number(*unit, *paper),
            escape(place)
        )
    };
    quantities.iter().map(row).collect()
}

/// Renders a table of quantities.
fn quantity_table(quantities: &[&Quantity], known: &dyn Fn(u32) -> bool) -> String {
    if quantities.is_empty() {
        return String::new();
    }
    let names = [
        ("quantity", ""),
        ("paper", " class=\"n\""),
        ("ours", " class=\"n\""),
        ("ours / paper", " class=\"n\""),
        ("ours is", ""),
        ("stated in", ""),
        ("why", ""),
    ];
    let heads: String = names
        .map(|(name, side)| format!("<th{side} aria-sort=\"none\"><button>{name}</button></th>"))
        .concat();
    format!(
        "<div class=\"scroll\"><table class=\"sortable quantities\"><thead><tr>{heads}</tr></thead><tbody>\n{}</tbody></table></div>\n",
        quantity_rows(quantities, known)
    )
}

#[cfg(test)]
mod tests;
