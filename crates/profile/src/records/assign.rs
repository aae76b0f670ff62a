//! Assigns codecs and targets to the allocations of a run, by policy.

use buddy_codec::CodecKind;
use buddy_core::{
    ENTRIES_PER_PAGE, Histogram, Target, TargetRange, Targets, conservative_target, or_uncompressed,
};
use buddy_record::Policy;

use crate::{
    Error, Measured, MeasuredAllocation, MeasuredCodec, Place,
    allowed::Allowed,
    candidates,
    ranges::page_ranges,
    records::{carve_out::stay_within_four, together::together},
    share::{MOST_OF_ONE, fits, sums},
};

/// The codec choice for the allocations of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodecChoice {
    /// One codec for all allocations.
    Fixed(CodecKind),
    /// The best codec for each allocation.
    Auto,
}

impl CodecChoice {
    /// Returns the name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed(kind) => kind.name(),
            Self::Auto => "auto",
        }
    }
}

/// The codec and targets of one allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Index in [`MeasuredAllocation::codecs`].
    pub codec: usize,
    /// Targets of its 8 KiB pages.
    pub targets: Targets,
}

impl Assignment {
    /// Returns the target ranges of an allocation of `entries` entries.
    pub(crate) fn ranges(&self, entries: u64) -> Vec<TargetRange> {
        let ranges = self.targets.ranges(entries.div_ceil(ENTRIES_PER_PAGE as u64));
        ranges.expect("targets were chosen for the pages that were measured")
    }

    /// Returns each range with its number of entries. The last range may end within a page.
    pub(crate) fn entries(&self, entries: u64) -> impl Iterator<Item = (TargetRange, u64)> {
        let mut left = entries;
        self.ranges(entries).into_iter().map(move |range| {
            let here = left.min(range.pages * ENTRIES_PER_PAGE as u64);
            left -= here;
            (range, here)
        })
    }

    /// Returns the device bytes of an allocation: slots and codec parameters, without metadata.
    pub(crate) fn device_bytes_with(&self, codec: &MeasuredCodec) -> u64 {
        self.device_bytes(entries(codec)) + codec.parameter_bytes
    }

    /// Returns the device bytes of the slots of `entries` entries, without metadata.
    pub fn device_bytes(&self, entries: u64) -> u64 {
        self.entries(entries).map(|(range, entries)| entries * range.target.device_bytes() as u64).sum()
    }
}

/// Assigns a codec and targets to every allocation.
///
/// # Errors
/// If the codec was not measured on every allocation, or if [`Policy::Page`] is requested for a
/// record that lacks pages.
pub fn assign(
    measured: &Measured,
    threshold: f64,
    policy: Policy,
    codec: CodecChoice,
) -> Result<Vec<Assignment>, Error> {
    let codecs = codecs(measured, codec)?;
    let chosen: Vec<(usize, &MeasuredCodec)> = measured
        .allocations
        .iter()
        .zip(&codecs)
        .map(|(allocation, &codec)| (codec, &allocation.codecs[codec]))
        .collect();
    let one_each = |target: &dyn Fn(&[Histogram]) -> Target| -> Vec<Assignment> {
        let whole = |&(codec, sizes): &(usize, &MeasuredCodec)| Assignment {
            codec,
            targets: target(&sizes.histograms).into(),
        };
        chosen.iter().map(whole).collect()
    };
    let mut assigned = match policy {
        Policy::Naive => {
            let all: Vec<&MeasuredCodec> = chosen.iter().map(|(_, sizes)| *sizes).collect();
            let target = conservative_target(&totals(&all), threshold, false);
            one_each(&|_| target)
        }
        Policy::Allocation => one_each(&|snapshots| conservative_target(snapshots, threshold, false)),
        // `assign_within` and `plan` choose with a machine.
        Policy::Allocation16x | Policy::Link | Policy::Plan => {
            one_each(&|snapshots| conservative_target(snapshots, threshold, true))
        }
        Policy::Page => {
            let of_allocation = |(allocation, &at): (&MeasuredAllocation, &usize)| match codec {
                CodecChoice::Fixed(_) => by_pages(allocation, at, threshold.max(MOST_OF_ONE)),
                CodecChoice::Auto => best_by_pages(allocation, threshold.max(MOST_OF_ONE)),
            };
            let alone = measured.allocations.iter().zip(&codecs).map(of_allocation);
            let alone = alone.collect::<Result<Vec<_>, Error>>()?;
            if within(measured, &alone, threshold) {
                alone
            } else {
                together(measured, codec, &codecs, threshold)
            }
        }
    };
    stay_within_four(measured, &mut assigned, policy, 0);
    leave_uncompressed(measured, &mut assigned);
    Ok(assigned)
}

