//! Plans one allocation's targets by phase and page range at a price of overflow.

use std::ops::Range;

use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, Histogram, Targets};

use crate::{
    MeasuredCodec,
    ranges::{Block, Price, best, blocks_of, cost, joined, overflowing},
    records::{
        assign::entries,
        phases::{CHANGE_COST, alike, cut},
    },
    share::{Choice, fits, least_price, least_within},
};

/// Target of every block at every snapshot, as an index into
/// [`Target::ALL`](buddy_core::Target::ALL).
pub(crate) type OverTime = Vec<Vec<usize>>;

/// A candidate phase.
struct Phase {
    snapshots: Range<usize>,
    blocks: Vec<Block>,
    /// The least price at which the phase alone is within the limit.
    least: f64,
}

/// An allocation with its candidate phases.
pub(crate) struct Timeline {
    /// Blocks over all snapshots.
    whole: Vec<Block>,
    /// Blocks of each snapshot.
    single: Vec<Vec<Block>>,
    phases: Vec<Phase>,
    /// Cost of a change, in bytes.
    change: f64,
}

impl Timeline {
    /// Creates a timeline with the `known` phases, or all possible ones. `None` if pages were not
    /// measured.
    pub(crate) fn new(codec: &MeasuredCodec, known: Option<Vec<Range<usize>>>, limit: f64) -> Option<Self> {
        let (count, all) = (codec.histograms.len(), entries(codec));
        let blocks = codec.blocks.as_deref().filter(|blocks| blocks.len() == count)?;
        let any = || (0..count).flat_map(|start| (start + 1..=count).map(move |end| start..end)).collect();
        let each: Vec<u64> = codec.histograms.iter().map(Histogram::entries).collect();
        let pages = all.div_ceil(ENTRIES_PER_PAGE as u64);
        let phase = |snapshots: Range<usize>| {
            let blocks = blocks_of(&blocks[snapshots.clone()], pages);
            let least = least_within(&blocks, &each[snapshots.clone()], limit);
            Phase { snapshots, blocks, least }
        };
        let phases = known.unwrap_or_else(any).into_iter().map(phase).collect();
        let single = blocks.chunks(1).map(|one| blocks_of(one, pages)).collect();
        let change = CHANGE_COST * (all * ENTRY_BYTES as u64) as f64 * count as f64;
        Some(Self { whole: blocks_of(blocks, pages), single, phases, change })
    }

    /// Sets the weight of overflowing entries in each snapshot.
    pub(crate) fn weigh(&mut self, weights: &[f64]) {
        for Phase { snapshots, blocks, .. } in &mut self.phases {
            blocks.iter_mut().for_each(|block| block.weigh(&weights[snapshots.clone()]));
        }
    }

    /// Returns the device bytes of a plan, summed over the snapshots.
    pub(crate) fn device(&self, plan: &OverTime) -> f64 {
        plan.iter().zip(&self.single).map(|(targets, blocks)| cost(blocks, targets, Price::NOTHING)).sum()
    }

    /// Returns the plan with the least cost at a price.
    pub(crate) fn at(&self, price: f64) -> Choice<OverTime> {
        let judge = |Phase { blocks, least, .. }: &Phase| {
            let targets = best(blocks, Price::of_entries(price.max(*least)));
            (cost(blocks, &targets, Price::of_entries(price)), targets)
        };
        let judged: Vec<(f64, Vec<usize>)> = self.phases.iter().map(judge).collect();
        let find = |phase: &Range<usize>| self.phases.iter().position(|known| known.snapshots == *phase);
        let cost_of = |phase: Range<usize>| find(&phase).map_or(f64::INFINITY, |at| judged[at].0);
        let phases = cut(self.single.len(), self.change, cost_of);
        let targets = |phase: Range<usize>| {
            let at = find(&phase).expect("phases come from the candidates");
            vec![judged[at].1.clone(); phase.len()]
        };
        self.choice(phases.into_iter().flat_map(targets).collect())
    }

    /// Combines the first blocks of one plan, a fraction `part`, with the others of another.
    pub(crate) fn mixed(&self, first: &OverTime, rest: &OverTime, part: f64) -> Choice<OverTime> {
        let mix = |(first, rest): (&Vec<usize>, &Vec<usize>)| {
            let cut = (part * first.len() as f64) as usize;
            [&first[..cut], &rest[cut..]].concat()
        };
        self.choice(first.iter().zip(rest).map(mix).collect())
    }

    fn choice(&self, what: OverTime) -> Choice<OverTime> {
        let over = |(targets, blocks): (&Vec<usize>, &Vec<Block>)| overflowing(blocks, targets).iter().sum();
        Choice { overflowing: what.iter().zip(&self.single).map(over).collect(), what }
    }

    /// Raises targets phase by phase while the program stays within the threshold, since a single
    /// price is set by the snapshot that overflows most. `total` and `entries` are the program's,
    /// per snapshot.
    pub(crate) fn fill(&self, plan: &mut OverTime, total: &mut [u64], entries: &[u64], threshold: f64) {
        for snapshots in alike(plan) {
            let Some(phase) = self.phases.iter().find(|phase| phase.snapshots == snapshots) else { continue };
            let held = plan[snapshots.start].clone();
            let before = overflowing(&phase.blocks, &held);
            let with = |targets: &[usize]| -> Vec<u64> {
                let after = overflowing(&phase.blocks, targets);
                let each = total[snapshots.clone()].iter().zip(after).zip(&before);
                each.map(|((sum, more), less)| sum + more - less).collect()
            };
            let within = |targets: &[usize]| fits(&with(targets), &entries[snapshots.clone()], threshold);
            let at = |price: f64| best(&phase.blocks, Price::of_entries(price.max(phase.least)));
            let (_, under, over) = least_price(at, |targets| within(targets));
            let mixed = |cut: usize| [&over[..cut], &under[cut..]].concat();
            let cut = (0..=over.len()).collect::<Vec<_>>().partition_point(|&cut| within(&mixed(cut)));
            let filled = mixed(cut.saturating_sub(1));
            let device = |targets: &[usize]| cost(&phase.blocks, targets, Price::NOTHING);
            if within(&filled) && device(&filled) < device(&held) {
                let after = with(&filled);
                total[snapshots.clone()].copy_from_slice(&after);
                plan[snapshots].fill(filled);
            }
        }
    }

    /// Returns the targets of every snapshot.
    pub(crate) fn targets(&self, plan: &OverTime) -> Vec<Targets> {
        plan.iter().map(|targets| Targets::from_ranges(joined(&self.whole, targets))).collect()
    }
}
