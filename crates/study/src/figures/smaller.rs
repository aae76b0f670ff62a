//! Targets from a smaller run, applied to the large one: the paper's way of profiling.

use buddy_core::{ENTRY_BYTES, Histogram, Target, Targets};
use buddy_record::{AxisInfo, Figure, Grid, GridCell, Panel, Policy, Profile, Quantity, TargetTable, Unit};
use buddy_sim::Mode;

use super::{Column, bar_chart};
use crate::{
    About, Experiment, Findings, Point, Subject, arithmetic,
    experiment::{Explained, quantity},
    findings::{CLASSES, CPU, CPU_SMALL},
    geometric,
    performance::Timings,
};

/// Targets of a run of an eighth of the memory, or of a sixth to an eighth of the batch.
#[derive(Debug)]
pub struct Smaller;

/// Ratio of peak footprints and mean share of overflowing entries.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Outcome {
    ratio: f64,
    overflow: f64,
}

/// A workload with its own targets and with those of the smaller run.
struct Pair {
    own: Option<Outcome>,
    small: Option<Outcome>,
}

impl Experiment for Smaller {
    fn about(&self) -> About {
        About {
            name: "smaller",
            title: "Profile small, run large",
            place: "sections 3.4 and 3.5",
            text: "The paper profiles a smaller dataset or batch and runs the large one with its targets, the final design. \
                   Here the programs are profiled with an eighth of the memory, measured in this run, and the networks \
                   at a sixth to an eighth of the batch of their own run, recorded on a CPU: BigLSTM 2 of 16, AlexNet 16 \
                   of 128, Inception 4 of 32, SqueezeNet 8 of 48, VGG16 2 of 16, ResNet50 4 of 24. The last row of the \
                   table is recorded: bt with NAS class A, 64 cells to a side, and with the paper's footprint, 101 cells. \
                   Beside it are the targets made on the run itself. The slowdown at 150 GB/s is simulated and recorded, \
                   of programs with 32 MB and targets from 4 MB.",
        }
    }

    fn needs_smaller(&self) -> bool {
        true
    }

    fn draw(&self, found: &Findings) -> Figure {
        let subjects = found.subjects();
        let pairs: Vec<Pair> = subjects.iter().map(|subject| pair(found, subject)).collect();
        let at = |name: &str| subjects.iter().position(|subject| subject.name == name);
        let column = |value: &dyn Fn(&Pair) -> Option<f64>, ratios: bool| {
            let of = |subject: &Subject<'_>| value(&pairs[at(subject.name)?]);
            if ratios { Column::of(&subjects, of, geometric) } else { Column::of(&subjects, of, arithmetic) }
        };
        let ratios =
            [column(&|pair| Some(pair.own?.ratio), true), column(&|pair| Some(pair.small?.ratio), true)];
        let shares = [
            column(&|pair| Some(pair.own?.overflow), false),
            column(&|pair| Some(pair.small?.overflow), false),
        ];
        let names = ["targets of the run itself", "targets of the smaller run"];
        let chart = |title: &str, y: AxisInfo, columns: &[Column; 2]| {
            let bars = columns.iter().zip(names).map(|(column, name)| column.bars(name)).collect();
            Panel::Chart(bar_chart(title, &subjects, y.starting_at(0.0), bars))
        };
        let panels = vec![
            chart("Ratio", AxisInfo::new("ratio", Unit::Ratio), &ratios),
            chart("Buddy accesses", AxisInfo::new("entries in buddy memory", Unit::Percent), &shares),
            Panel::Table(table(&subjects, &pairs, classes(found))),
        ];
        Figure {
            quantities: quantities(&ratios[1], &shares[1]),
            panels,
            missing: found.missing(),
            deviations: vec![46, 49, 80],
            ..self.about().figure()
        }
    }
}

