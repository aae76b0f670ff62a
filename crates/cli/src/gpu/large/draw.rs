//! Charts, page and picture of a wave run.

use std::{io::Write, path::Path};

use anyhow::Result;
use buddy_gpu_lab::{LargePicture, LargeReport, LargeRun, Moment, Way};
use buddy_record::{AxisInfo, Chart, Figure, Panel, Record, SeriesInfo, Shape, Unit};
use buddy_report::{Page, figure_files};
use buddy_snapshot::write_atomic;

/// A chart over the steps.
struct Over {
    title: &'static str,
    unit: &'static str,
    log: bool,
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Returns the charts of the compressed run: speed, memory and kinds of bricks.
fn over_time(report: &LargeReport) -> Vec<Over> {
    let Some(run) = report.runs.iter().find(|run| run.way == Way::Packed) else { return Vec::new() };
    let points = |value: fn(&Moment) -> f64| {
        run.over_time.iter().map(|moment| (f64::from(moment.step), value(moment))).collect::<Vec<_>>()
    };
    let line = |name: &str, value: fn(&Moment) -> f64| (name.to_owned(), points(value));
    let others = report.runs.iter().filter(|other| other.way != Way::Packed).map(|other| level(run, other));
    let percent = |name: &str, value: fn(&Moment) -> f64| {
        (name.to_owned(), points(value).into_iter().map(|(step, share)| (step, 100.0 * share)).collect())
    };
    let speed = std::iter::once(line("compressed", |moment| moment.gcells)).chain(others).collect();
    vec![
        Over { title: "Speed", unit: "10^9 cells a second", log: true, lines: speed },
        Over {
            title: "Memory of the fields",
            unit: "GB",
            log: false,
            lines: vec![
                line("on the GPU", |moment| moment.device_bytes as f64 / 1e9),
                line("of the host", |moment| moment.host_bytes as f64 / 1e9),
            ],
        },
        Over {
            title: "Bricks",
            unit: "percent",
            log: false,
            lines: vec![
                percent("zero", |moment| moment.zero),
                percent("windows", |moment| moment.window),
                percent("raw", |moment| moment.raw),
                percent("touch host memory", |moment| moment.overflow),
            ],
        },
    ]
}

/// Returns another run as a constant line at its mean speed.
fn level(run: &LargeRun, other: &LargeRun) -> (String, Vec<(f64, f64)>) {
    let ends = [1.0, f64::from(run.steps)];
    (other.way.name().to_owned(), ends.map(|step| (step, other.mean_gcells)).to_vec())
}

/// Returns the text above the charts.
fn lead(report: &LargeReport) -> String {
    let (plain, memory) = (report.plain_bytes as f64 / 1e9, report.memory_bytes as f64 / 1e9);
    let grid = report.grid;
    format!(
        "{} x {} x {} cells, {plain:.1} GB in plain memory, {:.2} times the memory of {}",
        grid.x,
        grid.y,
        grid.z,
        plain / memory,
        report.gpu
    )
}

/// Renders a page with all charts.
pub(super) fn page(record: &Record<LargeReport>) -> String {
    let page = Page::new("A wave in compressed memory", &lead(&record.data));
    svgs("wave", &record.data)
        .into_iter()
        .fold(page, |page, (_, svg)| page.section("", "", &svg))
        .data("gpu-large.json", &record.to_json())
        .render(&record.tool)
}

/// Writes the charts as PATH-1.svg, PATH-2.svg and PATH-3.svg.
pub(super) fn charts(path: &Path, report: &LargeReport) -> Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    for (file, svg) in svgs(&name, report) {
        crate::output::write(&path.with_file_name(file), &svg)?;
    }
    Ok(())
}

/// Returns the charts as SVG, each with its file name.
fn svgs(name: &str, report: &LargeReport) -> Vec<(String, String)> {
    let chart = |over: Over| {
        let y = AxisInfo::new(over.unit, Unit::Number);
        let y = if over.log { y.logarithmic() } else { y.starting_at(0.0) };
        let series = over.lines.into_iter().map(|(name, points)| SeriesInfo::new(&name, points)).collect();
        Panel::Chart(Chart {
            title: format!("{}, {} x {} x {} cells", over.title, report.grid.x, report.grid.y, report.grid.z),
            shape: Shape::Lines,
            x: AxisInfo::new("step", Unit::Count),
            y,
            groups: Vec::new(),
            series,
            marks: Vec::new(),
        })
    };
    let panels = over_time(report).into_iter().map(chart).collect();
    figure_files(&Figure { name: name.to_owned(), panels, ..Figure::default() })
}

/// Writes the wave over the rock: positive pressure red, negative blue, the rock grey.
pub(super) fn picture(path: &Path, picture: &LargePicture) -> Result<()> {
    let mut sizes: Vec<f32> =
        picture.values.iter().map(|value| value.abs()).filter(|&size| size > 0.0).collect();
    sizes.sort_by(f32::total_cmp);
    let scale = sizes.get(sizes.len() * 95 / 100).copied().unwrap_or(1.0);
    let pixel = |(&value, &rock): (&f32, &u8)| {
        let strength = ((4.0 * value / scale).asinh() / 4f32.asinh()).clamp(-1.0, 1.0);
        let light = 255.0 * (0.75 + 0.25 * f32::from(rock) / 255.0);
        let (strong, weak) = (light as u8, (light * (1.0 - strength.abs())) as u8);
        if strength > 0.0 { [strong, weak, weak] } else { [weak, weak, strong] }
    };
    let pixels: Vec<u8> = picture.values.iter().zip(&picture.rock).flat_map(pixel).collect();
    let file = super::png::encode(picture.width, &pixels);
    Ok(write_atomic(path, |out| out.write_all(&file))?)
}
