//! The paper's networks in Caffe's layout compared with PyTorch's: panels of the figures `networks`
//! and `roles`.

use buddy_dl::{NetworkInfo, PAPER};
use buddy_record::{AxisInfo, Chart, Grid, GridCell, Panel, Policy, Profile, SeriesInfo, Unit};

use super::{bar_chart, networks::both};
use crate::{
    Findings, Recorded, arithmetic,
    findings::{CPU, CPU_CAFFE},
    geometric,
    reading::{SECOND, read_as},
    tensors::{Outcome, RULES, outcome, tensors},
};

/// Number of compared rules: the first of [`RULES`].
const COMPARED: usize = 2;

/// Memory of one network in one framework.
struct Held {
    batch: Option<f64>,
    footprint: Option<f64>,
    optimistic: Option<f64>,
    outcomes: [Outcome; COMPARED],
}

/// A network in Caffe and in PyTorch.
type Pair = (&'static NetworkInfo, [Held; 2]);

fn held(recorded: &Recorded) -> Held {
    let parameter = |name: &str| recorded.record.run.parameters.get(name)?.as_f64();
    let tensors = tensors(&recorded.profile);
    Held {
        batch: parameter("batch"),
        footprint: parameter("footprint_bytes"),
        optimistic: recorded.profile.optimistic_ratio,
        outcomes: [0, 1].map(|rule: usize| outcome(&tensors, RULES[rule].1)),
    }
}

/// Returns a table and a chart; nothing without records of Caffe's layout.
pub(super) fn panels(found: &Findings) -> Vec<Panel> {
    let pair = |info: &'static NetworkInfo| -> Option<Pair> {
        Some((info, [held(found.caffe.get(info.name)?), held(found.networks.get(info.name)?)]))
    };
    let pairs: Vec<Pair> = PAPER.iter().filter_map(pair).collect();
    if pairs.is_empty() {
        return Vec::new();
    }
    vec![Panel::Table(table(&pairs)), Panel::Chart(chart(&pairs)), Panel::Table(readings(found))]
}

