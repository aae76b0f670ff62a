//! Plans targets by phase: the retargeting at checkpoints that the paper mentions.
//!
//! With one set of targets, a program that starts with zeros is limited by its last snapshots.
//! Phases give each range of snapshots its own targets. At the first snapshot of a phase the memory
//! is [retargeted](https://docs.rs/buddy-memory), which is one pass over the allocation.

use std::ops::Range;

use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, PhaseChange, PhasePlan, PhaseSnapshot, Targets};
use buddy_record::Policy;
use rayon::prelude::*;

use crate::{
    Assignment, Measured, MeasuredCodec,
    allowed::Allowed,
    ranges::page_ranges,
    records::{
        assign::{entries, entries_over_time, ranges_in},
        carve_out::{LARGEST_RATIO, stay_within_four},
        timeline::{OverTime, Timeline},
    },
    share::{Choice, MOST_OF_ONE, share, sums},
};

/// Cost of a change of targets as a fraction of the allocation, averaged over the run. A change is
/// one pass over the allocation, of which a program makes hundreds.
pub(crate) const CHANGE_COST: f64 = 0.005;
/// Iterations over the weights of overflow in each snapshot.
const ROUNDS: usize = 5;
/// Longer runs are cut into phases by uniform targets, whatever the policy.
const MOST_BY_PAGES: usize = 16;

/// Plans targets by phase for allocations with the codecs in `chosen`.
///
/// Also returns the changes for the target file: those at later snapshots, and the first phase's
/// targets where they differ from `chosen`.
pub(crate) fn phases(
    measured: &Measured,
    chosen: &[Assignment],
    policy: Policy,
    allowed: Allowed,
) -> (PhasePlan, Vec<PhaseChange>) {
    let threshold = allowed.overflow;
    let overflow = if policy == Policy::Page { threshold.max(MOST_OF_ONE) } else { threshold };
    let limit = Allowed { overflow, ..allowed };
    let of_allocation = |(allocation, one): (&crate::MeasuredAllocation, &Assignment)| {
        targets_over_time(&allocation.codecs[one.codec], policy, limit)
    };
    let mut over_time: Vec<Vec<Targets>> =
        measured.allocations.par_iter().zip(chosen).map(of_allocation).collect();
    if policy == Policy::Page && !is_within(measured, chosen, &over_time, threshold) {
        over_time = together(measured, chosen, &over_time, threshold);
    }
    let at = |snapshot: usize| -> Vec<Assignment> {
        let with = |(one, targets): (&Assignment, &Vec<Targets>)| Assignment {
            codec: one.codec,
            targets: targets[snapshot].clone(),
        };
        chosen.iter().zip(&over_time).map(with).collect()
    };
    let mut moments: Vec<Vec<Assignment>> = (0..measured.run.snapshots.len()).map(at).collect();
    let memory = device_memory(measured, &moments);
    moments.iter_mut().for_each(|assigned| stay_within_four(measured, assigned, policy, memory));
    let over_time = |moments: &[Vec<Assignment>]| -> Vec<PhaseSnapshot> {
        let each = moments.iter().enumerate();
        each.map(|(snapshot, assigned)| outcome(measured, assigned, snapshot)).collect()
    };
    let mut snapshots = over_time(&moments);
    // Constant targets also choose codecs, and may need less than phases that share the threshold.
    let constant = vec![chosen.to_vec(); moments.len()];
    let without = over_time(&constant);
    let sum = |all: &[PhaseSnapshot], of: fn(&PhaseSnapshot) -> u64| all.iter().map(of).sum::<u64>();
    let no_more = |of: fn(&PhaseSnapshot) -> u64| sum(&without, of) <= sum(&snapshots, of);
    if no_more(|one| one.device_bytes) && no_more(|one| one.overflowing) {
        (moments, snapshots) = (constant, without);
    }
    let later: Vec<PhaseChange> =
        (1..moments.len()).flat_map(|at| changes(measured, &moments[at - 1], &moments[at], at)).collect();
    let mut all = moments.first().map_or_else(Vec::new, |first| changes(measured, chosen, first, 0));
    all.retain(|first| later.iter().any(|change| change.name == first.name));
    // Nothing is stored before the first snapshot.
    all.iter_mut().for_each(|first| first.bytes_moved = 0);
    all.extend_from_slice(&later);
    (PhasePlan::new(snapshots, later), all)
}

