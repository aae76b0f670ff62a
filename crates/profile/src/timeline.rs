//! One allocation's targets over time at a price of overflow: phases, each with ranges of pages of its own.

use std::ops::Range;

use buddy_core::{Blocks, ENTRIES_PER_PAGE, ENTRY_BYTES, Histogram, Targets};

use crate::{
    MeasuredCodec,
    assign::entries,
    phases::{CHANGE_COST, cut},
    ranges::{Block, Price, best, blocks_of, cost, joined, overflowing},
    share::Choice,
    together::least_within,
};

/// The targets of every block at every snapshot, as their places among [`Target::ALL`](buddy_core::Target::ALL).
pub(crate) type OverTime = Vec<Vec<usize>>;

/// An allocation whose phases are planned.
pub(crate) struct Timeline<'a> {
    blocks: &'a [Blocks],
    entries: Vec<u64>,
    pages: u64,
    /// Phases that are tried, first snapshot first, each with the least price at which it is within the limit alone.
    phases: Vec<(Range<usize>, f64)>,
    /// What a change costs.
    change: f64,
}

impl<'a> Timeline<'a> {
    /// An allocation whose phases are any, or these; none if its pages were not measured.
    pub(crate) fn new(
        codec: &'a MeasuredCodec,
        known: Option<Vec<Range<usize>>>,
        limit: f64,
    ) -> Option<Self> {
        let (count, all) = (codec.histograms.len(), entries(codec));
        let blocks = codec.blocks.as_deref().filter(|blocks| blocks.len() == count)?;
        let any = || (0..count).flat_map(|start| (start + 1..=count).map(move |end| start..end)).collect();
        let each: Vec<u64> = codec.histograms.iter().map(Histogram::entries).collect();
        let pages = all.div_ceil(ENTRIES_PER_PAGE as u64);
        let priced = |phase: Range<usize>| {
            let least = least_within(&blocks_of(&blocks[phase.clone()], pages), &each[phase.clone()], limit);
            (phase, least)
        };
        let phases = known.unwrap_or_else(any).into_iter().map(priced).collect();
        let change = CHANGE_COST * (all * ENTRY_BYTES as u64) as f64 * count as f64;
        Some(Self { blocks, entries: each, pages, phases, change })
    }

    fn blocks(&self, phase: &Range<usize>) -> Vec<Block> {
        blocks_of(&self.blocks[phase.clone()], self.pages)
    }

    /// The phases that take least at a price.
    pub(crate) fn at(&self, price: f64) -> Choice<OverTime> {
        let judge = |(phase, least): &(Range<usize>, f64)| {
            let blocks = self.blocks(phase);
            let targets = best(&blocks, Price::of_entries(price.max(*least)));
            (cost(&blocks, &targets, Price::of_entries(price)), targets)
        };
        let judged: Vec<(f64, Vec<usize>)> = self.phases.iter().map(judge).collect();
        let find = |phase: &Range<usize>| self.phases.iter().position(|(known, _)| known == phase);
        let cost_of = |phase: Range<usize>| find(&phase).map_or(f64::INFINITY, |at| judged[at].0);
        let phases = cut(self.entries.len(), self.change, cost_of);
        let targets = |phase: Range<usize>| {
            let at = find(&phase).expect("phases that were judged");
            vec![judged[at].1.clone(); phase.len()]
        };
        self.choice(phases.into_iter().flat_map(targets).collect())
    }

    /// The first blocks as in one plan and the others as in another.
    pub(crate) fn mixed(&self, first: &OverTime, rest: &OverTime, part: f64) -> Choice<OverTime> {
        let mix = |(first, rest): (&Vec<usize>, &Vec<usize>)| {
            let cut = (part * first.len() as f64) as usize;
            [&first[..cut], &rest[cut..]].concat()
        };
        self.choice(first.iter().zip(rest).map(mix).collect())
    }

    fn choice(&self, what: OverTime) -> Choice<OverTime> {
        let over = |(at, targets): (usize, &Vec<usize>)| {
            overflowing(&self.blocks(&(at..at + 1)), targets)[..].iter().sum()
        };
        Choice { overflowing: what.iter().enumerate().map(over).collect(), what }
    }

    /// The targets of every snapshot.
    pub(crate) fn targets(&self, plan: &OverTime) -> Vec<Targets> {
        let blocks = self.blocks(&(0..self.entries.len()));
        plan.iter().map(|targets| Targets::of(joined(&blocks, targets))).collect()
    }
}
