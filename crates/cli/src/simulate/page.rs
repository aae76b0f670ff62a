//! Page of a run or a sweep.

use buddy_record::Unit;
use buddy_report::{Align, Cell, Column, Page, SweepData, Table, count, number, share, sweep_page};
use buddy_sim::{KernelReport, Report, StallReport};
use buddy_sweep::Axis;

use super::{
    Run,
    measures::{MEASURES, Measure},
    output::{TOOL, cell, record, remark, settings, shown, words},
};

/// Returns the page of one run, or of a sweep over these axes with this number of planned runs.
pub(crate) fn page(what: &str, runs: &[Run<'_>], axes: &[Axis], planned: usize) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let (same, guess) = (words(&settings(runs, true)), remark(first).unwrap_or_default());
    if axes.iter().any(|axis| axis.rows.len() > 1) {
        let meanings: Vec<String> =
            MEASURES.iter().map(|one| format!("{}: {}", one.name, one.about(first))).collect();
        let meanings = meanings.join("; ");
        let same = format!("{same}. {guess}{meanings}.");
        return sweep_page(
            &SweepData { missing: planned - runs.len(), ..sweep(what, runs, axes, same) },
            TOOL,
        );
    }
    let report = &first.done.report;
    Page::new(&format!("Simulation of {what}"), &same)
        .section("", &guess, &figures(first).to_html())
        .part("limits", "Traffic and limits", LIMITS, &limits(report).to_html())
        .part("stalls", "What the schedulers wait for", STALLS, &stalls(first).to_html())
        .part("kernels", "Kernels", KERNELS, &kernels(report).to_html())
        .data("simulation.json", &record(what, runs, true))
        .render(TOOL)
}

const LIMITS: &str = "Use of each level over its peak, averaged over the whole run; the highest share limits the run, \
    unless all are low: then latency does.";
const STALLS: &str = "Cycles of all warp schedulers, by what the first warp of a scheduler waits for in a cycle without an \
    instruction.";
const KERNELS: &str =
    "Launches of the same name together; the rest of the time is copies and gaps between kernels.";

fn left(name: &'static str) -> Column {
    Column { name, group: "", align: Align::Left }
}

fn right(name: &'static str) -> Column {
    Column { name, group: "", align: Align::Right }
}

fn table(columns: Vec<Column>, rows: Vec<Vec<Cell>>) -> Table {
    Table { columns, rows, total: Vec::new() }
}

fn percent(part: f64) -> Cell {
    Cell::number(part, share(part))
}

/// Returns the metrics with their meanings.
fn figures(run: &Run<'_>) -> Table {
    let row = |measure: &Measure| {
        vec![Cell::text(measure.name), cell(measure, run), Cell::text(measure.about(run))]
    };
    let rows = shown(std::slice::from_ref(run)).map(row).collect();
    table(vec![left("figure"), right("value"), left("meaning")], rows)
}

/// Returns the use of every level over its peak, the highest share first.
fn limits(report: &Report) -> Table {
    let mut limits: Vec<_> = report.limits.iter().collect();
    limits.sort_by(|one, other| other.share.total_cmp(&one.share));
    let rows = limits.into_iter().map(|limit| {
        vec![
            Cell::text(&limit.name),
            Cell::number(limit.used, number(Unit::Number, limit.used)),
            Cell::number(limit.peak, number(Unit::Number, limit.peak)),
            Cell::text(&limit.unit),
            percent(limit.share),
        ]
    });
    table(vec![left("level"), right("used"), right("peak"), left("unit"), right("share")], rows.collect())
}

/// Returns the cycles of the schedulers: issuing, and waiting by reason.
fn stalls(run: &Run<'_>) -> Table {
    let (report, core) = (&run.done.report, &run.scenario.config.gpu.core);
    let stalls = &report.stalls;
    let issuing = report.instructions.div_ceil(core.issue_width.into());
    let mut reasons = vec![
        ("issuing", issuing, "an instruction is issued"),
        ("memory", stalls.memory, "a load's data"),
        ("arithmetic", stalls.arithmetic, "the result of an earlier instruction, or a branch"),
        ("unit", stalls.unit_busy, "an execution unit that is busy"),
        ("memory queue", stalls.memory_queue, "room in the load-store unit"),
        ("barrier", stalls.barrier, "other warps at a barrier"),
    ];
    let all = report.cycles * u64::from(core.sms * core.schedulers);
    let rest = all.saturating_sub(reasons.iter().map(|reason| reason.1).sum());
    reasons.push(("no warp", rest, "no warp is resident: launches, ends of kernels, idle multiprocessors"));
    let all = all.max(1) as f64;
    let row = |(name, cycles, about): (&str, u64, &str)| {
        let cycles_cell = Cell::number(cycles as f64, count(cycles));
        vec![Cell::text(name), cycles_cell, percent(cycles as f64 / all), Cell::text(about)]
    };
    table(
        vec![left("wait"), right("cycles"), right("share"), left("for")],
        reasons.into_iter().map(row).collect(),
    )
}

/// Returns the kernels by name, the longest first.
fn kernels(report: &Report) -> Table {
    let mut names: Vec<&str> = Vec::new();
    for kernel in &report.kernels {
        if !names.contains(&kernel.name.as_str()) {
            names.push(&kernel.name);
        }
    }
    let mut rows: Vec<(u64, Vec<Cell>)> = names.into_iter().map(|name| kernel(report, name)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.0));
    let columns = vec![
        left("kernel"),
        right("launches"),
        right("cycles"),
        right("share of the run"),
        right("warp instructions"),
        right("instructions a cycle"),
        right("L2"),
        right("device memory"),
        right("link"),
        left("waits for"),
        left("nearest limit"),
        right("of its peak"),
    ];
    table(columns, rows.into_iter().map(|row| row.1).collect())
}

