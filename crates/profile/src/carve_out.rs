//! What all allocations may have together: a carve-out of three times the device memory allows 4x (`docs/explain/deviations.md`, D41).

use buddy_core::{Blocks, ENTRIES_PER_PAGE, ENTRY_BYTES, Policy, Target, TargetRange, Targets};

use crate::{
    Assignment, Measured, MeasuredCodec,
    assign::{entries, overflowing},
};

/// The most that a carve-out of three times the device memory allows over all.
pub(crate) const LARGEST_RATIO: u64 = 4;

/// Turns 16x back to 4x until all of it together is within 4x: first where most entries overflow, then the
/// smallest ranges, so that as little as possible is turned back; with targets by page, no more than the first pages that must be of
/// the last. On a GPU with more device memory than they take, since it had or will have more to hold, the carve-out is three
/// times that.
pub(crate) fn stay_within_four(
    measured: &Measured,
    assigned: &mut [Assignment],
    policy: Policy,
    memory: u64,
) {
    let mut all = 0;
    let mut device = 0;
    let mut sixteen = Vec::new();
    for (index, (allocation, assignment)) in measured.allocations.iter().zip(assigned.iter()).enumerate() {
        let codec = &allocation.codecs[assignment.codec];
        all += entries(codec) * ENTRY_BYTES as u64;
        device += assignment.device_bytes_with(codec);
        let mut first_page = 0;
        for (part, (range, entries)) in assignment.entries(entries(codec)).enumerate() {
            if range.target == Target::X16 {
                let overflow = range_overflow(codec, first_page, range) as f64 / entries.max(1) as f64;
                sixteen.push((overflow, entries, index, part));
            }
            first_page += range.pages as usize;
        }
    }
    sixteen.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
    let least = all.div_ceil(LARGEST_RATIO).min(all.saturating_sub((LARGEST_RATIO - 1) * memory));
    let more = (Target::X4.device_bytes() - Target::X16.device_bytes()) as u64;
    for (_, entries, index, part) in sixteen {
        if device >= least {
            return;
        }
        let codec = &measured.allocations[index].codecs[assigned[index].codec];
        let missing = (least - device).div_ceil(more);
        if policy == Policy::Page && split(codec, &mut assigned[index], part, missing) {
            return;
        }
        assigned[index].targets.set(part, Target::X4);
        device += entries * more;
    }
}

/// Gives so many entries of a range 4x, its first pages; not if that is all of it or its pages are not known.
fn split(codec: &MeasuredCodec, assigned: &mut Assignment, part: usize, entries: u64) -> bool {
    let each = codec.blocks.iter().flatten().map(Blocks::pages).max().unwrap_or(0);
    let pages = entries.div_ceil(ENTRIES_PER_PAGE as u64).next_multiple_of(each.max(1));
    let mut ranges = assigned.ranges(crate::assign::entries(codec));
    if each == 0 || pages >= ranges[part].pages {
        return false;
    }
    ranges[part].pages -= pages;
    ranges.insert(part, TargetRange { pages, target: Target::X4 });
    assigned.targets = Targets::from_ranges(ranges);
    true
}

/// The most entries of a range that overflow in any snapshot.
fn range_overflow(codec: &MeasuredCodec, first_page: usize, range: TargetRange) -> u64 {
    let overflow = |snapshot| overflowing(codec, snapshot, first_page, range);
    (0..codec.histograms.len()).map(overflow).max().unwrap_or(0)
}
