//! The paper's five codecs, both readings of BPC, and ours.

use buddy_codec::CodecKind;
use buddy_record::{
    AxisInfo, Chart, CodecOutcome, Figure, Grid, GridCell, Mark, Panel, Profile, SeriesInfo, Shape, Unit,
};

use super::{Column, bar_chart};
use crate::{About, Experiment, Findings, Subject, arithmetic, findings::CPU, geometric, reading::SECOND};

/// Every codec for all allocations, and the best codec for each.
#[derive(Debug)]
pub struct Codecs;

/// The paper's means with eight sizes and with the final design: HPC and DL.
const PAPER: [(f64, f64); 2] = [(2.51, 1.9), (1.85, 1.5)];

impl Experiment for Codecs {
    fn about(&self) -> About {
        About {
            name: "codecs",
            title: "Codecs side by side",
            place: "section 2.4, and beyond the paper",
            text: "The paper compares five codecs and chooses Bit-Plane Compression (bpc). bpc-best is its second reading, \
                   with or without the transform, as in Compresso. Geometric means of the ratio of eight sizes and of \
                   the final design at a threshold of 30%. The programs are measured in this run; the networks are recorded \
                   after a few steps on a CPU, every sixteenth page, without FVC's tables. The last chart has our \
                   codecs too, and auto: the best of ours and bpc for each allocation.",
        }
    }

    fn draw(&self, found: &Findings) -> Figure {
        let (hpc, dl) = (found.hpc(), sampled(found));
        let kinds = compared();
        let mut panels = vec![Panel::Table(table(&kinds, &hpc, &dl))];
        for (index, (name, subjects)) in [("HPC", &hpc), ("DL", &dl)].into_iter().enumerate() {
            if subjects.iter().any(|one| one.profile.is_some()) {
                panels.push(Panel::Chart(means(&format!("{name} means by codec"), &kinds, subjects, index)));
            }
        }
        let all: Vec<Subject<'_>> = hpc.iter().chain(&dl).copied().collect();
        for (title, unit, value) in [
            ("Final design by workload", Unit::Ratio, (|one| one.ratio) as fn(&CodecOutcome) -> f64),
            ("Buddy accesses by workload", Unit::Percent, |one| one.mean_overflow),
        ] {
            panels.push(Panel::Chart(by_workload(title, unit, &kinds, &all, value)));
        }
        let every: Vec<&str> = CodecKind::ALL.iter().map(|kind| kind.name()).chain(["auto"]).collect();
        panels.push(Panel::Chart(means("HPC means, every codec", &every, &hpc, 0)));
        Figure { panels, missing: found.missing(), deviations: vec![3, 5, 46], ..self.about().figure() }
    }
}

/// Returns the codecs that the paper compares, with the second reading after the first.
fn compared() -> Vec<&'static str> {
    let mut names: Vec<&str> = CodecKind::PAPER.iter().map(|kind| kind.name()).collect();
    names.insert(1, SECOND.name());
    names
}

/// Returns the networks with the records of sampled pages.
fn sampled(found: &Findings) -> Vec<Subject<'_>> {
    found.dl().into_iter().map(|one| Subject { profile: found.in_set(CPU, one.name), ..one }).collect()
}

fn outcome<'a>(profile: &'a Profile, codec: &str) -> Option<&'a CodecOutcome> {
    profile.codecs.iter().find(|one| one.codec == codec)
}

