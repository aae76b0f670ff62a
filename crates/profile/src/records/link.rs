//! Predicts how overflow slows a program down, and chooses targets within a limit of it.
//!
//! The model has two programs, and takes the slower. Bandwidth limits the first: plain, it moves its
//! bytes at the speed of device memory; compressed, the sectors of overflowing entries move over the
//! link at the same time. Latency limits the second: a load of a warp waits for the slowest of
//! [`WARP_ENTRIES`] entries, and an overflowing one takes the link's latency longer than a miss.
//! Metadata and the codec are not modelled (docs/notes/simulator.md).

use buddy_core::{ENTRIES_PER_PAGE, Targets};
use buddy_record::{
    CurvePoint, LinkAdvice, LinkCost, Policy,
    spec::{Gpu, Link},
};
use rayon::prelude::*;

use crate::{
    Assignment, CodecChoice, Error, Measured, MeasuredAllocation, MeasuredCodec, Place,
    allowed::{Allowed, link_bytes},
    candidates,
    ranges::page_ranges,
    records::{
        assign::{codecs, entries, leave_uncompressed, ranges_in},
        carve_out::stay_within_four,
    },
};

/// Limits of the curve of capacity over slowdown.
const CURVE: [f64; 9] = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0];

/// Entries that a warp's load of 32 doubles touches if it is not aligned.
const WARP_ENTRIES: f64 = 3.0;

/// A machine, and the slowdown that no allocation may exceed on it.
#[derive(Debug, Clone)]
pub struct LinkLimit {
    /// The GPU, for the bandwidth of its memory.
    pub gpu: Gpu,
    /// The link to buddy memory.
    pub link: Link,
    /// Largest predicted slowdown: 0.05 is 5% more time.
    pub max_slowdown: f64,
    /// Entry accesses of each allocation; `None` means that each entry is accessed once.
    pub accesses: Option<Vec<u64>>,
}

impl LinkLimit {
    /// Returns the limits of an allocation, which also keeps a threshold.
    pub(crate) fn allowed(&self, threshold: f64) -> Allowed {
        let link = (1.0 + self.max_slowdown) * self.link.gb_per_s / self.gpu.dram_gb_per_s();
        let block = self.max_slowdown / self.wait();
        Allowed { overflow: threshold.min(block), link, block }
    }

    /// Returns the additional time per overflowing access of a program that latency limits, in
    /// units of a miss.
    fn wait(&self) -> f64 {
        WARP_ENTRIES * self.link.latency_ns / self.gpu.miss_ns()
    }

    /// Returns the additional time of a program of which this share of accesses overflows, that
    /// moves `link` bytes over the link and would move `plain` bytes of plain memory.
    fn slowdown(&self, overflow: f64, link: f64, plain: f64) -> f64 {
        let (link, plain) = (link / self.link.gb_per_s, plain / self.gpu.dram_gb_per_s());
        let behind = if link > plain { link / plain - 1.0 } else { 0.0 };
        behind.max(overflow * self.wait())
    }

    /// Returns the mean number of accesses per entry of an allocation.
    fn passes(&self, index: usize, entries: u64) -> f64 {
        self.accesses.as_ref().map_or(1.0, |all| all[index] as f64 / entries.max(1) as f64)
    }

    /// Sums up one snapshot of the allocations in `which`.
    fn cost_at(&self, measured: &Measured, chosen: &[Assignment], which: &[usize], at: usize) -> LinkCost {
        let (mut over, mut all, mut link, mut plain) = (0.0, 0.0, 0.0, 0.0);
        for &index in which {
            let codec = &measured.allocations[index].codecs[chosen[index].codec];
            let passes = self.passes(index, entries(codec));
            for (target, sizes) in ranges_in(codec, &chosen[index], at) {
                over += passes * sizes.overflowing(target) as f64;
                all += passes * sizes.entries() as f64;
                link += passes * link_bytes(&sizes, target) as f64;
                plain += passes * sizes.bytes() as f64;
            }
        }
        let overflow = if all > 0.0 { over / all } else { 0.0 };
        LinkCost { overflow, bytes: link.round() as u64, slowdown: self.slowdown(overflow, link, plain) }
    }

    /// Returns the cost in the snapshot with the largest slowdown, then the most link bytes.
    fn cost(&self, measured: &Measured, chosen: &[Assignment], which: &[usize]) -> LinkCost {
        let each = (0..measured.run.snapshots.len()).map(|at| self.cost_at(measured, chosen, which, at));
        let larger = |one: &LinkCost, other: &LinkCost| {
            one.slowdown.total_cmp(&other.slowdown).then(one.bytes.cmp(&other.bytes))
        };
        each.max_by(larger).unwrap_or_default()
    }

