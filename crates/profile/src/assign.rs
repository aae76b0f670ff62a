//! Targets for a whole run, by policy.

use buddy_codec::CodecKind;
use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, Histogram, PAGE_BYTES, Policy, Target, TargetRange};

use crate::{Error, Measured, MeasuredAllocation, MeasuredCodec, conservative_target, ranges::page_ranges};

/// The most that a carve-out of three times the device memory allows over all.
const LARGEST_RATIO: u64 = 4;

/// Which codec an allocation gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodecChoice {
    /// The same for all.
    Fixed(CodecKind),
    /// The best for each.
    Auto,
}

impl CodecChoice {
    /// The name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed(kind) => kind.name(),
            Self::Auto => "auto",
        }
    }
}

/// What one allocation gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Which of its measured codecs.
    pub codec: usize,
    /// The targets of its pages, first to last.
    pub ranges: Vec<TargetRange>,
}

impl Assignment {
    /// One target for all pages of an allocation of `entries`.
    pub(crate) fn whole(codec: usize, entries: u64, target: Target) -> Self {
        let pages = entries.div_ceil(ENTRIES_PER_PAGE as u64);
        Self { codec, ranges: vec![TargetRange { pages, target }] }
    }

    /// Each range with the entries that it has of `entries`; the last one may end within a page.
    pub(crate) fn entries(&self, entries: u64) -> impl Iterator<Item = (TargetRange, u64)> {
        let mut left = entries;
        self.ranges.iter().map(move |range| {
            let here = left.min(range.pages * ENTRIES_PER_PAGE as u64);
            left -= here;
            (*range, here)
        })
    }

    /// Device bytes of an allocation of `entries`, without metadata.
    pub fn device_bytes(&self, entries: u64) -> u64 {
        self.entries(entries).map(|(range, entries)| entries * range.target.device_bytes() as u64).sum()
    }
}

/// Chooses targets for every allocation.
///
/// # Errors
/// If the codec was not measured on every allocation, or targets for pages are asked of a record that does not
/// have all pages.
pub fn assign(
    measured: &Measured,
    threshold: f64,
    policy: Policy,
    codec: CodecChoice,
) -> Result<Vec<Assignment>, Error> {
    let codecs = codecs(measured, codec)?;
    let chosen: Vec<&MeasuredCodec> = measured
        .allocations
        .iter()
        .zip(&codecs)
        .map(|(allocation, &codec)| &allocation.codecs[codec])
        .collect();
    let one_each = |target: &dyn Fn(&[Histogram]) -> Target| -> Vec<Assignment> {
        let whole = |(one, &codec): (&&MeasuredCodec, &usize)| {
            Assignment::whole(codec, entries(one), target(&one.histograms))
        };
        chosen.iter().zip(&codecs).map(whole).collect()
    };
    let mut assigned = match policy {
        Policy::Naive => {
            let target = conservative_target(&totals(&chosen), threshold, false);
            one_each(&|_| target)
        }
        Policy::Allocation => one_each(&|snapshots| conservative_target(snapshots, threshold, false)),
        Policy::Allocation16x | Policy::Plan => {
            one_each(&|snapshots| conservative_target(snapshots, threshold, true))
        }
        Policy::Page => {
            let ranges = |(one, &codec): (&&MeasuredCodec, &usize)| {
                let pages = one.pages.as_ref().ok_or(Error::NoPages)?;
                Ok(Assignment { codec, ranges: page_ranges(pages, threshold) })
            };
            chosen.iter().zip(&codecs).map(ranges).collect::<Result<_, Error>>()?
        }
    };
    stay_within_four(measured, &mut assigned);
    Ok(assigned)
}

/// Where each allocation has the sizes of the codec.
fn codecs(measured: &Measured, choice: CodecChoice) -> Result<Vec<usize>, Error> {
    let find = |(index, allocation): (usize, &MeasuredAllocation)| match choice {
        CodecChoice::Auto => Ok(allocation.auto),
        CodecChoice::Fixed(kind) => allocation.find(kind).ok_or_else(|| Error::NoSizes {
            codec: kind.name().to_owned(),
            name: measured.run.allocations[index].name.clone(),
        }),
    };
    measured.allocations.iter().enumerate().map(find).collect()
}

/// All allocations together, in each snapshot.
pub(crate) fn totals(codecs: &[&MeasuredCodec]) -> Vec<Histogram> {
    let snapshots = codecs.first().map_or(0, |codec| codec.histograms.len());
    let total = |snapshot| codecs.iter().map(|codec: &&MeasuredCodec| codec.histograms[snapshot]).sum();
    (0..snapshots).map(total).collect()
}

pub(crate) fn entries(codec: &MeasuredCodec) -> u64 {
    codec.histograms.first().map_or(0, Histogram::entries)
}

/// Turns 16x back to 4x until all of it together is within 4x: first where most entries overflow, then the
/// smallest ranges, so that as little as possible is turned back.
fn stay_within_four(measured: &Measured, assigned: &mut [Assignment]) {
    let mut all = 0;
    let mut device = 0;
    let mut sixteen = Vec::new();
    for (index, (allocation, assignment)) in measured.allocations.iter().zip(assigned.iter()).enumerate() {
        let codec = &allocation.codecs[assignment.codec];
        all += entries(codec) * ENTRY_BYTES as u64;
        device += assignment.device_bytes(entries(codec));
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
    for (_, entries, index, part) in sixteen {
        if all <= LARGEST_RATIO * device {
            return;
        }
        assigned[index].ranges[part].target = Target::X4;
        device += entries * (Target::X4.device_bytes() - Target::X16.device_bytes()) as u64;
    }
}

/// The most entries of a range that overflow in any snapshot.
fn range_overflow(codec: &MeasuredCodec, first_page: usize, range: TargetRange) -> u64 {
    let overflow = |snapshot| overflowing(codec, snapshot, first_page, range);
    (0..codec.histograms.len()).map(overflow).max().unwrap_or(0)
}

/// The entries of a range that overflow in one snapshot.
fn overflowing(codec: &MeasuredCodec, snapshot: usize, first_page: usize, range: TargetRange) -> u64 {
    range_histogram(codec, snapshot, first_page, range.pages).overflowing(range.target)
}

/// The entries of some pages by class, without their optimistic bytes unless they are all pages.
fn range_histogram(codec: &MeasuredCodec, snapshot: usize, first_page: usize, pages: u64) -> Histogram {
    match &codec.pages {
        Some(of_pages) if (pages as usize) < of_pages[snapshot].len() => {
            let mut classes = [0; 6];
            for page in &of_pages[snapshot][first_page..first_page + pages as usize] {
                classes.iter_mut().zip(page).for_each(|(sum, &more)| *sum += u64::from(more));
            }
            Histogram { classes, optimistic_bytes: 0 }
        }
        _ => codec.histograms[snapshot],
    }
}

/// Each range of an assignment with its entries by class in one snapshot.
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
    assignment.ranges.iter().map(with_histogram).collect()
}

const _: () = assert!(PAGE_BYTES == ENTRIES_PER_PAGE * ENTRY_BYTES);