fn mean(subjects: &[Subject<'_>], codec: &str, value: fn(&CodecOutcome) -> Option<f64>) -> Option<f64> {
    geometric(subjects.iter().filter_map(|subject| value(outcome(subject.profile?, codec)?)))
}

fn table(codecs: &[&str], hpc: &[Subject<'_>], dl: &[Subject<'_>]) -> Grid {
    let names = ["eight sizes", "final design", "overflow"].into_iter();
    let units = [Unit::Ratio, Unit::Ratio, Unit::Percent];
    let groups = ["HPC", "DL"].into_iter();
    let columns = groups.flat_map(|group| {
        names.clone().zip(units).map(move |(name, unit)| (format!("{group}, {name}"), unit))
    });
    let row = |codec: &&str| {
        let numbers = [hpc, dl].into_iter().flat_map(|subjects| {
            let over = subjects.iter().filter_map(|one| Some(outcome(one.profile?, codec)?.mean_overflow));
            [
                mean(subjects, codec, |one| one.optimistic_ratio),
                mean(subjects, codec, |one| Some(one.ratio)),
                arithmetic(over),
            ]
        });
        std::iter::once(GridCell::from(*codec)).chain(numbers.map(GridCell::from)).collect()
    };
    Grid {
        title: "Means by codec".to_owned(),
        columns: std::iter::once(("codec".to_owned(), Unit::Number)).chain(columns).collect(),
        rows: codecs.iter().map(row).collect(),
    }
}

/// Returns the means of a group (0 is HPC, 1 is DL) by codec, with the paper's above bpc.
fn means(title: &str, codecs: &[&str], subjects: &[Subject<'_>], group: usize) -> Chart {
    let column = |name: &str, value: fn(&CodecOutcome) -> Option<f64>| {
        SeriesInfo::bars(name, codecs.iter().map(|codec| mean(subjects, codec, value)))
    };
    let series = vec![
        column("eight sizes", |one| one.optimistic_ratio),
        column("final design", |one| Some(one.ratio)),
    ];
    let mark =
        |label: &str, series, y| Mark { label: label.to_owned(), x: Some(0.0), series: Some(series), y };
    let (eight, last) = PAPER[group];
    Chart {
        title: title.to_owned(),
        shape: Shape::Bars,
        x: AxisInfo::new("", Unit::Number),
        y: AxisInfo::new("ratio", Unit::Ratio).starting_at(0.0),
        groups: codecs.iter().map(|&name| name.to_owned()).collect(),
        series,
        marks: vec![mark("the paper, eight sizes", 0, eight), mark("the paper, final design", 1, last)],
    }
}

fn by_workload(
    title: &str,
    unit: Unit,
    codecs: &[&str],
    subjects: &[Subject<'_>],
    value: fn(&CodecOutcome) -> f64,
) -> Chart {
    let series = codecs.iter().map(|codec| {
        let of = |profile: &Profile| outcome(profile, codec).map(value);
        let ratios = unit == Unit::Ratio;
        let column = if ratios { Column::ratios(subjects, of) } else { Column::shares(subjects, of) };
        column.bars(codec)
    });
    let y = AxisInfo::new(if unit == Unit::Ratio { "ratio" } else { "entries in buddy memory" }, unit);
    bar_chart(title, subjects, y.starting_at(0.0), series.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{bar, chart, findings, near};

    /// bpc: cg 65536 bytes in 18432 + 20480, which is 32/19; seismic 65536 in 16384 + 20672, which
    /// is 1024/579. planes64: cg 32768 in 4096 + 10240 in both snapshots, which is 16/7; seismic as
    /// with bpc.
    #[test]
    fn means_are_geometric_over_the_programs() {
        let figure = Codecs.draw(&findings());
        let last = figure.panels.len() - 1;
        let chart = chart(&figure, last);
        near(bar(chart, "eight sizes", "bpc"), (32.0 / 19.0 * 1024.0 / 579.0_f64).sqrt());
        near(bar(chart, "eight sizes", "planes64"), (16.0 / 7.0 * 1024.0 / 579.0_f64).sqrt());
        near(bar(chart, "final design", "bpc"), (4.0 / 3.0 * 32.0 / 17.0_f64).sqrt());
        // cg: 4096 + 16384 bytes of device memory for 32768.
        near(bar(chart, "final design", "auto"), (1.6 * 32.0 / 17.0_f64).sqrt());
        assert_eq!(bar(chart, "final design", "fpc"), None, "not measured");
    }

    #[test]
    fn networks_have_both_readings_in_the_table() {
        let mut found = findings();
        let alexnet = found.networks.get("alexnet").cloned();
        found.sets.insert(CPU, alexnet.into_iter().map(|one| ("alexnet".to_owned(), one)).collect());
        let figure = Codecs.draw(&found);
        let Panel::Table(table) = &figure.panels[0] else { panic!("a table") };
        // 16384 bytes in 48 x 8 + 32 x 32 bytes; 4x without overflow.
        let cells = [16384.0 / 1408.0, 4.0, 0.0].map(GridCell::from);
        assert_eq!((&table.rows[1][0], &table.rows[1][4..]), (&"bpc-best".into(), &cells[..]));
        near(bar(chart(&figure, 2), "final design", "bpc"), 4.0);
        near(bar(chart(&figure, 3), "bpc-best", "AlexNet"), 4.0);
    }
}