    /// Returns the cost of each allocation.
    pub(crate) fn each(&self, measured: &Measured, chosen: &[Assignment]) -> Vec<LinkCost> {
        (0..chosen.len()).map(|index| self.cost(measured, chosen, &[index])).collect()
    }

    /// Returns the cost of all allocations together.
    pub(crate) fn total(&self, measured: &Measured, chosen: &[Assignment]) -> LinkCost {
        self.cost(measured, chosen, &(0..chosen.len()).collect::<Vec<_>>())
    }

    /// Describes the machine, with the capacity at every limit of the curve.
    ///
    /// `ratio` returns the ratio of an assignment.
    pub(crate) fn advice(
        &self,
        measured: &Measured,
        threshold: f64,
        codec: CodecChoice,
        ratio: impl Fn(&[Assignment]) -> f64,
    ) -> Result<LinkAdvice, Error> {
        let mut limits: Vec<f64> = CURVE.into_iter().chain([self.max_slowdown]).collect();
        limits.sort_by(f64::total_cmp);
        limits.dedup();
        let point = |max_slowdown: f64| {
            let chosen = assign_within(measured, threshold, codec, &Self { max_slowdown, ..self.clone() })?;
            let slowdown = self.total(measured, &chosen).slowdown;
            Ok(CurvePoint { max_slowdown, ratio: ratio(&chosen), slowdown })
        };
        Ok(LinkAdvice {
            spec: self.gpu.name.clone(),
            device_gb_per_s: self.gpu.dram_gb_per_s(),
            link: self.link.name.clone(),
            link_gb_per_s: self.link.gb_per_s,
            max_slowdown: self.max_slowdown,
            counted: self.accesses.is_some(),
            curve: limits.into_iter().map(point).collect::<Result<_, Error>>()?,
        })
    }
}

/// Assigns each allocation the codec and targets with the least device memory whose predicted
/// slowdown is within the limit in every snapshot, and whose overflow is within the threshold.
///
/// The limit holds for each block of pages, so that it holds whichever of them a program or the
/// slowest of its warps accesses most. Records with only some of the pages have one target for each
/// allocation, for which the limit holds on average.
///
/// # Errors
/// If the codec was not measured on every allocation.
pub fn assign_within(
    measured: &Measured,
    threshold: f64,
    codec: CodecChoice,
    limit: &LinkLimit,
) -> Result<Vec<Assignment>, Error> {
    let allowed = limit.allowed(threshold);
    let own = codecs(measured, codec)?;
    let eligible = candidates(Place::Memory);
    let choose = |(allocation, &own): (&MeasuredAllocation, &usize)| {
        let others = allocation
            .codecs
            .iter()
            .enumerate()
            .filter(|(at, one)| codec == CodecChoice::Auto && *at != own && eligible.contains(&one.kind));
        let tried = [own].into_iter().chain(others.map(|(at, _)| at));
        let offers =
            tried.map(|at| Assignment { codec: at, targets: targets(&allocation.codecs[at], allowed) });
        let cost = |one: &Assignment| one.device_bytes_with(&allocation.codecs[one.codec]);
        offers.min_by_key(cost).expect("its own codec is an offer")
    };
    let mut assigned: Vec<Assignment> = measured.allocations.par_iter().zip(&own).map(choose).collect();
    stay_within_four(measured, &mut assigned, Policy::Link, 0);
    leave_uncompressed(measured, &mut assigned);
    Ok(assigned)
}

/// Returns the ranges of pages of an allocation with one codec, or one target if only some pages
/// were measured.
fn targets(codec: &MeasuredCodec, allowed: Allowed) -> Targets {
    let pages = entries(codec).div_ceil(ENTRIES_PER_PAGE as u64);
    match &codec.blocks {
        Some(blocks) => Targets::from_ranges(page_ranges(blocks, pages, allowed)),
        None => allowed.target(&codec.histograms, true).into(),
    }
}

#[cfg(test)]
mod tests {
    use buddy_core::Target;

    use super::*;
    use crate::records::assign::tests::measured;

    const HALF: [u8; 6] = [0, 0, 0, 64, 0, 0];
    /// A quarter of the entries is raw: at 2x they move an eighth of the bytes over the link, at
    /// 4/3x a sixteenth.
    const MIXED: [u8; 6] = [0, 0, 0, 48, 0, 16];

