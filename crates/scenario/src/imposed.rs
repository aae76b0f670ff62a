//! Size classes imposed on a program: a stated ratio and overflow, with the program's own spatial
//! pattern, so that a design is tested apart from the data.

use buddy_core::{ENTRY_BYTES, PAGE_BYTES, SizeClass, Target, parse_share};
use buddy_sim::{Allocation, Classes, Home};
use buddy_trace::{Application, pattern::scramble};

/// Targets between which a ratio lies; 16x is for memory that is mostly zero.
const TARGETS: [Target; 4] = [Target::X1, Target::X4Over3, Target::X2, Target::X4];
/// Entries of a page.
const PAGE_ENTRIES: u64 = (PAGE_BYTES / ENTRY_BYTES) as u64;

/// A compressibility to impose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Imposed {
    /// Ratio of the targets, 1 to 4.
    pub ratio: f64,
    /// Share of all entries that overflow to buddy memory, 0 to 0.5.
    pub overflow: f64,
    /// Ratio of the stored bytes, at least `ratio`; the difference is zero entries.
    pub stored: f64,
}

impl Imposed {
    /// Parses `ratio,overflow,stored`; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let [ratio, overflow, stored] = text.split(',').collect::<Vec<_>>().try_into().ok()?;
        let (ratio, stored): (f64, f64) = (ratio.parse().ok()?, stored.parse().ok()?);
        let overflow = parse_share(overflow)?;
        let is_valid = (1.0..=4.0).contains(&ratio) && (0.0..=0.5).contains(&overflow) && stored >= ratio;
        (is_valid && stored.is_finite()).then_some(Self { ratio, overflow, stored })
    }

    /// Returns the smaller and the larger target, and the share of memory with the larger.
    fn mix(&self) -> (Target, Target, f64) {
        let above = TARGETS.iter().position(|target| target.ratio() >= self.ratio).unwrap_or(3).max(1);
        let (low, high) = (TARGETS[above - 1], TARGETS[above]);
        let share = (1.0 / low.ratio() - 1.0 / self.ratio) / (1.0 / low.ratio() - 1.0 / high.ratio());
        (low, high, share)
    }
}

/// An allocation's own classes, which give the order in which its entries are imposed upon.
pub(crate) enum Own<'a> {
    Each(&'a [SizeClass]),
    Shares([f64; 6]),
}

impl Own<'_> {
    fn mean_bytes(&self) -> f64 {
        match self {
            Self::Each(classes) => {
                classes.iter().map(|class| class.bytes() as f64).sum::<f64>() / classes.len().max(1) as f64
            }
            Self::Shares(shares) => {
                SizeClass::ALL.iter().zip(shares).map(|(class, share)| class.bytes() as f64 * share).sum()
            }
        }
    }
}

/// Imposes a compressibility on the allocations of a program. Those that compress best have the
/// larger target, and all are compressed. Within an allocation the entries that compress worst
/// overflow, those that compress best are zeros, and the rest exactly fits. Equal entries are
/// ordered at random, page by page if their positions are known.
pub(crate) fn impose<'a>(
    application: &Application,
    own: impl Fn(usize) -> Own<'a>,
    imposed: &Imposed,
) -> Vec<Allocation> {
    let (low, high, share) = imposed.mix();
    let on_host = |name: &String| application.host.contains(name);
    let all = || application.allocations.iter().enumerate().filter(|(_, info)| info.bytes > 0);
    let mut order: Vec<usize> =
        all().filter(|(_, info)| !on_host(&info.name)).map(|(index, _)| index).collect();
    order.sort_by(|a, b| own(*a).mean_bytes().total_cmp(&own(*b).mean_bytes()));
    let pages = |index: usize| application.allocations[index].bytes.div_ceil(PAGE_BYTES as u64);
    let total: u64 = order.iter().map(|index| pages(*index)).sum();
    let mut left = (share * total as f64).round() as u64;
    // Only memory above 1x can overflow.
    let able = if low == Target::X1 { share } else { 1.0 };
    let zero = 1.0 - imposed.ratio / imposed.stored;
    let host = all().filter(|(_, info)| on_host(&info.name)).map(|(_, info)| Allocation {
        base: info.base,
        bytes: info.bytes,
        home: Home::Host,
        classes: Classes::Uniform(SizeClass::Raw),
    });
    let mut made: Vec<Allocation> = host.collect();
    for index in order {
        let info = &application.allocations[index];
        let front = left.min(pages(index));
        left -= front;
        let middle = (front * PAGE_BYTES as u64).min(info.bytes);
        for (target, start, end) in [(high, 0, middle), (low, middle, info.bytes)] {
            if start == end {
                continue;
            }
            let over = if target == Target::X1 { 0.0 } else { (imposed.overflow / able).min(1.0) };
            let (first, last) = (start / ENTRY_BYTES as u64, end.div_ceil(ENTRY_BYTES as u64));
            let classes = match own(index) {
                Own::Each(classes) => Classes::each(ranked(classes, first..last, target, zero, over)),
                Own::Shares(_) => drawn(target, zero, over, index as u64 + start),
            };
            made.push(Allocation {
                base: info.base + start,
                bytes: end - start,
                home: Home::Compressed(target),
                classes,
            });
        }
    }
    made
}