/// Returns the paper's final numbers, which are of targets from smaller runs.
fn quantities(ratios: &Column, shares: &Column) -> Vec<Quantity> {
    let of = |name: &str, unit, paper, ours| {
        let made = quantity(name, unit, paper, ours, "section 3.5").explained(80);
        made.of_group(name.ends_with("HPC"))
    };
    vec![
        of("Ratio, targets of a smaller run, HPC", Unit::Ratio, 1.9, ratios.hpc),
        of("Ratio, targets of a smaller run, DL", Unit::Ratio, 1.5, ratios.dl),
        of("Buddy accesses, targets of a smaller run, HPC", Unit::Percent, 0.0008, shares.hpc),
        of("Buddy accesses, targets of a smaller run, DL", Unit::Percent, 0.04, shares.dl),
    ]
}

fn pair(found: &Findings, subject: &Subject<'_>) -> Pair {
    let (large, small) = match subject.hpc {
        true => (subject.profile, found.smaller.get(subject.name).map(|program| &program.profile)),
        false => (found.in_set(CPU, subject.name), found.in_set(CPU_SMALL, subject.name)),
    };
    Pair::of(large, small)
}

/// Returns the recorded pair of `bt`: the targets of class A applied to the paper's footprint.
fn classes(found: &Findings) -> Option<Pair> {
    let [small, large] = ["bt-64", "bt-101"].map(|name| found.in_set(CLASSES, name));
    Some(Pair::of(Some(large?), Some(small?)))
}

impl Pair {
    fn of(large: Option<&Profile>, small: Option<&Profile>) -> Self {
        let own = large.and_then(|profile| profile.outcome(Policy::Allocation16x, "bpc"));
        Self {
            own: own.map(|found| Outcome { ratio: found.ratio, overflow: found.mean_overflow }),
            small: large.zip(small).map(|(large, small)| applied(large, &small.targets)),
        }
    }

    /// Returns ratio and overflow, with the run's own targets or with those of the smaller run.
    fn cells(&self, own: bool) -> [Option<f64>; 2] {
        let found = if own { self.own } else { self.small };
        [found.map(|one| one.ratio), found.map(|one| one.overflow)]
    }
}

/// Applies targets by name to the memory of a run with the paper's codec. An allocation without a
/// target stays at 1x.
fn applied(large: &Profile, targets: &TargetTable) -> Outcome {
    let target = |name: &str| match targets.get(name).map(|row| &row.targets) {
        Some(Targets::Uniform(target)) => *target,
        _ => Target::X1,
    };
    let chosen = || large.run.allocations.iter().map(|info| target(&info.name)).zip(&large.allocations);
    let in_snapshot = |snapshot: usize| {
        chosen().map(move |(target, sizes)| {
            let sizes = sizes.histograms.get("bpc").and_then(|all| all.get(snapshot)).copied();
            (target, sizes.unwrap_or_default())
        })
    };
    let sum = |snapshot: usize, count: fn(&(Target, Histogram)) -> u64| -> u64 {
        in_snapshot(snapshot).map(|one| count(&one)).sum()
    };
    let snapshots = || 0..large.run.snapshots.len();
    let most = |count: fn(&(Target, Histogram)) -> u64| {
        snapshots().map(|snapshot| sum(snapshot, count)).max().unwrap_or(0) as f64
    };
    let all = most(|(_, sizes)| sizes.entries() * ENTRY_BYTES as u64);
    let device = most(|(target, sizes)| sizes.entries() * target.device_bytes() as u64);
    let over = snapshots().map(|snapshot| {
        let entries = sum(snapshot, |(_, sizes)| sizes.entries()).max(1);
        sum(snapshot, |(target, sizes)| sizes.overflowing(*target)) as f64 / entries as f64
    });
    Outcome {
        ratio: if device > 0.0 { all / device } else { 1.0 },
        overflow: arithmetic(over).unwrap_or(0.0),
    }
}