    /// Returns a machine whose link has a tenth of the bandwidth of its memory, and no latency.
    fn limit(max_slowdown: f64) -> LinkLimit {
        let gpu = Gpu::named("h200").unwrap();
        let link = Link::plain("tenth", gpu.dram_gb_per_s() / 10.0).unwrap();
        LinkLimit { gpu, link: Link { latency_ns: 0.0, ..link }, max_slowdown, accesses: None }
    }

    fn within(run: &Measured, max_slowdown: f64) -> Vec<Assignment> {
        let codec = CodecChoice::Fixed(buddy_codec::CodecKind::Bpc);
        assign_within(run, 0.3, codec, &limit(max_slowdown)).unwrap()
    }

    #[test]
    fn the_slower_of_memory_and_link_sets_the_time() {
        let run = measured(&[&[&[MIXED; 4]], &[&[HALF; 4]]]);
        let at = |target: Target| Assignment { codec: 0, targets: target.into() };
        let chosen = [at(Target::X2), at(Target::X2)];
        let each = limit(0.0).each(&run, &chosen);
        assert_eq!((each[0].overflow, each[0].bytes), (0.25, 4 * 16 * 64));
        assert!((each[0].slowdown - 0.25).abs() < 1e-9, "{each:?}");
        assert_eq!(each[1], LinkCost::default());
        // Together a sixteenth of the bytes is over the link, which then keeps up.
        let total = limit(0.0).total(&run, &chosen);
        assert_eq!((total.overflow, total.bytes, total.slowdown), (0.125, 4 * 16 * 64, 0.0));
        // The second allocation is never accessed.
        let counted = LinkLimit { accesses: Some(vec![256, 0]), ..limit(0.0) };
        assert_eq!(counted.total(&run, &chosen), each[0]);
        let smaller = limit(0.0).each(&run, &[at(Target::X4Over3), at(Target::X2)]);
        assert_eq!((smaller[0].bytes, smaller[0].slowdown), (4 * 16 * 32, 0.0));
    }

    #[test]
    fn no_allocation_exceeds_the_limit() {
        let run = measured(&[&[&[MIXED; 40]], &[&[HALF; 4000]]]);
        let device = |max_slowdown: f64| {
            let chosen = within(&run, max_slowdown);
            let each = limit(max_slowdown).each(&run, &chosen);
            assert!(each.iter().all(|one| one.slowdown <= max_slowdown + 1e-9), "{each:?}");
            assert_eq!(chosen[1].targets.uniform(), Some(Target::X2), "the other allocation fits");
            chosen[0].device_bytes(40 * 64)
        };
        assert_eq!(device(0.26), 40 * 64 * 64, "all of it at 2x");
        assert!(device(0.05) < 40 * 64 * 96, "part of it at 2x");
        assert!(device(0.05) > device(0.1) && device(0.1) > device(0.26));
    }

    /// A warp waits for three entries, and a link as slow as a miss costs one more each time.
    #[test]
    fn latency_limits_what_bandwidth_allows() {
        let run = measured(&[&[&[[0, 0, 0, 63, 0, 1]; 200]]]);
        let slow = |max_slowdown: f64| {
            let limit = limit(max_slowdown);
            LinkLimit { link: Link { latency_ns: limit.gpu.miss_ns(), ..limit.link }, ..limit }
        };
        let codec = CodecChoice::Fixed(buddy_codec::CodecKind::Bpc);
        let at = |max_slowdown| assign_within(&run, 0.3, codec, &slow(max_slowdown)).unwrap();
        let all = at(0.05);
        assert_eq!(all[0].targets.uniform(), Some(Target::X2), "3/64 is 4.7%");
        assert!((slow(0.05).total(&run, &all).slowdown - 3.0 / 64.0).abs() < 1e-9);
        // On average half of the overflow would do, but no page may have more.
        assert_eq!(slow(0.03).total(&run, &at(0.03)), LinkCost::default());
    }

    /// The limit is that of the worst snapshot, and records without pages have uniform targets.
    #[test]
    fn every_snapshot_and_records_without_pages_are_within_the_limit() {
        let mut run = measured(&[&[&[HALF; 4], &[MIXED; 4]]]);
        run.allocations[0].codecs[0].blocks = None;
        assert_eq!(within(&run, 0.05)[0].targets.uniform(), Some(Target::X4Over3));
        assert_eq!(within(&run, 0.3)[0].targets.uniform(), Some(Target::X2));
    }
}