/// Makes 1x ranges uncompressed where their metadata costs more than their small entries save.
pub(crate) fn leave_uncompressed(measured: &Measured, assigned: &mut [Assignment]) {
    for (allocation, assignment) in measured.allocations.iter().zip(assigned) {
        let codec = &allocation.codecs[assignment.codec];
        let mut first_page = 0;
        for (part, range) in assignment.ranges(entries(codec)).into_iter().enumerate() {
            let in_snapshot = |snapshot| range_histogram(codec, snapshot, first_page, range.pages);
            let all: Histogram = (0..codec.histograms.len()).map(in_snapshot).sum();
            assignment.targets.set(part, or_uncompressed(range.target, &all));
            first_page += range.pages as usize;
        }
    }
}

/// Returns whether the program's overflow is within the threshold in every snapshot.
fn within(measured: &Measured, assigned: &[Assignment], threshold: f64) -> bool {
    let snapshots = measured.run.snapshots.len();
    let each = || measured.allocations.iter().zip(assigned);
    let of_one = |(allocation, one): (&MeasuredAllocation, &Assignment)| -> Vec<u64> {
        let codec = &allocation.codecs[one.codec];
        let over = |snapshot| {
            ranges_in(codec, one, snapshot).iter().map(|(target, all)| all.overflowing(*target)).sum()
        };
        (0..snapshots).map(over).collect()
    };
    let overflowing: Vec<Vec<u64>> = each().map(of_one).collect();
    fits(&sums(snapshots, overflowing.iter()), &entries_over_time(measured), threshold)
}

/// Returns the number of live entries in each snapshot.
pub(crate) fn entries_over_time(measured: &Measured) -> Vec<u64> {
    let alive = |snapshot: usize| {
        measured.allocations.iter().map(|one| one.codecs[one.auto].histograms[snapshot].entries()).sum()
    };
    (0..measured.run.snapshots.len()).map(alive).collect()
}

/// Assigns targets to page ranges of an allocation with one codec.
fn by_pages(allocation: &MeasuredAllocation, codec: usize, threshold: f64) -> Result<Assignment, Error> {
    let blocks = allocation.codecs[codec].blocks.as_ref().ok_or(Error::NoPages)?;
    let pages = entries(&allocation.codecs[codec]).div_ceil(ENTRIES_PER_PAGE as u64);
    let targets = Targets::from_ranges(page_ranges(blocks, pages, Allowed::threshold(threshold)));
    Ok(Assignment { codec, targets })
}

/// Like [`by_pages`], with the codec that then needs the least device memory. The best codec for a
/// uniform target may not be the best for page ranges.
fn best_by_pages(allocation: &MeasuredAllocation, threshold: f64) -> Result<Assignment, Error> {
    let eligible = candidates(Place::Memory);
    let others = (0..allocation.codecs.len())
        .filter(|&codec| codec != allocation.auto && eligible.contains(&allocation.codecs[codec].kind));
    let mut best = by_pages(allocation, allocation.auto, threshold)?;
    let device = |one: &Assignment| one.device_bytes_with(&allocation.codecs[one.codec]);
    for codec in others {
        match by_pages(allocation, codec, threshold) {
            Ok(other) if device(&other) < device(&best) => best = other,
            _ => {}
        }
    }
    Ok(best)
}

/// Returns the index of the chosen codec in each allocation.
pub(crate) fn codecs(measured: &Measured, choice: CodecChoice) -> Result<Vec<usize>, Error> {
    let find = |(index, allocation): (usize, &MeasuredAllocation)| match choice {
        CodecChoice::Auto => Ok(allocation.auto),
        CodecChoice::Fixed(kind) => allocation.find(kind).ok_or_else(|| Error::NoSizes {
            codec: kind.name().to_owned(),
            name: measured.run.allocations[index].name.clone(),
        }),
    };
    measured.allocations.iter().enumerate().map(find).collect()
}

/// Sums the histograms of all allocations in each snapshot.
pub(crate) fn totals(codecs: &[&MeasuredCodec]) -> Vec<Histogram> {
    let snapshots = codecs.first().map_or(0, |codec| codec.histograms.len());
    let total = |snapshot| codecs.iter().map(|codec: &&MeasuredCodec| codec.histograms[snapshot]).sum();
    (0..snapshots).map(total).collect()
}

/// Returns the number of entries of the allocation while it is alive.
pub(crate) fn entries(codec: &MeasuredCodec) -> u64 {
    codec.histograms.iter().map(Histogram::entries).max().unwrap_or(0)
}

