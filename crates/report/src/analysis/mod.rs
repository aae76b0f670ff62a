//! `buddy analyze` for the terminal and as a page.

mod text;

use text::{PEERS, PEERS_REMARK, has_peers, peer_ratios};
pub use text::{analysis_csv, analysis_text};
pub(crate) use text::{saved, several};

use buddy_core::{PageMap, SizeClass, Target};
use buddy_record::{Analysis, ArrayAnalysis, Fit, Outcome, Record};

use crate::{
    Align, Axis, Card, Cell, Column, Line, Page, Series, Table, bar_chart, bytes, cards, class_bar,
    class_legend, count, heat_map, line_chart, names::shorten_apart, ratio, share, skipped::skipped_html,
    stack_maps,
};

/// Heat maps shown at once; the rest are folded.
const OPEN_MAPS: usize = 12;
/// Characters of a name in the table; the tooltip has the full name.
const NAME_CHARS: usize = 34;
/// Rows of the heat map of all memory.
const ALL_ROWS: usize = 512;

pub(crate) const fn left(name: &'static str, group: &'static str) -> Column {
    Column { name, group, align: Align::Left }
}

pub(crate) const fn right(name: &'static str, group: &'static str) -> Column {
    Column { name, group, align: Align::Right }
}

fn optimistic(fit: &Fit) -> String {
    fit.optimistic_ratio.map_or_else(|| "zeros".to_owned(), ratio)
}

fn all_bytes(analysis: &Analysis) -> u64 {
    analysis.arrays.iter().map(|array| array.bytes).sum()
}

/// Renders the page: summary, a sortable table, heat maps.
pub fn analysis_page(record: &Record<Analysis>) -> String {
    let analysis = &record.data;
    let table_remark = match has_peers(analysis) {
        true => format!("{TABLE_REMARK} {PEERS_REMARK}"),
        false => TABLE_REMARK.to_owned(),
    };
    let mut page = Page::new("How compressible is it?", &lead(analysis))
        .section("", "", &summary(analysis))
        .section("Sizes and thresholds", CHARTS_REMARK, &charts(analysis))
        .section("Every array", &table_remark, &(class_legend() + &table(analysis).to_html()))
        .section("Where it compresses", MAPS_REMARK, &maps(analysis));
    if let Some(skipped) = skipped_html(&analysis.skipped) {
        page = page.section("Skipped", "", &skipped);
    }
    page.data("analysis.json", &record.to_json()).render(&record.tool)
}

const CHARTS_REMARK: &str = "Memory is split into entries of 128 bytes. Each is compressed separately to 0 bytes, 8 \
    bytes, or 1 to 4 sectors of 32 bytes. A higher threshold allows larger targets: more capacity, and more \
    entries that are fetched over the slower link to buddy memory. At each threshold auto is the best of the codecs \
    that were measured here.";
const TABLE_REMARK: &str = "Optimistic is the ratio if every entry could have the best of eight sizes. The target \
    fixes how much of each entry is in device memory; overflow is the share of entries that need more. Click a \
    column to sort.";
const MAPS_REMARK: &str = "Each line is a page of 64 entries, pages run downwards in address order. Point at a map to \
    read it.";

fn lead(analysis: &Analysis) -> String {
    let mut files: Vec<&str> = analysis.arrays.iter().map(|array| array.file.as_str()).collect();
    files.dedup();
    match files[..] {
        [] => "nothing was read".to_owned(),
        [file] => file.to_owned(),
        [first, ..] => format!("{first} and {} more files", files.len() - 1),
    }
}

fn summary(analysis: &Analysis) -> String {
    let card = |name: &str, value: String, remark: String| Card { name: name.to_owned(), value, remark };
    let fit = |name: &str, fit: &Fit| {
        let remark = format!("{} of entries overflow to buddy memory", share(fit.overflow_share));
        card(
            name,
            ratio(fit.ratio),
            if fit.overflowing == 0 { "no entry overflows".to_owned() } else { remark },
        )
    };
    let entries = count(analysis.bpc.histogram.entries());
    cards(&[
        card(
            "Memory",
            bytes(all_bytes(analysis)),
            format!("{} arrays, {entries} entries", analysis.arrays.len()),
        ),
        fit("With the paper's BPC", &analysis.bpc),
        fit("With a codec per array", &analysis.auto),
        card(
            "Device memory then",
            bytes(analysis.auto.device_bytes),
            format!(
                "{} saved; targets at a threshold of {:.0}%",
                bytes(all_bytes(analysis).saturating_sub(analysis.auto.device_bytes)),
                analysis.threshold * 100.0
            ),
        ),
    ])
}

fn charts(analysis: &Analysis) -> String {
    format!("<div class=\"charts\">{}{}</div>\n", sizes(analysis), sweep(analysis))
}

