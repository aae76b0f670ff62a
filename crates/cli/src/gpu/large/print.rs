//! Terminal output of a wave run.

use std::io::Write;

use anyhow::Result;
use buddy_gpu_lab::{Grid, LargeNews, LargeReport, LargeRun, Moment, Plan, Way};

fn gb(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

fn name(grid: Grid) -> String {
    format!("{} x {} x {} cells", grid.x, grid.y, grid.z)
}

/// Prints the size of the problem relative to GPU memory.
pub(super) fn size(out: &mut impl Write, grid: Grid, memory: u64) -> Result<()> {
    let (plain, memory) = (gb(grid.plain_bytes()), gb(memory));
    let times = plain / memory;
    Ok(writeln!(
        out,
        "{}: {plain:.1} GB in plain memory, {times:.2} times the card's {memory:.1} GB",
        name(grid)
    )?)
}

/// Prints one progress event; waiting prints nothing.
pub(super) fn news(out: &mut impl Write, news: &LargeNews<'_>) -> Result<()> {
    match news {
        LargeNews::Checked(check) => {
            writeln!(out, "bit-identical after {} steps: {}", check.steps, check.what)?;
        }
        LargeNews::Planned(plan) => planned(out, plan)?,
        LargeNews::Alive(alive) => writeln!(
            out,
            "every cell alive: plain {:.3} ms a step, compressed {:.3} ms raw ({:.2}x), {:.3} ms windows ({:.2}x)",
            alive.plain_ms,
            alive.raw_ms,
            alive.plain_ms / alive.raw_ms,
            alive.window_ms,
            alive.plain_ms / alive.window_ms
        )?,
        LargeNews::Began(Way::Packed, _) => head(out)?,
        LargeNews::Passed(moment) => row(out, moment)?,
        LargeNews::Ended(run) => ended(out, run)?,
        LargeNews::Left(way, why) => writeln!(out, "{}: skipped, {why}", way.name())?,
        LargeNews::Began(..) | LargeNews::Waiting => {}
    }
    Ok(())
}

fn planned(out: &mut impl Write, plan: &Plan) -> Result<()> {
    writeln!(
        out,
        "profile of {}: at its end {:.1}% of pages have units, {:.1}% of bricks are alive, {:.1}% of these fit 112 of 128 bytes",
        name(plan.profiled),
        100.0 * plan.lit,
        100.0 * plan.alive,
        100.0 * plan.windows
    )?;
    let (raw, room, host) = (gb(plan.raw_bytes), gb(plan.room_bytes), gb(plan.host_bytes));
    let targets = match plan.retargets {
        false => "1x for every reached page, no host memory".to_owned(),
        true => format!("1x while device memory lasts, then 8/7x and up to {host:.1} GB of host memory"),
    };
    Ok(writeln!(
        out,
        "plan: velocities at 4x, unreached fields take nothing; reached fields at most {raw:.1} GB, {room:.1} GB available: {targets}"
    )?)
}

fn head(out: &mut impl Write) -> Result<()> {
    Ok(writeln!(
        out,
        "{:>6} {:>9} {:>9} {:>9} {:>8} {:>7} {:>7} {:>8} {:>7} {:>9}",
        "step", "ms/step", "Gcell/s", "GPU GB", "host GB", "lit", "zero", "windows", "raw", "overflow"
    )?)
}

fn row(out: &mut impl Write, moment: &Moment) -> Result<()> {
    let percent = |share: f64, digits: usize| format!("{:.digits$}%", 100.0 * share);
    Ok(writeln!(
        out,
        "{:>6} {:>9.3} {:>9.1} {:>9.2} {:>8.2} {:>7} {:>7} {:>8} {:>7} {:>9}",
        moment.step,
        moment.ms_per_step,
        moment.gcells,
        gb(moment.device_bytes),
        gb(moment.host_bytes),
        percent(moment.lit, 1),
        percent(moment.zero, 1),
        percent(moment.window, 1),
        percent(moment.raw, 1),
        percent(moment.overflow, 2)
    )?)
}

fn ended(out: &mut impl Write, run: &LargeRun) -> Result<()> {
    let equal = match run.differing {
        None => "",
        Some(0) => ", bit-identical to plain memory",
        Some(_) => ", DIFFERS from plain memory",
    };
    let (device, host) = (gb(run.device_bytes), gb(run.host_bytes));
    Ok(writeln!(
        out,
        "{}: {} of {} steps in {:.2} s, {:.1} Gcell/s, {:.1} at the end; {device:.1} GB on the GPU, {host:.1} GB in host memory{equal}",
        run.way.name(),
        run.steps,
        run.of,
        run.seconds,
        run.mean_gcells,
        run.end_gcells
    )?)
}

/// Names the method that is not measured, with the reason.
pub(super) fn left_out(out: &mut impl Write) -> Result<()> {
    Ok(writeln!(out, "Unified Memory is not run: beyond the size of GPU memory it can hang the GPU")?)
}

/// Prints a record like the run that wrote it.
pub(super) fn report(out: &mut impl Write, report: &LargeReport) -> Result<()> {
    size(out, report.grid, report.memory_bytes)?;
    for check in &report.checks {
        news(out, &LargeNews::Checked(check))?;
    }
    report.plan.iter().try_for_each(|plan| planned(out, plan))?;
    for run in &report.runs {
        if !run.over_time.is_empty() {
            head(out)?;
            run.over_time.iter().try_for_each(|moment| row(out, moment))?;
        }
        ended(out, run)?;
    }
    report.all_alive.iter().try_for_each(|alive| news(out, &LargeNews::Alive(alive)))
}