/// Returns the device bytes that hold every snapshot: at least a quarter of its data.
fn device_memory(measured: &Measured, moments: &[Vec<Assignment>]) -> u64 {
    let needs = |(snapshot, assigned): (usize, &Vec<Assignment>)| {
        let found = outcome(measured, assigned, snapshot);
        found.device_bytes.max(found.bytes.div_ceil(LARGEST_RATIO))
    };
    moments.iter().enumerate().map(needs).max().unwrap_or(0)
}

/// Returns whether the program's overflow is within the threshold in every snapshot.
fn is_within(measured: &Measured, chosen: &[Assignment], over_time: &[Vec<Targets>], threshold: f64) -> bool {
    (0..measured.run.snapshots.len()).all(|snapshot| {
        let with = |(one, targets): (&Assignment, &Vec<Targets>)| Assignment {
            codec: one.codec,
            targets: targets[snapshot].clone(),
        };
        let assigned: Vec<Assignment> = chosen.iter().zip(over_time).map(with).collect();
        let found = outcome(measured, &assigned, snapshot);
        found.overflowing as f64 <= threshold * (found.bytes / ENTRY_BYTES as u64) as f64
    })
}

/// Plans page targets by phase such that the program is within the threshold in every snapshot.
fn together(
    measured: &Measured,
    chosen: &[Assignment],
    alone: &[Vec<Targets>],
    threshold: f64,
) -> Vec<Vec<Targets>> {
    let count = measured.run.snapshots.len();
    let limit = threshold.max(MOST_OF_ONE);
    let all = measured.allocations.par_iter().zip(chosen).zip(alone).map(|((allocation, one), alone)| {
        // In long runs the phases of the separate plans are kept.
        let known = (count > MOST_BY_PAGES).then(|| alike(alone));
        Timeline::new(&allocation.codecs[one.codec], known, limit)
    });
    let Some(mut all) = all.collect::<Option<Vec<_>>>() else { return alone.to_vec() };
    let mix = |one: &Timeline, over: &Choice<OverTime>, under: &Choice<OverTime>, part: f64| {
        (one.mixed(&over.what, &under.what, part), true)
    };
    let entries = entries_over_time(measured);
    let mut weights = vec![1.0; count];
    let mut best: Option<(f64, Vec<OverTime>)> = None;
    for _ in 0..ROUNDS {
        all.par_iter_mut().for_each(|one| one.weigh(&weights));
        let plans = share(&all, &entries, threshold, |one: &Timeline, price| one.at(price), mix);
        let mut total = sums(count, plans.iter().map(|plan| &plan.overflowing));
        // Lowers the weights of snapshots that overflow by less than the threshold.
        for ((weight, &over), &entries) in weights.iter_mut().zip(&total).zip(&entries) {
            *weight *= 0.1 + 0.9 * over as f64 / (threshold * entries as f64).max(1.0);
        }
        let mut plans: Vec<OverTime> = plans.into_iter().map(|plan| plan.what).collect();
        for (one, plan) in all.iter().zip(&mut plans) {
            one.fill(plan, &mut total, &entries, threshold);
        }
        let device = all.iter().zip(&plans).map(|(one, plan)| one.device(plan)).sum();
        if best.as_ref().is_none_or(|(least, _)| device < *least) {
            best = Some((device, plans));
        }
    }
    let plans = best.map_or_else(Vec::new, |(_, plans)| plans);
    all.iter().zip(&plans).map(|(one, plan)| one.targets(plan)).collect()
}

/// Returns the ranges of consecutive equal values.
pub(crate) fn alike<T: PartialEq>(over_time: &[T]) -> Vec<Range<usize>> {
    let mut end = 0;
    let same = over_time.chunk_by(|one, next| one == next);
    same.map(|some| {
        end += some.len();
        end - some.len()..end
    })
    .collect()
}

