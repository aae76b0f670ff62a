//! Limits the program's ratio to 4x, since the carve-out is three times the device memory
//! (`docs/explain/deviations.md`, D41).

use buddy_core::{Blocks, ENTRIES_PER_PAGE, ENTRY_BYTES, Target, TargetRange, Targets};
use buddy_record::Policy;

use crate::{
    Assignment, Measured, MeasuredCodec,
    records::assign::{entries, overflowing},
};

/// Largest ratio of a program with a carve-out of three times the device memory.
pub(crate) const LARGEST_RATIO: u64 = 4;

/// Lowers ranges from 16x to 4x until the program's ratio is at most 4x.
///
/// Ranges with the largest share of overflow go first, then the smallest. With targets by page the
/// last range is split, so that only the pages needed are lowered. If `memory`, the GPU's device
/// memory in bytes, exceeds the device bytes of the program, the carve-out is three times `memory`.
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
        if matches!(policy, Policy::Page | Policy::Link) && split(codec, &mut assigned[index], part, missing)
        {
            return;
        }
        assigned[index].targets.set(part, Target::X4);
        device += entries * more;
    }
}

/// Lowers the first pages of a range, at least `entries` entries, to 4x. Returns false and changes
/// nothing if that is the whole range or the pages were not measured.
fn split(codec: &MeasuredCodec, assigned: &mut Assignment, part: usize, entries: u64) -> bool {
    let each = codec.blocks.iter().flatten().map(Blocks::pages).max().unwrap_or(0);
    let pages = entries.div_ceil(ENTRIES_PER_PAGE as u64).next_multiple_of(each.max(1));
    let mut ranges = assigned.ranges(crate::records::assign::entries(codec));
    if each == 0 || pages >= ranges[part].pages {
        return false;
    }
    ranges[part].pages -= pages;
    ranges.insert(part, TargetRange { pages, target: Target::X4 });
    assigned.targets = Targets::from_ranges(ranges);
    true
}

/// Returns the largest number of overflowing entries of a range over the snapshots.
fn range_overflow(codec: &MeasuredCodec, first_page: usize, range: TargetRange) -> u64 {
    let overflow = |snapshot| overflowing(codec, snapshot, first_page, range);
    (0..codec.histograms.len()).map(overflow).max().unwrap_or(0)
}