/// Counts the overflowing entries of a range in one snapshot.
pub(crate) fn overflowing(
    codec: &MeasuredCodec,
    snapshot: usize,
    first_page: usize,
    range: TargetRange,
) -> u64 {
    range_histogram(codec, snapshot, first_page, range.pages).overflowing(range.target)
}

/// Returns the histogram of `pages` pages. Optimistic bytes are known only for whole allocations.
fn range_histogram(codec: &MeasuredCodec, snapshot: usize, first_page: usize, pages: u64) -> Histogram {
    let of_all = entries(codec).div_ceil(ENTRIES_PER_PAGE as u64);
    match &codec.blocks {
        Some(blocks) if pages < of_all => {
            let each = blocks[snapshot].pages().max(1) as usize;
            blocks[snapshot].histogram(first_page / each..(first_page + pages as usize).div_ceil(each))
        }
        _ => codec.histograms[snapshot],
    }
}

/// Returns the target and histogram of each range in one snapshot.
pub(crate) fn ranges_in(
    codec: &MeasuredCodec,
    assignment: &Assignment,
    snapshot: usize,
) -> Vec<(Target, Histogram)> {
    let mut first_page = 0;
    let with_histogram = |range: &TargetRange| {
        let histogram = range_histogram(codec, snapshot, first_page, range.pages);
        first_page += range.pages as usize;
        (range.target, histogram)
    };
    assignment.ranges(entries(codec)).iter().map(with_histogram).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use buddy_core::{Blocks, Dtype};
    use buddy_record::{AllocationInfo, RunInfo, SnapshotInfo};

    use super::*;

    /// Builds a run from the size classes of each allocation's pages in each snapshot.
    pub(crate) fn measured(allocations: &[&[&[[u8; 6]]]]) -> Measured {
        let mut run = RunInfo::new("demo", Default::default(), Vec::new());
        let snapshots = allocations[0].len() as u64;
        run.snapshots =
            (0..snapshots).map(|step| SnapshotInfo { step, label: String::new(), file: None }).collect();
        let measure = |(index, snapshots): (usize, &&[&[[u8; 6]]])| {
            run.allocations.push(AllocationInfo {
                name: index.to_string(),
                call_site: String::new(),
                base: 0,
                bytes: 8192 * snapshots[0].len() as u64,
                dtype: Dtype::U8,
            });
            let histogram = |pages: &&[[u8; 6]]| Histogram {
                classes: std::array::from_fn(|class| pages.iter().map(|page| u64::from(page[class])).sum()),
                optimistic_bytes: 0,
            };
            let codec = MeasuredCodec {
                kind: CodecKind::Bpc,
                codec: None,
                parameter_bytes: 0,
                histograms: snapshots.iter().map(histogram).collect(),
                blocks: Some(snapshots.iter().map(|pages| Blocks::from_pages(pages)).collect()),
                maps: Vec::new(),
            };
            MeasuredAllocation::new(vec![codec], 0.3)
        };
        let allocations = allocations.iter().enumerate().map(measure).collect();
        Measured { run, allocations, auto: false }
    }

    const ZERO: [u8; 6] = [64, 0, 0, 0, 0, 0];
    const HALF: [u8; 6] = [0, 0, 0, 64, 0, 0];
    const RAW: [u8; 6] = [0, 0, 0, 0, 0, 64];

    fn targets(measured: &Measured, policy: Policy) -> Vec<Vec<Target>> {
        let assigned = assign(measured, 0.3, policy, CodecChoice::Fixed(CodecKind::Bpc)).unwrap();
        let ranges = |(one, sizes): (&Assignment, &MeasuredAllocation)| one.ranges(entries(&sizes.codecs[0]));
        let ranges = assigned.iter().zip(&measured.allocations).map(ranges);
        ranges.map(|ranges| ranges.iter().map(|range| range.target).collect()).collect()
    }

    #[test]
    fn finer_policies_give_larger_targets() {
        use Target::{Uncompressed, X1, X2, X4, X16};
        let run = measured(&[
            &[&[ZERO; 8]],
            &[&[HALF; 8]],
            &[&[RAW; 6]],
            &[&[ZERO, ZERO, ZERO, HALF, RAW, RAW, RAW, RAW]],
        ]);
        // The last allocation saves 14 of 32 sectors on reads; its metadata would cost 16.
        let raw = Uncompressed;
        assert_eq!(targets(&run, Policy::Naive), [[X1], [X1], [raw], [raw]]);
        assert_eq!(targets(&run, Policy::Allocation), [[X4], [X2], [raw], [raw]]);
        assert_eq!(targets(&run, Policy::Allocation16x), [[X16], [X2], [raw], [raw]]);
        let by_page = [vec![X16], vec![X2], vec![raw], vec![X16, X2, raw]];
        assert_eq!(targets(&run, Policy::Page), by_page);
    }

    /// An allocation of 8 pages with about 10% raw entries, in a program of 80 pages. At 1% of the
    /// program all of it may be at 2x, at 0.5% half of it.
    #[test]
    fn a_small_threshold_holds_for_the_program() {
        let mostly = [[0, 0, 0, 58, 0, 6]; 8];
        let others: [&[[u8; 6]]; 1] = [&[HALF; 72]];
        let run = measured(&[&[&mostly], &others]);
        let by_page = |threshold| {
            let assigned = assign(&run, threshold, Policy::Page, CodecChoice::Fixed(CodecKind::Bpc)).unwrap();
            assigned[0].ranges(512).iter().map(|range| (range.pages, range.target)).collect::<Vec<_>>()
        };
        assert_eq!(by_page(0.01), [(8, Target::X2)]);
        assert_eq!(by_page(0.005), [(4, Target::X2), (4, Target::Uncompressed)]);
        assert_eq!(by_page(0.0005), [(8, Target::Uncompressed)]);
    }

    /// At most 30% of an allocation overflows, however small its share of the program.
    #[test]
    fn no_allocation_overflows_by_more_than_the_papers_threshold() {
        let run = measured(&[&[&[[0, 0, 0, 40, 0, 24]; 2]], &[&[HALF; 500]]]);
        let assigned = assign(&run, 0.01, Policy::Page, CodecChoice::Fixed(CodecKind::Bpc)).unwrap();
        let ranges = ranges_in(&run.allocations[0].codecs[0], &assigned[0], 0);
        let overflowing: u64 = ranges.iter().map(|(target, all)| all.overflowing(*target)).sum();
        assert!(overflowing as f64 <= 0.3 * 128.0, "{overflowing} of 128");
    }

    #[test]
    fn zeros_that_fill_up_do_not_get_16x() {
        let run = measured(&[&[&[ZERO; 4], &[HALF; 4]], &[&[RAW; 4], &[RAW; 4]]]);
        for policy in [Policy::Allocation, Policy::Allocation16x, Policy::Page] {
            assert_eq!(targets(&run, policy), [[Target::X2], [Target::Uncompressed]]);
        }
    }

    /// Ranges with the most overflow, then the smallest, are lowered from 16x to 4x.
    #[test]
    fn the_program_stays_within_4x() {
        let some_over = [60, 0, 4, 0, 0, 0];
        let run = measured(&[&[&[ZERO; 9]], &[&[some_over; 8]], &[&[ZERO; 2]], &[&[HALF; 3]], &[&[HALF; 3]]]);
        let found = targets(&run, Policy::Allocation16x);
        assert_eq!(
            found,
            [[Target::X4], [Target::X4], [Target::X4], [Target::X2], [Target::X2]].map(Vec::from)
        );
        let run = measured(&[&[&[ZERO; 4]], &[&[some_over; 8]], &[&[RAW; 2]]]);
        assert_eq!(
            targets(&run, Policy::Allocation16x),
            [[Target::X16], [Target::X4], [Target::Uncompressed]].map(Vec::from)
        );
    }

    /// Page ranges are split, so that the program has a ratio of exactly 4x.
    #[test]
    fn only_some_pages_of_a_range_are_lowered_to_4x() {
        let run = measured(&[&[&[ZERO; 90]], &[&[RAW; 10]]]);
        let assigned = assign(&run, 0.3, Policy::Page, CodecChoice::Fixed(CodecKind::Bpc)).unwrap();
        let found = assigned[0].ranges(90 * 64);
        assert_eq!(found.iter().map(|range| range.target).collect::<Vec<_>>(), [Target::X4, Target::X16]);
        let device: u64 =
            assigned.iter().zip([90, 10]).map(|(one, pages)| one.device_bytes(64 * pages)).sum();
        let all = 100 * 64 * 128;
        assert!(4 * device >= all && 4 * (device - 64 * 24) < all, "{device} of {all}");
    }

    #[test]
    fn a_codec_that_was_not_measured_is_refused() {
        let run = measured(&[&[&[ZERO; 4]]]);
        let error = assign(&run, 0.3, Policy::Naive, CodecChoice::Fixed(CodecKind::Fvc)).unwrap_err();
        assert_eq!(error.to_string(), "the run has no sizes of fvc for allocation \"0\" in every snapshot");
        let mut run = run;
        run.allocations[0].codecs[0].blocks = None;
        let error = assign(&run, 0.3, Policy::Page, CodecChoice::Auto).unwrap_err();
        assert!(error.to_string().contains("need the sizes of all pages"));
    }
}