/// Returns the targets of an allocation at every snapshot, constant within a phase.
fn targets_over_time(codec: &MeasuredCodec, policy: Policy, allowed: Allowed) -> Vec<Targets> {
    let (count, all) = (codec.histograms.len(), entries(codec));
    let whole =
        |phase: Range<usize>| -> Targets { allowed.target(&codec.histograms[phase], zeros(policy)).into() };
    let blocks = codec.blocks.as_ref().filter(|_| matches!(policy, Policy::Page | Policy::Link));
    let by_pages = |phase: Range<usize>| match blocks.and_then(|blocks| blocks.get(phase.clone())) {
        Some(blocks) => {
            Targets::from_ranges(page_ranges(blocks, all.div_ceil(ENTRIES_PER_PAGE as u64), allowed))
        }
        None => whole(phase),
    };
    // `cut` tries all pairs of a start and an end.
    let tried: &dyn Fn(Range<usize>) -> Targets = if count <= MOST_BY_PAGES { &by_pages } else { &whole };
    let device =
        |phase: Range<usize>| Assignment { codec: 0, targets: tried(phase) }.device_bytes(all) as f64;
    let cost = CHANGE_COST * (all * ENTRY_BYTES as u64) as f64 * count as f64;
    let phases = cut(count, cost, device);
    phases.into_iter().flat_map(|phase| vec![by_pages(phase.clone()); phase.len()]).collect()
}

/// Returns whether a policy uses 16x.
fn zeros(policy: Policy) -> bool {
    !matches!(policy, Policy::Naive | Policy::Allocation)
}

/// Cuts `count` snapshots into the phases with the least total cost.
///
/// `device` returns the device bytes per snapshot of a phase. Each change adds `cost` bytes.
pub(crate) fn cut(count: usize, cost: f64, device: impl Fn(Range<usize>) -> f64) -> Vec<Range<usize>> {
    // For each number of leading snapshots: the least sum, and the start of their last phase.
    let mut best = vec![(0.0, 0)];
    for end in 1..=count {
        let sum = |start: usize| {
            let bytes = device(start..end) * (end - start) as f64;
            (best[start].0 + bytes + if start > 0 { cost } else { 0.0 }, start)
        };
        let least = (0..end).map(sum).min_by(|left, right| left.0.total_cmp(&right.0));
        best.push(least.expect("a phase has a snapshot"));
    }
    let mut phases = Vec::new();
    let mut end = count;
    while end > 0 {
        phases.push(best[end].1..end);
        end = best[end].1;
    }
    phases.reverse();
    phases
}

/// Returns the device bytes and overflow of one snapshot. Counts only live allocations.
fn outcome(measured: &Measured, assigned: &[Assignment], snapshot: usize) -> PhaseSnapshot {
    let mut found = PhaseSnapshot::default();
    for (allocation, one) in measured.allocations.iter().zip(assigned) {
        let codec = &allocation.codecs[one.codec];
        if codec.histograms[snapshot].entries() == 0 {
            continue;
        }
        found.bytes += entries(codec) * ENTRY_BYTES as u64;
        found.device_bytes += one.device_bytes_with(codec);
        let ranges = ranges_in(codec, one, snapshot);
        found.overflowing += ranges.iter().map(|(target, all)| all.overflowing(*target)).sum::<u64>();
    }
    found
}

/// Returns the changes of targets at a snapshot.
fn changes(
    measured: &Measured,
    before: &[Assignment],
    after: &[Assignment],
    snapshot: usize,
) -> Vec<PhaseChange> {
    let infos = measured.run.allocations.iter().zip(&measured.allocations);
    let differ =
        infos.zip(before.iter().zip(after)).filter(|(_, (before, after))| before.targets != after.targets);
    let change = |((info, allocation), (_, after)): (
        (&buddy_record::AllocationInfo, &crate::MeasuredAllocation),
        (&Assignment, &Assignment),
    )| {
        let codec = &allocation.codecs[after.codec];
        PhaseChange {
            snapshot,
            name: info.name.clone(),
            ranges: after.ranges(entries(codec)),
            bytes_moved: codec.histograms[snapshot].stored_bytes(),
        }
    };
    differ.map(change).collect()
}

#[cfg(test)]
mod tests {
    use buddy_core::{Histogram, Target};

    use super::*;

    fn of(classes: [u64; 6]) -> Histogram {
        Histogram { classes, optimistic_bytes: 0 }
    }

