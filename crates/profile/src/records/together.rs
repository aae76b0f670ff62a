//! Assigns page targets to all allocations of a program, which share the allowed overflow.

use buddy_core::{ENTRIES_PER_PAGE, Histogram, Targets};
use rayon::prelude::*;

use crate::{
    Assignment, CodecChoice, Measured, MeasuredAllocation, Place, candidates,
    ranges::{Block, Price, best, blocks_of, cost, joined, overflowing},
    records::assign::{entries, entries_over_time},
    share::{Choice, MOST_OF_ONE, least_within, share},
};

/// Assigns page targets such that the program is within the threshold.
pub(crate) fn together(
    measured: &Measured,
    choice: CodecChoice,
    codecs: &[usize],
    threshold: f64,
) -> Vec<Assignment> {
    let offers = |(allocation, &at): (&MeasuredAllocation, &usize)| -> Vec<Offer> {
        let eligible = candidates(Place::Memory);
        let others = (0..allocation.codecs.len())
            .filter(|&codec| codec != at && eligible.contains(&allocation.codecs[codec].kind))
            .filter(|_| choice == CodecChoice::Auto);
        let limit = threshold.max(MOST_OF_ONE);
        [at].into_iter().chain(others).filter_map(|codec| Offer::new(allocation, codec, limit)).collect()
    };
    let all: Vec<Vec<Offer>> = measured.allocations.par_iter().zip(codecs).map(offers).collect();
    type Chosen = Choice<(usize, Vec<usize>)>;
    let choose = |offers: &Vec<Offer>, price: f64| {
        let tried = offers.iter().enumerate().map(|(at, offer)| (offer.at(price), at));
        let ((_, targets), at) =
            tried.min_by(|one, other| one.0.0.total_cmp(&other.0.0)).expect("each allocation has page sizes");
        Choice { overflowing: overflowing(&offers[at].blocks, &targets), what: (at, targets) }
    };
    // The first blocks have the targets of `over`, the others those of `under`. If the codecs
    // differ, the others have the targets of `over`'s codec without overflow.
    let mix = |offers: &Vec<Offer>, over: &Chosen, under: &Chosen, part: f64| {
        let ((at, first), (other, rest)) = (&over.what, &under.what);
        let Offer { blocks, parameter_bytes, .. } = &offers[*at];
        let cut = (part * first.len() as f64) as usize;
        let alone = || best(blocks, Price::of_entries(f64::MAX.sqrt()));
        let rest = if at == other { rest.clone() } else { alone() };
        let targets = [&first[..cut], &rest[cut..]].concat();
        let device = cost(blocks, &targets, Price::NOTHING) + parameter_bytes;
        let before = &offers[*other];
        let gains = device < cost(&before.blocks, &under.what.1, Price::NOTHING) + before.parameter_bytes;
        (Choice { overflowing: overflowing(blocks, &targets), what: (*at, targets) }, gains)
    };
    let chosen = share(&all, &entries_over_time(measured), threshold, choose, mix);
    let assignment = |(offers, one): (&Vec<Offer>, Chosen)| {
        let (at, targets) = one.what;
        Assignment {
            codec: offers[at].codec,
            targets: Targets::from_ranges(joined(&offers[at].blocks, &targets)),
        }
    };
    all.iter().zip(chosen).map(assignment).collect()
}

/// A candidate codec of an allocation.
struct Offer {
    codec: usize,
    parameter_bytes: f64,
    blocks: Vec<Block>,
    /// The least price at which the allocation alone is within its limit.
    least: f64,
}

impl Offer {
    fn new(allocation: &MeasuredAllocation, codec: usize, limit: f64) -> Option<Self> {
        let sizes = &allocation.codecs[codec];
        let pages = entries(sizes).div_ceil(ENTRIES_PER_PAGE as u64);
        let blocks = blocks_of(sizes.blocks.as_ref()?, pages);
        let all: Vec<u64> = sizes.histograms.iter().map(Histogram::entries).collect();
        let least = least_within(&blocks, &all, limit);
        Some(Self { codec, parameter_bytes: sizes.parameter_bytes as f64, blocks, least })
    }

    /// Returns the least cost at a price, and its targets.
    fn at(&self, price: f64) -> (f64, Vec<usize>) {
        let targets = best(&self.blocks, Price::of_entries(price.max(self.least)));
        (cost(&self.blocks, &targets, Price::of_entries(price)) + self.parameter_bytes, targets)
    }
}
