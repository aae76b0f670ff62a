//! Shares the program's allowed overflow among its allocations.
//!
//! The threshold of page targets applies to the whole program. An overflowing entry has one price,
//! in entries of device memory, for all allocations: the least with which every snapshot is within
//! the threshold.

use rayon::prelude::*;

use crate::ranges::{Block, Price, best, overflowing};

/// Limit on the overflowing fraction of one allocation, unless the program's threshold is larger.
/// The paper's threshold.
pub(crate) const MOST_OF_ONE: f64 = 0.3;
/// Bounds of the price: overflow is nearly free at the first and never worthwhile at the second.
const PRICES: (f64, f64) = (1e-3, 1e9);
/// Bisection steps for the price.
const STEPS: usize = 24;
/// Bisection steps for the part of an allocation that still fits.
const PART_STEPS: usize = 12;

/// The choice of one allocation at some price.
#[derive(Debug, Clone)]
pub(crate) struct Choice<T> {
    pub(crate) what: T,
    /// Overflowing entries in each snapshot.
    pub(crate) overflowing: Vec<u64>,
}

/// Returns whether the overflowing fraction is within the threshold in every snapshot.
pub(crate) fn fits(overflowing: &[u64], entries: &[u64], threshold: f64) -> bool {
    overflowing.iter().zip(entries).all(|(&over, &all)| over as f64 <= threshold * all as f64)
}

/// Sums the counts of several allocations in each snapshot.
pub(crate) fn sums<'a>(snapshots: usize, each: impl Iterator<Item = &'a Vec<u64>>) -> Vec<u64> {
    let mut all = vec![0; snapshots];
    each.for_each(|one| all.iter_mut().zip(one).for_each(|(sum, more)| *sum += more));
    all
}

/// Returns the least price at which the value of `at` fits, that value, and the value just below
/// the price.
pub(crate) fn least_price<T>(at: impl Fn(f64) -> T, fits: impl Fn(&T) -> bool) -> (f64, T, T) {
    let (mut low, mut high) = PRICES;
    let (mut over, mut under) = (at(low), at(high));
    for _ in 0..STEPS {
        let price = (low * high).sqrt();
        let tried = at(price);
        if fits(&tried) { (high, under) = (price, tried) } else { (low, over) = (price, tried) }
    }
    (high, under, over)
}

/// Returns the least price of overflow at which the blocks alone are within a limit.
pub(crate) fn least_within(blocks: &[Block], entries: &[u64], limit: f64) -> f64 {
    let at = |price| overflowing(blocks, &best(blocks, Price::of_entries(price)));
    if fits(&at(0.0), entries, limit) { 0.0 } else { least_price(at, |over| fits(over, entries, limit)).0 }
}

/// Chooses for every allocation with `choose` at the least price at which the program fits the
/// threshold.
///
/// The overflow that remains allowed goes to the first allocations, the last of them in part. `mix`
/// combines a fraction of the first choice with the rest of the second, and returns whether that
/// saves memory.
pub(crate) fn share<A: Sync, T: Clone + Send>(
    all: &[A],
    entries: &[u64],
    threshold: f64,
    choose: impl Fn(&A, f64) -> Choice<T> + Sync,
    mix: impl Fn(&A, &Choice<T>, &Choice<T>, f64) -> (Choice<T>, bool),
) -> Vec<Choice<T>> {
    let at = |price: f64| all.par_iter().map(|one| choose(one, price)).collect::<Vec<_>>();
    let sum = |chosen: &Vec<Choice<T>>| sums(entries.len(), chosen.iter().map(|one| &one.overflowing));
    let (_, mut chosen, over) = least_price(at, |chosen| fits(&sum(chosen), entries, threshold));
    let mut total = sum(&chosen);
    for ((one, chosen), over) in all.iter().zip(&mut chosen).zip(over) {
        let with = |other: &Choice<T>| -> Vec<u64> {
            let each = total.iter().zip(&other.overflowing).zip(&chosen.overflowing);
            each.map(|((sum, more), less)| sum + more - less).collect()
        };
        let mut best = None;
        if fits(&with(&over), entries, threshold) {
            best = Some(over);
        } else {
            let (mut low, mut high) = (0.0, 1.0);
            for _ in 0..PART_STEPS {
                let middle = f64::midpoint(low, high);
                let mixed = mix(one, &over, chosen, middle);
                if fits(&with(&mixed.0), entries, threshold) {
                    low = middle;
                    best = mixed.1.then_some(mixed.0);
                } else {
                    high = middle;
                }
            }
        }
        if let Some(best) = best {
            total = with(&best);
            *chosen = best;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An allocation of 100 entries, of which `overflowing` overflow at prices below `most`.
    fn choose(&(overflowing, most): &(u64, f64), price: f64) -> Choice<bool> {
        let has = price < most;
        Choice { what: has, overflowing: vec![if has { overflowing } else { 0 }] }
    }

    #[test]
    fn overflow_goes_where_it_saves_most() {
        let all = [(8, 1.0), (5, 50.0), (5, 20.0), (1, 2.0)];
        let given = |threshold| {
            let chosen = share(&all, &[400], threshold, choose, |_, over, _, _| (over.clone(), false));
            chosen.iter().map(|one| one.what).collect::<Vec<_>>()
        };
        assert_eq!(given(0.05), [true; 4]);
        assert_eq!(given(0.03), [false, true, true, true]);
        assert_eq!(given(0.026), [false, true, true, false]);
        assert_eq!(given(0.01), [false; 4], "4 entries may overflow");
        assert_eq!(given(0.013), [false, true, false, false]);
    }

    #[test]
    fn a_part_overflows_where_the_whole_does_not_fit() {
        let mix = |&(overflowing, _): &(u64, f64), _: &Choice<bool>, _: &Choice<bool>, part: f64| {
            (Choice { what: true, overflowing: vec![(overflowing as f64 * part).ceil() as u64] }, true)
        };
        let chosen = share(&[(40, 5.0)], &[100], 0.1, choose, mix);
        assert_eq!(chosen[0].overflowing, [10]);
    }
}