    #[test]
    fn a_run_that_fills_up_has_phases() {
        let (zero, half, raw) = (of([64, 0, 0, 0, 0, 0]), of([0, 0, 0, 64, 0, 0]), of([0, 0, 0, 0, 0, 64]));
        let run = [[zero; 5].as_slice(), &[half; 4], &[raw]].concat();
        let codec = MeasuredCodec {
            kind: buddy_codec::CodecKind::Bpc,
            codec: None,
            parameter_bytes: 0,
            histograms: run,
            blocks: None,
            maps: Vec::new(),
        };
        let targets = targets_over_time(&codec, Policy::Allocation16x, Allowed::threshold(0.01));
        let found: Vec<Option<Target>> = targets.iter().map(Targets::uniform).collect();
        assert_eq!(found[..5], [Some(Target::X16); 5]);
        assert_eq!(
            found[5..],
            [Some(Target::X2), Some(Target::X2), Some(Target::X2), Some(Target::X2), Some(Target::X1)]
        );
    }

    /// The overflow of a snapshot goes to the allocation that saves most with it, in each phase.
    #[test]
    fn phases_of_all_allocations_share_the_threshold() {
        let [half, mixed] = [[0, 0, 0, 64, 0, 0], [0, 0, 0, 58, 0, 6]];
        let blocks = |pages: [u8; 6], count: usize| buddy_core::Blocks::from_pages(&vec![pages; count]);
        let codec = |pages: [u8; 6], count: usize| MeasuredCodec {
            kind: buddy_codec::CodecKind::Bpc,
            codec: None,
            parameter_bytes: 0,
            histograms: vec![blocks(pages, count).histogram(0..count); 2],
            blocks: Some(vec![blocks(pages, count); 2]),
            maps: Vec::new(),
        };
        let (small, large) = (codec(mixed, 8), codec(half, 72));
        let timelines = [&small, &large].map(|codec| Timeline::new(codec, None, 0.3).unwrap());
        let mix = |one: &Timeline, over: &Choice<OverTime>, under: &Choice<OverTime>, part: f64| {
            (one.mixed(&over.what, &under.what, part), true)
        };
        let shared = |threshold: f64| {
            let plans = share(&timelines, &[5120; 2], threshold, |one: &Timeline, price| one.at(price), mix);
            timelines[0].targets(&plans[0].what)[1].uniform()
        };
        assert_eq!(shared(0.01), Some(Target::X2));
        assert_eq!(shared(0.005), None, "half of its pages");
        assert_eq!(shared(0.0), Some(Target::X1));
    }

    /// A saving in one snapshot of ten must exceed the cost of two changes.
    #[test]
    fn a_change_must_save_its_cost() {
        assert_eq!(cut(10, 2.0, |phase| if phase == (7..8) { 1.0 } else { 2.0 }).len(), 1);
        assert_eq!(cut(10, 0.4, |phase| if phase == (7..8) { 1.0 } else { 2.0 }), [0..7, 7..8, 8..10]);
    }

    /// Half of the pages fill up, then the others. Uniform targets have one phase, page targets
    /// two.
    #[test]
    fn page_targets_give_phases_of_their_own() {
        let [zero, raw] = [[64, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 64]];
        let snapshot =
            |full: usize| (0..100).map(|page| if page < full { raw } else { zero }).collect::<Vec<_>>();
        let snapshots: Vec<Vec<[u8; 6]>> = [50, 50, 50, 50, 100, 100].map(snapshot).into();
        let histogram = |pages: &Vec<[u8; 6]>| {
            of(std::array::from_fn(|class| pages.iter().map(|page| u64::from(page[class])).sum()))
        };
        let codec = MeasuredCodec {
            kind: buddy_codec::CodecKind::Bpc,
            codec: None,
            parameter_bytes: 0,
            histograms: snapshots.iter().map(histogram).collect(),
            blocks: Some(snapshots.iter().map(|pages| buddy_core::Blocks::from_pages(pages)).collect()),
            maps: Vec::new(),
        };
        let uniform = |policy| {
            targets_over_time(&codec, policy, Allowed::threshold(0.01))
                .iter()
                .map(Targets::uniform)
                .collect::<Vec<_>>()
        };
        assert_eq!(uniform(Policy::Allocation16x), [Some(Target::X1); 6]);
        assert_eq!(uniform(Policy::Page)[3..], [None, Some(Target::X1), Some(Target::X1)]);
    }
}