/// Returns the bytes at L2, device memory and link, the longest wait, and the limit of a kernel; dashes
/// for a record of an older version.
fn traffic(report: &Report, name: &str) -> Vec<Cell> {
    let Some(sum) = report.by_kernel.iter().find(|sum| sum.name == name) else {
        return vec![Cell::text("-"); 6];
    };
    let bytes = |value: u64| Cell::number(value as f64, number(Unit::Bytes, value as f64));
    let StallReport { arithmetic, memory, unit_busy, memory_queue, barrier, no_warp } = sum.stalls;
    let waits = [
        ("arithmetic", arithmetic),
        ("memory", memory),
        ("unit", unit_busy),
        ("memory queue", memory_queue),
        ("barrier", barrier),
        ("no warp", no_warp),
    ];
    let longest = waits.iter().max_by_key(|wait| wait.1).filter(|wait| wait.1 > 0);
    vec![
        bytes(sum.l2_read_bytes + sum.l2_written_bytes),
        bytes(sum.dram_read_bytes + sum.dram_written_bytes),
        bytes(sum.link_read_bytes + sum.link_written_bytes),
        Cell::text(longest.map_or("-", |wait| wait.0)),
        Cell::text(&sum.limit),
        percent(sum.limit_share),
    ]
}

/// Returns the cycles and the row of all launches of a kernel.
fn kernel(report: &Report, name: &str) -> (u64, Vec<Cell>) {
    let own: Vec<&KernelReport> = report.kernels.iter().filter(|kernel| kernel.name == name).collect();
    let cycles = own.iter().map(|kernel| kernel.cycles).sum::<u64>();
    let instructions = own.iter().map(|kernel| kernel.instructions).sum::<u64>();
    let ipc = instructions as f64 / cycles.max(1) as f64;
    let whole = |value: u64| Cell::number(value as f64, count(value));
    let mut row = vec![
        Cell::text(name),
        whole(own.len() as u64),
        whole(cycles),
        percent(cycles as f64 / report.cycles.max(1) as f64),
        whole(instructions),
        Cell::number(ipc, number(Unit::Number, ipc)),
    ];
    row.extend(traffic(report, name));
    (cycles, row)
}

/// Returns the runs along the swept axes, for the page of a sweep.
fn sweep(what: &str, runs: &[Run<'_>], axes: &[Axis], same: String) -> SweepData {
    let varied = |axis: &&Axis| axis.rows.len() > 1;
    let axis = |axis: &Axis| (axis.keys.join(", "), axis.rows.iter().map(|row| row.join(", ")).collect());
    // The last axis varies fastest.
    let places = |mut number: usize| {
        let mut places: Vec<usize> = Vec::new();
        for axis in axes.iter().rev() {
            places.extend((axis.rows.len() > 1).then_some(number % axis.rows.len()));
            number /= axis.rows.len();
        }
        places.reverse();
        places
    };
    let figures = |run: &Run<'_>| MEASURES.iter().map(|one| one.of(run)).collect();
    SweepData {
        name: what.to_owned(),
        axes: axes.iter().filter(varied).map(axis).collect(),
        metrics: MEASURES.iter().map(|one| (one.name.to_owned(), one.unit, one.better)).collect(),
        rows: runs.iter().map(|run| (places(run.number), figures(run))).collect(),
        baseline: runs[0].base.about.to_owned(),
        same,
        ..SweepData::default()
    }
}