/// Returns the class that exactly fits a target.
fn fitting(target: Target) -> SizeClass {
    let fits = |class: &&SizeClass| target.holds(**class);
    *SizeClass::ALL.iter().rev().find(fits).unwrap_or(&SizeClass::Zero)
}

fn drawn(target: Target, zero: f64, over: f64, seed: u64) -> Classes {
    let mut shares = [0.0; 6];
    shares[SizeClass::Zero.index()] = zero;
    shares[fitting(target).index()] += (1.0 - zero - over).max(0.0);
    Classes::Shares { shares, seed }
}

/// Returns the classes of a range of entries: the smallest are zeros, the largest overflow.
fn ranked(
    own: &[SizeClass],
    entries: std::ops::Range<u64>,
    target: Target,
    zero: f64,
    over: f64,
) -> Vec<SizeClass> {
    let class = |entry: u64| own.get(entry as usize).copied().unwrap_or(SizeClass::Raw);
    let key = |entry: &u64| (class(*entry).index(), scramble(entry / PAGE_ENTRIES), scramble(*entry));
    let first = entries.start;
    let mut order: Vec<u64> = entries.collect();
    order.sort_by_cached_key(key);
    let count = order.len() as f64;
    let (zeros, overs) = ((zero * count).round() as usize, (over * count).round() as usize);
    let mut classes = vec![fitting(target); order.len()];
    order.iter().take(zeros).for_each(|entry| classes[(entry - first) as usize] = SizeClass::Zero);
    order.iter().rev().take(overs).for_each(|entry| classes[(entry - first) as usize] = SizeClass::Raw);
    classes
}

#[cfg(test)]
mod tests {
    use buddy_core::Dtype;
    use buddy_record::AllocationInfo;
    use buddy_sim::ClassMap;

    use super::*;

    fn application() -> Application {
        let info = |name: &str, base: u64| AllocationInfo {
            name: name.to_owned(),
            call_site: String::new(),
            base,
            bytes: 1 << 20,
            dtype: Dtype::F32,
        };
        let allocations = vec![info("a", 0), info("b", 1 << 20), info("h", 2 << 20)];
        Application { name: "p".to_owned(), allocations, host: vec!["h".to_owned()], steps: Vec::new() }
    }

    /// Ratio and overflow are the imposed ones whether positions are known or not.
    #[test]
    fn the_map_has_the_imposed_ratio_and_overflow() {
        let imposed = Imposed::parse("1.9,0.02,2.51").unwrap();
        let raw = vec![SizeClass::Raw; 1 << 13];
        let each = impose(&application(), |_| Own::Each(&raw), &imposed);
        let shares = impose(&application(), |_| Own::Shares([0.0, 0.0, 0.0, 0.5, 0.0, 0.5]), &imposed);
        for all in [each, shares] {
            let on_device = all.iter().filter(|one| one.home != Home::Host);
            let stored: u64 = on_device
                .flat_map(|one| (0..one.bytes / 128).map(|entry| one.classes.get(entry).bytes() as u64))
                .sum();
            let map = ClassMap::new(all).unwrap();
            assert!((map.capacity_ratio() - 1.9).abs() < 0.02, "{}", map.capacity_ratio());
            let ratio = (2 << 20) as f64 / stored as f64;
            assert!((ratio - 2.45).abs() < 0.08, "{ratio}: 2.51 less the raw bytes of overflow");
            // A third of the entries is in host memory.
            assert!((map.overflow_share() - 0.02 * 2.0 / 3.0).abs() < 0.003, "{}", map.overflow_share());
        }
    }

    #[test]
    fn entries_that_compress_worst_overflow() {
        let own = [SizeClass::Raw, SizeClass::S1, SizeClass::Zero, SizeClass::S2];
        let classes = ranked(&own, 0..4, Target::X2, 0.25, 0.25);
        assert_eq!(classes, [SizeClass::Raw, SizeClass::S2, SizeClass::Zero, SizeClass::S2]);
    }

    #[test]
    fn invalid_texts_are_refused() {
        for text in ["", "1.9", "1.9,0.1", "5,0,5", "2,0.6,3", "2,0,1.5", "2,x,3", "2,0,inf"] {
            assert_eq!(Imposed::parse(text), None, "{text}");
        }
    }
}
