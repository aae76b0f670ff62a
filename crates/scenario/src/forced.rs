//! Targets forced to a capacity: the fewest overflowing entries for a given amount of device
//! memory.

use buddy_core::{ENTRY_BYTES, Histogram, PAGE_BYTES, SizeClass, Target, TargetRange, Targets};
use buddy_record::{AllocationInfo, AllocationTarget, TargetTable};

/// Entries of a page.
const PAGE_ENTRIES: u64 = (PAGE_BYTES / ENTRY_BYTES) as u64;

/// An allocation on the device, with the number of its entries in each size class.
pub(crate) struct Counted<'a> {
    pub(crate) info: &'a AllocationInfo,
    pub(crate) classes: [u64; 6],
}

/// A step of an allocation from one target to the next larger one.
struct Step {
    allocation: usize,
    from: Target,
    to: Target,
    saved_bytes: u64,
    /// Overflowing entries added per saved byte.
    cost: f64,
}

impl Counted<'_> {
    fn entries(&self) -> u64 {
        self.classes.iter().sum()
    }

    fn overflowing(&self, target: Target) -> u64 {
        let histogram = Histogram { classes: self.classes, optimistic_bytes: 0 };
        (histogram.overflow_share(target) * self.entries() as f64).round() as u64
    }

    /// Returns the steps on the lower convex hull of overflow over saved bytes, cheapest first.
    fn steps(&self, allocation: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut from = Target::X1;
        loop {
            let step = |to: &Target| {
                let saved_bytes = self.entries() * (from.device_bytes() - to.device_bytes()) as u64;
                let added = self.overflowing(*to).saturating_sub(self.overflowing(from));
                Step { allocation, from, to: *to, saved_bytes, cost: added as f64 / saved_bytes as f64 }
            };
            let larger = Target::ALL.iter().filter(|to| to.device_bytes() < from.device_bytes());
            // The largest step among equal costs.
            let best = larger
                .map(step)
                .min_by(|a, b| a.cost.total_cmp(&b.cost).then(b.saved_bytes.cmp(&a.saved_bytes)));
            let Some(best) = best.filter(|best| best.saved_bytes > 0) else { return steps };
            from = best.to;
            steps.push(best);
        }
    }
}

/// Chooses the targets that reach `capacity`, the bytes of all allocations over those of device
/// memory, with the fewest overflowing entries. Each allocation has one target; the leading pages
/// of at most one have the next larger target, so that the capacity is reached exactly.
///
/// # Errors
/// A capacity below 1, or one that no targets reach.
pub(crate) fn forced_targets(
    program: &str,
    codec: &str,
    allocations: &[Counted<'_>],
    capacity: f64,
) -> Result<TargetTable, String> {
    let all: u64 = allocations.iter().map(|one| one.entries() * ENTRY_BYTES as u64).sum();
    if capacity.is_nan() || capacity < 1.0 {
        return Err(format!("capacity {capacity} is below 1"));
    }
    let mut needed = (all as f64 * (1.0 - 1.0 / capacity)).ceil() as u64;
    let mut steps: Vec<Step> =
        allocations.iter().enumerate().flat_map(|(index, one)| one.steps(index)).collect();
    // Stable: the steps of an allocation stay in order, since their costs never fall.
    steps.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    let mut targets: Vec<Vec<TargetRange>> =
        allocations.iter().map(|one| vec![whole(one, Target::X1)]).collect();
    for step in steps {
        if needed == 0 {
            break;
        }
        let one = &allocations[step.allocation];
        let pages = one.entries().div_ceil(PAGE_ENTRIES);
        let share = (needed as f64 / step.saved_bytes as f64).min(1.0);
        let changed = (share * pages as f64).ceil() as u64;
        targets[step.allocation] = if changed < pages {
            let (front, rest) = (changed, pages - changed);
            vec![
                TargetRange { pages: front, target: step.to },
                TargetRange { pages: rest, target: step.from },
            ]
        } else {
            vec![whole(one, step.to)]
        };
        needed = needed.saturating_sub(step.saved_bytes);
    }
    if needed > 0 {
        return Err(format!("no targets reach a capacity of {capacity}"));
    }
    let row = |(one, ranges): (&Counted<'_>, Vec<TargetRange>)| AllocationTarget {
        name: one.info.name.clone(),
        call_site: one.info.call_site.clone(),
        bytes: one.info.bytes,
        codec: codec.to_owned(),
        parameters: Default::default(),
        targets: Targets::from_ranges(ranges.into_iter().map(uncompressed).collect()),
    };
    let rows = allocations.iter().zip(targets).map(row).collect();
    Ok(TargetTable { allocations: rows, ..TargetTable::uniform(program, &[], Target::X1, codec) })
}

fn whole(one: &Counted<'_>, target: Target) -> TargetRange {
    TargetRange { pages: one.entries().div_ceil(PAGE_ENTRIES), target }
}

/// Leaves memory at 1x uncompressed, which costs no metadata.
fn uncompressed(range: TargetRange) -> TargetRange {
    let target = if range.target == Target::X1 { Target::Uncompressed } else { range.target };
    TargetRange { target, ..range }
}

/// Counts the entries of each class.
pub(crate) fn count(classes: impl IntoIterator<Item = SizeClass>) -> [u64; 6] {
    let mut counts = [0; 6];
    classes.into_iter().for_each(|class| counts[class.index()] += 1);
    counts
}

#[cfg(test)]
mod tests {
    use buddy_core::Dtype;

    use super::*;

    fn info(name: &str, entries: u64) -> AllocationInfo {
        let (bytes, dtype) = (entries * 128, Dtype::F32);
        AllocationInfo { name: name.to_owned(), call_site: String::new(), base: 0, bytes, dtype }
    }

    fn ranges(table: &TargetTable, name: &str) -> Vec<(u64, Target)> {
        let row = table.get(name).unwrap();
        row.ranges_of(row.bytes).unwrap().iter().map(|range| (range.pages, range.target)).collect()
    }

    /// Half of the memory fits 64 bytes, the other half is raw.
    #[test]
    fn compressible_memory_goes_first_and_the_capacity_is_exact() {
        let (a, b) = (info("a", 640), info("b", 640));
        let all = [
            Counted { info: &a, classes: [0, 0, 0, 640, 0, 0] },
            Counted { info: &b, classes: [0, 0, 0, 0, 0, 640] },
        ];
        let at = |capacity| forced_targets("p", "bpc", &all, capacity).unwrap();
        assert_eq!(ranges(&at(1.0), "a"), [(10, Target::Uncompressed)]);
        // 163840 bytes: 4/3 needs 40960 saved, which is all of a at 2x.
        assert_eq!(ranges(&at(4.0 / 3.0), "a"), [(10, Target::X2)]);
        assert_eq!(ranges(&at(4.0 / 3.0), "b"), [(10, Target::Uncompressed)]);
        // Half as much is five pages of a.
        assert_eq!(ranges(&at(8.0 / 7.0), "a"), [(5, Target::X2), (5, Target::Uncompressed)]);
        assert!(ranges(&at(2.0), "b").iter().any(|(_, target)| target.ratio() > 1.0));
        assert!(forced_targets("p", "bpc", &all, 17.0).is_err());
        assert!(forced_targets("p", "bpc", &all, 0.5).is_err());
    }
}
