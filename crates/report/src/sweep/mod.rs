//! The page of a sweep: all points as data, and charts that the reader chooses.

use buddy_core::Unit;
use serde_json::{Value, json};

use crate::{Page, count, escape, number};

const STYLE: &str = include_str!("sweep.css");
const SCRIPT: &str = concat!(include_str!("numbers.js"), include_str!("charts.js"), include_str!("sweep.js"));

/// Failed points that are listed.
const FAILED: usize = 20;

/// A sweep as its page shows it.
#[derive(Debug, Clone, Default)]
pub struct SweepData {
    /// What it is called.
    pub name: String,
    /// The axes with more than one value: name, and values in order.
    pub axes: Vec<(String, Vec<String>)>,
    /// The figures of a point: name, unit, and whether more or less of it is better.
    pub metrics: Vec<(String, Unit, Option<bool>)>,
    /// Points that are done: the place along each axis, and each figure.
    pub rows: Vec<(Vec<usize>, Vec<Option<f64>>)>,
    /// Settings that all points share, in words.
    pub same: String,
    /// Points that are not done.
    pub missing: usize,
    /// Points that failed, and why.
    pub failed: Vec<(String, String)>,
}

/// The page: in short, lines for each value of one axis against another in small multiples, what each setting changes, the
/// front of capacity and speed, the best and the worst points, and the data to download.
pub fn sweep_page(data: &SweepData, tool: &str) -> String {
    let mut lead = format!("{} points", count(data.rows.len() as u64));
    if data.missing > 0 {
        lead.push_str(&format!(", {} not done", count(data.missing as u64)));
    }
    let same = if data.same.is_empty() { String::new() } else { format!("All points: {}", data.same) };
    let page = Page::new(&format!("Sweep {}", data.name), &lead)
        .part("short", "In short", &same, &format!("<style>{STYLE}</style>{BASELINE}{TABLES}"))
        .part("lines", "Lines", LINES, CHART)
        .part("effects", "What matters", EFFECTS, "<h3></h3><ul class=\"bars\"></ul>\n")
        .part("front", "Capacity and speed", FRONT, "<div class=\"plots\"></div>\n")
        .part("best", "Best and worst", BEST, TABLES)
        .part("data", "Data", "All points with all figures.", DOWNLOADS);
    let page = match data.failed.as_slice() {
        [] => page,
        failed => page.section("Failed", &format!("{} points failed.", failed.len()), &failed_html(failed)),
    };
    // In a block of its own, so that its names do not meet those of the page's script.
    let script = format!("<script>\n\"use strict\";\n{{\n{SCRIPT}}}\n</script>\n");
    page.section("", "", &format!("{}{script}", embedded(data))).render(tool)
}

const BASELINE: &str = "<p class=\"remark\">Speed is relative to the first point of the same program: <span class=\"baseline\"></span>. \
    Capacity is the program's bytes over the device memory that they take.</p>\n";
const TABLES: &str = "<div class=\"tables\"></div>\n";
const CHART: &str = "<div class=\"controls shape\"></div><div class=\"controls only\"></div><ul class=\"legend\"></ul>\
    <div class=\"multiples\"></div>\n";
const LINES: &str = "Where a line stands for several points, it shows their geometric mean; choose values to narrow them down. A line \
    across is a value that has one point only. The choice holds for the whole page and stands in its address.";
const EFFECTS: &str = "How much the figure changes when this setting alone does and all others stay: the largest over the least of \
    such points, on average (dark) and at most (light).";
const BEST: &str = "By the figure that the lines show, of the points that they show. Points with the same figures share a row.";
const FRONT: &str =
    "Every point that has both figures. Those that no other beats in both are joined: the Pareto front.";
const DOWNLOADS: &str =
    "<p><button id=\"csv\">Download CSV</button> <button id=\"jsonl\">Download JSON lines</button></p>\n";

/// The data as the script reads it; nothing in it ends the element.
fn embedded(data: &SweepData) -> String {
    let metrics = data.metrics.iter().map(|(name, unit, better)| {
        json!({ "name": name, "unit": unit, "better": better, "example": number(*unit, 1.0) })
    });
    let rows = data.rows.iter().map(|(places, figures)| {
        let places = places.iter().map(|place| json!(place));
        Value::Array(places.chain(figures.iter().map(|figure| json!(figure.map(short)))).collect())
    });
    let axes = data.axes.iter().map(|(name, values)| json!({ "name": name, "values": values }));
    let value = json!({
        "name": data.name,
        "axes": axes.collect::<Vec<_>>(),
        "metrics": metrics.collect::<Vec<_>>(),
        "rows": rows.collect::<Vec<_>>(),
    });
    format!(
        "<script type=\"application/json\" id=\"sweep\">{}</script>",
        value.to_string().replace('<', "\\u003c")
    )
}

/// A number with seven digits that count: what a picture and a reader need.
fn short(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(value)
}

fn failed_html(failed: &[(String, String)]) -> String {
    let row = |(name, why): &(String, String)| {
        format!("<tr><td>{}</td><td>{}</td></tr>\n", escape(name), escape(why))
    };
    let rows: String = failed.iter().take(FAILED).map(row).collect();
    format!(
        "<div class=\"scroll\"><table><thead><tr><th>point</th><th>why</th></tr></thead><tbody>\n{rows}</tbody></table></div>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(points: usize) -> SweepData {
        let values: Vec<String> = (0..points).map(|i| i.to_string()).collect();
        SweepData {
            name: "</script>".to_owned(),
            axes: vec![("link".to_owned(), values)],
            metrics: vec![
                ("speed".to_owned(), Unit::Ratio, Some(true)),
                ("capacity".to_owned(), Unit::Ratio, None),
            ],
            rows: (0..points).map(|i| (vec![i], vec![Some(1.0 / 3.0), None])).collect(),
            failed: vec![("<b>".to_owned(), "no & no".to_owned())],
            ..SweepData::default()
        }
    }

    #[test]
    fn the_page_holds_all_points_and_no_text_of_the_data_ends_its_script() {
        let page = sweep_page(&data(3), "buddy");
        let (_, rest) = page.split_once("id=\"sweep\">").unwrap();
        let (text, _) = rest.split_once("</script>").unwrap();
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(value["rows"].as_array().unwrap().len(), 3);
        assert_eq!(value["rows"][2], json!([2, 0.3333333, null]));
        assert_eq!(value["name"], "</script>");
        assert!(page.contains("<td>&lt;b&gt;</td><td>no &amp; no</td>"));
    }

    #[test]
    fn ten_thousand_points_stay_small() {
        assert!(sweep_page(&data(10_000), "buddy").len() < 400_000);
    }
}
