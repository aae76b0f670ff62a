//! The page of a sweep: all points as data, and interactive charts.

use buddy_record::Unit;
use serde_json::{Value, json};

use crate::{Page, count, escape, number};

const STYLE: &str = include_str!("sweep.css");
const SCRIPT: &str = concat!(include_str!("numbers.js"), include_str!("charts.js"), include_str!("sweep.js"));

/// Maximum number of failed points listed.
const FAILED: usize = 20;

/// Data of a sweep's page.
#[derive(Debug, Clone, Default)]
pub struct SweepData {
    /// Name of the sweep.
    pub name: String,
    /// Axes with more than one value: name, and values in order.
    pub axes: Vec<(String, Vec<String>)>,
    /// Metrics of a point: name, unit, and whether higher is better.
    pub metrics: Vec<(String, Unit, Option<bool>)>,
    /// Finished points: the position along each axis, and each metric.
    pub rows: Vec<(Vec<usize>, Vec<Option<f64>>)>,
    /// Description of the point that speeds are relative to; empty for the first point of the same program.
    pub baseline: String,
    /// Settings that all points share.
    pub same: String,
    /// Number of unfinished points.
    pub missing: usize,
    /// Failed points, and the reasons.
    pub failed: Vec<(String, String)>,
}

/// Renders the page: a summary, small multiples of one axis against another, the effect of each
/// setting, the Pareto front of capacity and speed, the best and worst points, and the data to
/// download.
pub fn sweep_page(data: &SweepData, tool: &str) -> String {
    let mut lead = format!("{} points", count(data.rows.len() as u64));
    if data.missing > 0 {
        lead.push_str(&format!(", {} not done", count(data.missing as u64)));
    }
    let same = if data.same.is_empty() { String::new() } else { format!("All points: {}", data.same) };
    let baseline = if data.baseline.is_empty() { FIRST.to_owned() } else { escape(&data.baseline) };
    let baseline = format!(
        "<p class=\"remark\">Speed is relative to {baseline}. Capacity is the program's bytes divided by the device \
         memory used.</p>\n"
    );
    let page = Page::new(&format!("Sweep {}", data.name), &lead)
        .part("short", "In short", &same, &format!("<style>{STYLE}</style>{baseline}{TABLES}"))
        .part("lines", "Lines", LINES, CHART)
        .part("effects", "What matters", EFFECTS, "<h3></h3><ul class=\"bars\"></ul>\n")
        .part("front", "Capacity and speed", FRONT, "<div class=\"plots\"></div>\n")
        .part("best", "Best and worst", BEST, TABLES)
        .part("data", "Data", "All points with all metrics.", DOWNLOADS);
    let page = match data.failed.as_slice() {
        [] => page,
        failed => page.section("Failed", &format!("{} points failed.", failed.len()), &failed_html(failed)),
    };
    // In its own block, so that its names do not clash with the page's script.
    let script = format!("<script>\n\"use strict\";\n{{\n{SCRIPT}}}\n</script>\n");
    page.section("", "", &format!("{}{script}", embedded(data))).render(tool)
}

const FIRST: &str = "the first point of the same program: <span class=\"baseline\"></span>";
const TABLES: &str = "<div class=\"tables\"></div>\n";
const CHART: &str = "<div class=\"controls shape\"></div><div class=\"controls only\"></div><ul class=\"legend\"></ul>\
    <div class=\"multiples\"></div>\n";
const LINES: &str = "A line shows the geometric mean of all matching points; choose values to narrow them down. A horizontal \
    line is a value with a single point. The choice applies to the whole page and is part of its address.";
const EFFECTS: &str = "Effect of this setting alone, all others equal: the largest value over the smallest among such points, on \
    average (dark) and at most (light).";
const BEST: &str =
    "Best and worst of the points shown above, by the metric shown. Points with equal metrics share a row.";
const FRONT: &str =
    "Every point that has both metrics. The line joins the Pareto front: points that no other beats in both.";
const DOWNLOADS: &str =
    "<p><button id=\"csv\">Download CSV</button> <button id=\"jsonl\">Download JSON lines</button></p>\n";

/// Returns the data for the script; nothing in it ends the element.
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

/// Rounds to seven significant digits.
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
    fn the_page_holds_all_points_escaped() {
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
    fn the_page_says_what_speeds_are_relative_to() {
        let with =
            |baseline: &str| sweep_page(&SweepData { baseline: baseline.to_owned(), ..data(2) }, "buddy");
        assert!(with("ideal <memory>").contains("relative to ideal &lt;memory&gt;. Capacity"));
        assert!(
            with("").contains("relative to the first point of the same program: <span class=\"baseline\">")
        );
    }

    /// Two and three times: the axis of a ratio begins below 1, that of a number above it.
    #[test]
    fn axes_of_ratios_include_one() {
        let script = format!(
            "const document = {{ getElementById: () => ({{ textContent: '{{\"axes\":[],\"metrics\":[{{\"unit\":\"ratio\"}},\
             {{\"unit\":\"number\"}}]}}' }}) }};\n{}\n\
             console.log([0, 1].map((metric) => scale(withOne(metric, [2, 3]), 0, 1).at(1) >= 0).join());",
            include_str!("numbers.js")
        );
        match std::process::Command::new("node").args(["-e", &script]).output() {
            Err(error) => println!("skipped: node does not start: {error}"),
            Ok(out) => assert_eq!(
                String::from_utf8_lossy(&out.stdout),
                "true,false\n",
                "{}",
                String::from_utf8_lossy(&out.stderr)
            ),
        }
    }

    #[test]
    fn a_page_of_ten_thousand_points_is_small() {
        assert!(sweep_page(&data(10_000), "buddy").len() < 400_000);
    }
}