/// A set of records: its name in the table, and the profile of a network.
type Set = (&'static str, fn(&Findings, &str) -> Option<Profile>);

const SETS: [Set; 4] = [
    ("PyTorch, H200", |found, name| found.networks.get(name).map(|one| one.profile.clone())),
    ("Caffe, H200", |found, name| found.in_caffe(name).cloned()),
    ("PyTorch, CPU", |found, name| found.in_set(CPU, name).cloned()),
    ("Caffe, CPU", |found, name| found.in_set(CPU_CAFFE, name).cloned()),
];

/// Returns the eight sizes and the final design with both readings of BPC, by record.
fn readings(found: &Findings) -> Grid {
    let mut rows = Vec::new();
    for (set, profile) in SETS {
        let known = PAPER.iter().filter_map(|info| Some((info.name, profile(found, info.name)?)));
        let known: Vec<(&str, Profile)> = known.collect();
        let cells: Vec<Vec<GridCell>> = known.iter().map(|(name, one)| row(set, name, one)).collect();
        rows.extend(cells);
        if known.len() == PAPER.len() {
            rows.push(means(set, &known));
        }
    }
    let columns = ["record", "network", "zeros after ReLU", "eight sizes", "final design", "overflow"];
    let again = ["eight sizes, bpc-best", "final design, bpc-best", "overflow, bpc-best"];
    let units = [Unit::Number, Unit::Number, Unit::Percent, Unit::Ratio, Unit::Ratio, Unit::Percent];
    let units = units.into_iter().chain([Unit::Ratio, Unit::Ratio, Unit::Percent]);
    Grid {
        title: "Both readings of BPC by record".to_owned(),
        columns: columns.into_iter().chain(again).map(str::to_owned).zip(units).collect(),
        rows,
    }
}

/// Eight sizes, and ratio and overflow of the final design.
fn numbers(profile: &Profile, codec: &str) -> [Option<f64>; 3] {
    let found = profile.outcome(Policy::Allocation16x, codec);
    [profile.optimistic_ratio, found.map(|one| one.ratio), found.map(|one| one.mean_overflow)]
}

fn both_readings(profile: &Profile) -> [Option<f64>; 6] {
    let again = read_as(profile, SECOND).map(|again| numbers(&again, SECOND.name()));
    let [a, b, c] = numbers(profile, "bpc");
    let [d, e, f] = again.unwrap_or_default();
    [a, b, c, d, e, f]
}

fn row(set: &str, name: &str, profile: &Profile) -> Vec<GridCell> {
    let zeros = profile.run.parameters.get("zeros_after_relu").and_then(serde_json::Value::as_f64);
    let numbers = both_readings(profile).map(GridCell::from);
    [set.into(), name.into(), zeros.into()].into_iter().chain(numbers).collect()
}

fn means(set: &str, known: &[(&str, Profile)]) -> Vec<GridCell> {
    let all: Vec<[Option<f64>; 6]> = known.iter().map(|(_, one)| both_readings(one)).collect();
    let column = |index: usize| all.iter().filter_map(move |one| one[index]);
    let mean = |index: usize| match index % 3 {
        2 => arithmetic(column(index)),
        _ => geometric(column(index)),
    };
    let numbers = (0..6).map(|index| GridCell::from(mean(index)));
    [set.into(), "mean".into(), GridCell::Empty].into_iter().chain(numbers).collect()
}

fn table(pairs: &[Pair]) -> Grid {
    let rules = RULES
        .iter()
        .take(COMPARED)
        .flat_map(|(name, _)| [format!("{name}, Caffe"), format!("{name}, PyTorch")]);
    let head = [("network", Unit::Number), ("batch", Unit::Count), ("footprint", Unit::Bytes)];
    let ratios = ["optimistic, Caffe", "optimistic, PyTorch"].map(str::to_owned).into_iter().chain(rules);
    let columns = head.map(|(name, unit)| (name.to_owned(), unit)).into_iter();
    let columns = columns.chain(ratios.map(|name| (name, Unit::Ratio))).collect();
    let row = |(info, [caffe, pytorch]): &Pair| -> Vec<GridCell> {
        let mut row = vec![info.name.into(), caffe.batch.into(), caffe.footprint.into()];
        row.extend([caffe.optimistic.into(), pytorch.optimistic.into()]);
        row.extend((0..COMPARED).flat_map(|rule| [caffe, pytorch].map(|one| cell(one.outcomes[rule]))));
        row
    };
    let optimistic =
        |at: usize| GridCell::from(geometric(pairs.iter().filter_map(|(_, held)| held[at].optimistic)));
    let mut means = vec!["mean".into(), GridCell::Empty, GridCell::Empty, optimistic(0), optimistic(1)];
    means.extend((0..COMPARED).flat_map(|rule| [0, 1].map(|at| cell(mean(pairs, rule, at)))));
    Grid {
        title: "As Caffe holds them".to_owned(),
        columns,
        rows: pairs.iter().map(row).chain([means]).collect(),
    }
}

fn cell(one: Outcome) -> GridCell {
    both(one.ratio, one.overflow)
}

fn mean(pairs: &[Pair], rule: usize, at: usize) -> Outcome {
    let all = || pairs.iter().map(|(_, held)| held[at].outcomes[rule]);
    Outcome {
        ratio: geometric(all().map(|one| one.ratio)).unwrap_or(f64::NAN),
        overflow: arithmetic(all().map(|one| one.overflow)).unwrap_or(f64::NAN),
    }
}

fn chart(pairs: &[Pair]) -> Chart {
    let series = |(rule, at): (usize, usize)| {
        let name = format!("{}, {}", RULES[rule].0, ["Caffe", "PyTorch"][at]);
        let bars = pairs.iter().map(|(_, held)| Some(held[at].outcomes[rule].ratio));
        SeriesInfo::bars(&name, bars.chain([Some(mean(pairs, rule, at).ratio)]))
    };
    let y = AxisInfo::new("ratio", Unit::Ratio).starting_at(0.0);
    let groups = pairs.iter().map(|(info, _)| info.label.to_owned()).chain(["mean".to_owned()]).collect();
    let series = [(0, 0), (0, 1), (1, 0), (1, 1)].map(series).into();
    Chart { groups, ..bar_chart("Ratio as Caffe and as PyTorch hold them", &[], y, series) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{bar, findings, near};

    /// alexnet in Caffe has x, which takes 4x, and its raw gradient: 32768 bytes in 4096 + 16384.
    #[test]
    fn caffes_layout_is_compared_with_pytorchs() {
        let panels = panels(&findings());
        let [Panel::Table(table), Panel::Chart(chart), Panel::Table(readings)] = &panels[..] else {
            panic!("two tables and a chart")
        };
        // alexnet with the second reading: 4x without overflow; resnet50 has no sizes with it.
        assert_eq!(readings.rows[0][6..], [16384.0 / 1408.0, 4.0, 0.0].map(GridCell::from));
        assert_eq!(readings.rows[1][6..], [GridCell::Empty, GridCell::Empty, GridCell::Empty]);
        assert_eq!(table.rows.len(), 2, "of resnet50 there is no record");
        assert_eq!(table.rows[0][5..7], ["1.60x, 12.5%", "4.00x, 25.0%"].map(GridCell::from));
        assert_eq!(table.rows[0][5..], table.rows[1][5..], "the mean of one");
        near(bar(chart, "bpc, 30%, Caffe", "AlexNet"), 1.6);
        near(bar(chart, "best codec, 30%, PyTorch", "mean"), 4.0);
    }
}
