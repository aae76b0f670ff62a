//! The analysis for a terminal and as CSV.

use buddy_core::SizeClass;
use buddy_record::{Analysis, ArrayAnalysis, Fit};

use super::{all_bytes, left, optimistic, right};
use crate::{
    Cell, Table, View, bytes, count,
    csv::{Value, csv},
    ratio, share,
    skipped::skipped_text,
    view::{Group, Measure},
    wrap,
};

/// Columns that a narrow terminal omits, in this order.
const SPARE: [&str; 11] =
    ["zero", "b8", "s1", "s2", "s3", "raw", "optimistic", "type", "overflow", "target", "codec"];

/// Compressors beside ours.
pub(super) const PEERS: [&str; 2] = ["lz4", "zstd"];
pub(super) const PEERS_REMARK: &str = "lz4 and zstd (level 3) are ratios of independent blocks of 64 KiB, each after the \
    best of byte shuffles of 1, 2, 4 and 8 bytes; one access decompresses all of a block. Our codecs give access to \
    every 128 bytes. Compressible memory of NVIDIA GPUs saves no capacity.";

/// Renders the table for a terminal: a row per array, or per group of layers that differ only in
/// their numbers, with the chosen codec and the ratio of the paper's.
pub fn analysis_text(analysis: &Analysis, view: &View) -> String {
    let mut columns = vec![
        left("array", ""),
        left("type", ""),
        right("size", ""),
        left("codec", ""),
        left("target", ""),
        right("ratio", ""),
        right("overflow", ""),
        right("saved", ""),
        right("bpc", ""),
    ];
    columns.extend(PEERS.map(|name| right(name, "")));
    columns.push(right("optimistic", ""));
    columns.extend(SizeClass::ALL.map(|class| right(class.name(), "")));
    let groups = groups(analysis, view);
    let shown = &groups[..groups.len().min(view.top.unwrap_or(usize::MAX))];
    let rows: Vec<Vec<Cell>> = shown.iter().map(|group| row(analysis, group)).collect();
    let total = vec![total(analysis)];
    let mut text = Table { columns, rows, total }.without_empty(&PEERS).to_text_within(view.width, &SPARE);
    let hidden: usize = groups[shown.len()..].iter().map(|group| group.members.len()).sum();
    if hidden > 0 {
        text.push_str(&format!("and {} more arrays\n", count(hidden as u64)));
    }
    text.push_str(&wrap(&summary(analysis), view.width));
    if has_peers(analysis) {
        text.push_str(&wrap(&format!("{PEERS_REMARK}\n"), view.width));
    }
    text.push_str(&wrap(&skipped_text(&analysis.skipped), view.width));
    text
}

/// Summarises the result in a sentence.
fn summary(analysis: &Analysis) -> String {
    let all = all_bytes(analysis);
    let of = |fit: &Fit| format!("{} ({})", bytes(all.saturating_sub(fit.device_bytes)), ratio(fit.ratio));
    format!(
        "\nOf {}, {} are saved with the best codec for each array, {} with the paper's BPC; at most {:.0}% of an array's entries \
         may overflow.\n",
        bytes(all),
        of(&analysis.auto),
        of(&analysis.bpc),
        analysis.threshold * 100.0
    )
}

/// Returns the sorted rows; arrays of one type and size may be grouped.
fn groups(analysis: &Analysis, view: &View) -> Vec<Group> {
    let names: Vec<&str> = analysis.arrays.iter().map(|array| array.name.as_str()).collect();
    let alike = |index: usize| {
        let array = &analysis.arrays[index];
        format!("{} {}", array.dtype, array.bytes)
    };
    let measure = |members: &[usize]| {
        let (size, fit) = (size(analysis, members), fit(analysis, members, |array| &array.auto.fit));
        Measure {
            bytes: size,
            device_bytes: fit.device_bytes,
            ratio: fit.ratio,
            overflow: fit.overflow_share,
        }
    };
    view.groups(&names, alike, measure)
}

fn size(analysis: &Analysis, members: &[usize]) -> u64 {
    members.iter().map(|&member| analysis.arrays[member].bytes).sum()
}

fn fit(analysis: &Analysis, members: &[usize], part: fn(&ArrayAnalysis) -> &Fit) -> Fit {
    Fit::total(members.iter().map(|&member| part(&analysis.arrays[member])))
}

fn row(analysis: &Analysis, group: &Group) -> Vec<Cell> {
    let arrays = || group.members.iter().map(|&member| &analysis.arrays[member]);
    let all = size(analysis, &group.members);
    let bpc = fit(analysis, &group.members, |array| &array.bpc.fit);
    let auto = fit(analysis, &group.members, |array| &array.auto.fit);
    let head = [
        group.name.clone(),
        arrays().next().map(|array| array.dtype.to_string()).unwrap_or_default(),
        bytes(all),
        several(arrays().map(|array| array.auto.codec.clone())),
        several(arrays().map(|array| array.auto.target.to_string())),
    ];
    cells(head, all, (&auto, &bpc), peers(analysis, &group.members))
}