fn table(subjects: &[Subject<'_>], pairs: &[Pair], classes: Option<Pair>) -> Grid {
    let names = ["ratio", "overflow", "slowdown"];
    let units = [Unit::Ratio, Unit::Percent, Unit::Percent];
    let both = ["own", "smaller run"].into_iter();
    let columns =
        both.flat_map(|whose| names.into_iter().zip(units).map(move |(n, u)| (format!("{n}, {whose}"), u)));
    let timings = [true, false].map(|own| (own, Timings::smaller(own)));
    let row = |label: &str, pair: &Pair, name: Option<&str>| -> Vec<GridCell> {
        let numbers = timings.iter().flat_map(|(own, timings)| {
            let speed = name.and_then(|name| timings.speed(&Point::new(name, Mode::Buddy)));
            pair.cells(*own).into_iter().chain([speed.map(|speed| 1.0 / speed - 1.0)])
        });
        std::iter::once(GridCell::from(label)).chain(numbers.map(GridCell::from)).collect()
    };
    let rows = subjects.iter().zip(pairs).map(|(one, pair)| row(one.label, pair, Some(one.name)));
    let classes = classes.map(|pair| row("370.bt, class A to the paper's size", &pair, None));
    Grid {
        title: "Targets of the run itself and of a smaller one".to_owned(),
        columns: std::iter::once(("workload".to_owned(), Unit::Number)).chain(columns).collect(),
        rows: rows.chain(classes).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{bar, chart, findings, near, ours};

    /// cg as the small run gives a 2x and b 1x. The large run is seismic with cg's names: p is zero,
    /// then 32 of 128 entries are raw; q is raw.
    #[test]
    fn targets_of_the_smaller_run_are_applied_by_name() {
        let mut found = findings();
        found.smaller = [("cg".to_owned(), found.programs["cg"].clone())].into();
        let figure = Smaller.draw(&found);
        // The same run: 4/3 with 32 of 256 entries in the second snapshot.
        near(bar(chart(&figure, 0), "targets of the smaller run", "354.cg"), 4.0 / 3.0);
        near(bar(chart(&figure, 1), "targets of the smaller run", "354.cg"), 0.0625);
        near(ours(&figure, "Ratio, targets of a smaller run, HPC"), 4.0 / 3.0);
        assert_eq!(bar(chart(&figure, 0), "targets of the smaller run", "355.seismic"), None);
        let small = &found.programs["cg"].profile.targets;
        let mut large = found.programs["seismic"].profile.clone();
        for (info, name) in large.run.allocations.iter_mut().zip(["a", "b"]) {
            info.name = name.to_owned();
        }
        // p at 2x: 8192 + 16384 of 32768 bytes; 32 of 256 entries overflow in the second snapshot.
        assert_eq!(applied(&large, small), Outcome { ratio: 4.0 / 3.0, overflow: 0.0625 });
        large.run.allocations[0].name = "other".to_owned();
        assert_eq!(applied(&large, small), Outcome { ratio: 1.0, overflow: 0.0 });
    }

    /// alexnet is 4x with a quarter of its entries in buddy memory, with its own targets.
    #[test]
    fn the_recorded_pair_is_the_last_row() {
        let mut found = findings();
        let rows = |found: &Findings| {
            let Some(Panel::Table(grid)) = Smaller.draw(found).panels.pop() else { panic!("a table") };
            grid.rows
        };
        let before = rows(&found);
        let alexnet = found.networks["alexnet"].clone();
        let pair = ["bt-64", "bt-101"].map(|name| (name.to_owned(), alexnet.clone()));
        found.sets.insert(CLASSES, pair.into());
        let mut after = rows(&found);
        let last = after.pop().unwrap();
        assert_eq!(last[0], GridCell::from("370.bt, class A to the paper's size"));
        for numbers in [&last[1..4], &last[4..]] {
            assert_eq!(numbers, [4.0.into(), 0.25.into(), GridCell::Empty]);
        }
        assert_eq!(after, before);
    }
}