fn sizes(analysis: &Analysis) -> String {
    let groups = SizeClass::ALL.map(|class| ["zero", "8 B", "32 B", "64 B", "96 B", "128 B"][class.index()]);
    let series = [("BPC", &analysis.bpc), ("auto", &analysis.auto)].map(|(name, fit)| {
        let entries = fit.histogram.entries().max(1) as f64;
        let values = fit.histogram.classes.iter().map(|&n| n as f64 / entries).collect();
        Series { name: name.to_owned(), values }
    });
    bar_chart(&groups, &series, Axis { name: "Share of entries", format: percent })
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Returns the overall ratio at other thresholds, as studied in the paper.
fn sweep(analysis: &Analysis) -> String {
    let line = |(codec, name): (&str, &str)| {
        let points = analysis.sweep.iter().filter(|point| point.codec == codec);
        Line { name: name.to_owned(), points: points.map(|point| (point.threshold, point.ratio)).collect() }
    };
    let lines = [("bpc", "BPC"), ("auto", "auto")].map(line);
    let x = Axis { name: "threshold: share of entries that may overflow", format: percent };
    line_chart(&lines, x, Axis { name: "Ratio in all", format: |ratio| format!("{ratio:.2}x") }, (1.0, 1.2))
}

fn table(analysis: &Analysis) -> Table {
    const BPC: &str = "the paper's BPC";
    const AUTO: &str = "auto";
    let outcome = |group| {
        [
            left("sizes", group),
            right("optimistic", group),
            right("target", group),
            right("ratio", group),
            right("overflow", group),
        ]
    };
    let mut columns = vec![left("array", ""), left("type", ""), right("size", "")];
    columns.extend(outcome(BPC));
    columns.push(left("codec", AUTO));
    columns.extend(outcome(AUTO));
    let peers: &[&'static str] = if has_peers(analysis) { &PEERS } else { &[] };
    columns.extend(peers.iter().map(|&name| right(name, "in blocks of 64 KiB")));
    let peer_cells = |members: &[usize]| {
        let cell = |found: Option<f64>| {
            found.map_or_else(|| Cell::text(""), |found| Cell::number(found, ratio(found)))
        };
        peer_ratios(analysis, members).map(cell).into_iter().take(peers.len()).collect::<Vec<_>>()
    };
    let names: Vec<String> = analysis.arrays.iter().map(|array| array.name.clone()).collect();
    let short = shorten_apart(&names, NAME_CHARS);
    let row = |(at, (array, short)): (usize, (&ArrayAnalysis, &String))| {
        let mut cells =
            vec![array_cell(array, short), Cell::text(array.dtype.name()), size_cell(array.bytes)];
        cells.extend(outcome_cells(&array.bpc.fit, Some(array.bpc.target)));
        cells.push(Cell::text(&array.auto.codec));
        cells.extend(outcome_cells(&array.auto.fit, Some(array.auto.target)));
        cells.extend(peer_cells(&[at]));
        cells
    };
    let mut total = vec![Cell::text("all"), Cell::text(""), size_cell(all_bytes(analysis))];
    total.extend(outcome_cells(&analysis.bpc, None));
    total.push(Cell::text(""));
    total.extend(outcome_cells(&analysis.auto, None));
    total.extend(peer_cells(&Vec::from_iter(0..analysis.arrays.len())));
    let rows = analysis.arrays.iter().zip(&short).enumerate().map(row).collect();
    Table { columns, rows, total: vec![total] }
}

fn array_cell(array: &ArrayAnalysis, short: &str) -> Cell {
    let shape: Vec<String> = array.shape.iter().map(u64::to_string).collect();
    let name = crate::escape(short);
    let hint = crate::escape(&format!("{}: {}, shape {}", array.file, array.name, shape.join(" × ")));
    Cell::text(&array.name).with_html(format!("<span class=\"name\" title=\"{hint}\">{name}</span>"))
}

fn size_cell(size: u64) -> Cell {
    Cell::number(size as f64, bytes(size))
}

fn outcome_cells(fit: &Fit, target: Option<Target>) -> [Cell; 5] {
    let target = target.map_or_else(|| Cell::text(""), |target| Cell::number(target.ratio(), target.name()));
    [
        Cell::number(fit.ratio, "").with_html(class_bar(&fit.histogram)),
        Cell::number(fit.optimistic_ratio.unwrap_or(f64::MAX), optimistic(fit)),
        target,
        Cell::number(fit.ratio, ratio(fit.ratio)),
        Cell::number(fit.overflow_share, share(fit.overflow_share)),
    ]
}

/// Returns all memory first, then the largest arrays, then the rest folded.
fn maps(analysis: &Analysis) -> String {
    let mut largest: Vec<&ArrayAnalysis> = analysis.arrays.iter().filter(|array| array.bytes > 0).collect();
    largest.sort_by_key(|array| std::cmp::Reverse(array.bytes));
    let (open, folded) = largest.split_at(largest.len().min(OPEN_MAPS));
    let each = |arrays: &[&ArrayAnalysis]| arrays.iter().map(|array| array_maps(array)).collect::<String>();
    let all = if largest.len() > 1 { overview(analysis) } else { String::new() };
    let open = format!("{}<div class=\"maps\">{all}{}</div>\n", class_legend(), each(open));
    if folded.is_empty() {
        return open;
    }
    let summary = format!("<summary>{} smaller arrays</summary>", folded.len());
    format!("{open}<details>{summary}<div class=\"maps\">{}</div></details>\n", each(folded))
}

/// Returns the pages of the chosen codec; those of the paper's if they are the same.
fn auto_pages(array: &ArrayAnalysis) -> Option<&PageMap> {
    array.auto.pages.as_ref().or(array.bpc.pages.as_ref())
}

fn overview(analysis: &Analysis) -> String {
    let bpc: Vec<&PageMap> = analysis.arrays.iter().filter_map(|array| array.bpc.pages.as_ref()).collect();
    let auto: Vec<&PageMap> = analysis.arrays.iter().filter_map(auto_pages).collect();
    let map = |name: &str, maps: &[&PageMap]| heat_map("All arrays", name, &stack_maps(maps, ALL_ROWS));
    map("BPC", &bpc) + &map("auto", &auto)
}

fn array_maps(array: &ArrayAnalysis) -> String {
    let map = |outcome: &Outcome| {
        let remark = format!("{} {}", outcome.codec, outcome.target);
        outcome.pages.as_ref().map(|pages| heat_map(&array.name, &remark, pages)).unwrap_or_default()
    };
    map(&array.bpc) + &map(&array.auto)
}

#[cfg(test)]
mod tests;