/// Returns whether other compressors were measured.
pub(super) fn has_peers(analysis: &Analysis) -> bool {
    analysis.arrays.iter().any(|array| !array.peers.is_empty())
}

/// Returns the ratio of arrays with each of [`PEERS`]; `None` if it was not measured.
pub(super) fn peer_ratios(analysis: &Analysis, members: &[usize]) -> [Option<f64>; PEERS.len()] {
    PEERS.map(|name| {
        let packed = members.iter().map(|&member| analysis.arrays[member].peers.get(name).copied());
        let packed: Option<u64> = packed.sum();
        packed.filter(|&bytes| bytes > 0).map(|bytes| size(analysis, members) as f64 / bytes as f64)
    })
}

fn peers(analysis: &Analysis, members: &[usize]) -> [String; PEERS.len()] {
    peer_ratios(analysis, members).map(|found| found.map_or_else(String::new, ratio))
}

fn total(analysis: &Analysis) -> Vec<Cell> {
    let all = all_bytes(analysis);
    let name = format!("all {}", count(analysis.arrays.len() as u64));
    let head = [name, String::new(), bytes(all), String::new(), String::new()];
    let members: Vec<usize> = (0..analysis.arrays.len()).collect();
    cells(head, all, (&analysis.auto, &analysis.bpc), peers(analysis, &members))
}

fn cells(head: [String; 5], all: u64, (auto, bpc): (&Fit, &Fit), peers: [String; PEERS.len()]) -> Vec<Cell> {
    let entries = auto.histogram.entries().max(1) as f64;
    let mut cells: Vec<Cell> = head.into_iter().map(Cell::text).collect();
    cells.extend([
        Cell::text(ratio(auto.ratio)),
        Cell::text(share(auto.overflow_share)),
        Cell::text(saved(all, auto.device_bytes)),
        Cell::text(ratio(bpc.ratio)),
    ]);
    cells.extend(peers.map(Cell::text));
    cells.push(Cell::text(optimistic(auto)));
    cells.extend(auto.histogram.classes.map(|n| Cell::text(share(n as f64 / entries))));
    cells
}

/// Formats the bytes saved; `-` for none.
pub(crate) fn saved(all: u64, device_bytes: u64) -> String {
    match all.saturating_sub(device_bytes) {
        0 => "-".to_owned(),
        some => bytes(some),
    }
}

/// Describes the values of a group: one value, two short ones, or their number.
pub(crate) fn several(values: impl Iterator<Item = String>) -> String {
    let mut different: Vec<String> = Vec::new();
    values.for_each(|value| {
        if !different.contains(&value) {
            different.push(value);
        }
    });
    match &different[..] {
        [] => String::new(),
        [one] => one.clone(),
        [one, other] if one.len() + other.len() < 12 => format!("{one}, {other}"),
        many => format!("{} kinds", many.len()),
    }
}

/// Renders a CSV line per shown array, never grouped: sizes in bytes, shares from 0 to 1. Columns such
/// as `zstd_bytes` follow if other compressors were measured.
pub fn analysis_csv(analysis: &Analysis, view: &View) -> String {
    const NAMES: [&str; 20] = [
        "file",
        "name",
        "dtype",
        "shape",
        "bytes",
        "codec",
        "target",
        "ratio",
        "overflow",
        "device_bytes",
        "bpc_target",
        "bpc_ratio",
        "bpc_overflow",
        "bpc_device_bytes",
        "zero",
        "b8",
        "s1",
        "s2",
        "s3",
        "raw",
    ];
    let groups = groups(analysis, &View { each: true, ..view.clone() });
    let peers: Vec<&str> = PEERS.into_iter().filter(|_| has_peers(analysis)).collect();
    let peer_names: Vec<String> = peers.iter().map(|name| format!("{name}_bytes")).collect();
    let names: Vec<&str> = NAMES.into_iter().chain(peer_names.iter().map(String::as_str)).collect();
    let line = |group: Group| {
        let array = &analysis.arrays[group.members[0]];
        let shape: Vec<String> = array.shape.iter().map(u64::to_string).collect();
        let text = |text: &str| Value::Text(text.to_owned());
        let dtype = array.dtype.to_string();
        let mut cells = vec![
            text(&array.file),
            text(&array.name),
            text(&dtype),
            text(&shape.join("x")),
            Value::Whole(array.bytes),
        ];
        cells.push(text(&array.auto.codec));
        for outcome in [&array.auto, &array.bpc] {
            let fit = &outcome.fit;
            cells.extend([
                text(&outcome.target.to_string()),
                Value::Number(fit.ratio),
                Value::Number(fit.overflow_share),
            ]);
            cells.push(Value::Whole(fit.device_bytes));
        }
        let entries = array.auto.fit.histogram.entries().max(1) as f64;
        cells.extend(array.auto.fit.histogram.classes.map(|n| Value::Number(n as f64 / entries)));
        let measured =
            |name: &&str| array.peers.get(*name).map_or_else(|| text(""), |&bytes| Value::Whole(bytes));
        cells.extend(peers.iter().map(measured));
        cells
    };
    csv(&names, groups.into_iter().take(view.top.unwrap_or(usize::MAX)).map(line))
}
