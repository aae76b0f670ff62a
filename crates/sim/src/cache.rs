//! Tags of a sectored, set-associative cache with LRU replacement; holds no data.

use crate::lru::Lru;

/// State of one cache line.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Line {
    /// Line number plus one; 0 if invalid.
    tag: u64,
    /// Arrival time of the sectors in flight; [`UNKNOWN`] until it is computed.
    pub(crate) ready: u64,
    /// Sectors present or in flight.
    pub(crate) valid: u8,
    /// Sectors modified since the last write-back.
    pub(crate) dirty: u8,
    /// Valid sectors still in flight.
    pub(crate) in_flight: u8,
}

/// A time that is not computed yet.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// A set-associative cache, indexed by line number.
///
/// Lookups read only the partial tags, kept apart from the lines to fit the host's caches. The
/// partial tags of 16 ways take half a host cache line, which is all that a miss reads.
#[derive(Debug)]
pub(crate) struct Cache {
    /// 16-bit partial tags, four to a word, compared four at a time.
    partial_tags: Vec<u64>,
    lines: Vec<Line>,
    lru: Lru,
    ways: usize,
    /// Words of partial tags in a set.
    words: usize,
}

/// The lowest bit of each of the four partial tags in a word.
const LOW_BITS: u64 = 0x0001_0001_0001_0001;

/// A line that was evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) number: u64,
    pub(crate) valid: u8,
    pub(crate) dirty: u8,
}

impl Cache {
    pub(crate) fn new(sets: usize, ways: usize) -> Self {
        let words = ways.div_ceil(4);
        let (partial_tags, lines) = (vec![0; sets * words], vec![Line::default(); sets * ways]);
        Self { partial_tags, lines, lru: Lru::new(sets, ways), ways, words }
    }

    /// Returns the index of a line and makes it the most recently used.
    #[inline]
    pub(crate) fn find(&mut self, set: usize, number: u64) -> Option<usize> {
        let first = set * self.ways;
        let pattern = partial_tag(number) * LOW_BITS;
        for (word, partial_tags) in
            self.partial_tags[set * self.words..(set + 1) * self.words].iter().enumerate()
        {
            // A matching partial tag gives zero. This sets the top bit of each match, and possibly
            // of some non-matches.
            let difference = partial_tags ^ pattern;
            let mut matches = difference.wrapping_sub(LOW_BITS) & !difference & LOW_BITS << 15;
            while matches != 0 {
                let way = 4 * word + matches.trailing_zeros() as usize / 16;
                if way < self.ways && self.lines[first + way].tag == number + 1 {
                    self.lru.touch(set, way);
                    return Some(first + way);
                }
                matches &= matches - 1;
            }
        }
        None
    }

    /// Replaces the least recently used line whose sectors have all arrived by `now`. Returns
    /// `None` if every line of the set has sectors in flight.
    #[inline]
    pub(crate) fn insert(&mut self, set: usize, number: u64, now: u64) -> Option<(usize, Option<Victim>)> {
        let first = set * self.ways;
        let is_pending = |line: &Line| line.in_flight != 0 && line.ready > now;
        // The oldest line rarely has sectors in flight.
        let arrived = |age: &usize| !is_pending(&self.lines[first + self.lru.way(set, *age)]);
        let age = (0..self.ways).find(arrived)?;
        let way = self.lru.way(set, age);
        self.lru.promote(set, age);
        let line = &mut self.lines[first + way];
        let Line { tag, valid, dirty, .. } = *line;
        let victim = (tag != 0).then(|| Victim { number: tag - 1, valid, dirty });
        *line = Line { tag: number + 1, ..Line::default() };
        let (partial_tags, shift) = (&mut self.partial_tags[set * self.words + way / 4], 16 * (way % 4));
        *partial_tags = *partial_tags & !(0xffff << shift) | partial_tag(number) << shift;
        Some((first + way, victim))
    }

    #[inline]
    pub(crate) fn line(&mut self, index: usize) -> &mut Line {
        &mut self.lines[index]
    }

    /// Returns whether the line at `index` is still this one.
    #[inline]
    pub(crate) fn holds(&self, index: usize, number: u64) -> bool {
        self.lines[index].tag == number + 1
    }

    /// Invalidates every line; dirty sectors are dropped, not written back.
    pub(crate) fn clear(&mut self) {
        self.lines.fill(Line::default());
        self.lru.clear();
    }

    /// Returns the number of dirty sectors in the cache.
    pub(crate) fn dirty_sectors(&self) -> u64 {
        self.lines.iter().map(|line| u64::from(line.dirty.count_ones())).sum()
    }
}

/// Returns the partial tag: 16 hashed bits of the line number.
#[inline]
fn partial_tag(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24 & 0xffff
}

/// Hashes a line number to one of `count` slices, evenly for any stride (multiplication by the
/// golden ratio, upper bits scaled).
#[inline]
pub(crate) fn hash_slice(number: u64, count: u32) -> u32 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((mixed * u64::from(count)) >> 32) as u32
}

/// Hashes a line number to a set within a slice, from bits independent of [`hash_slice`].
#[inline]
pub(crate) fn hash_set(number: u64, count: u32) -> u32 {
    let mixed = number.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = ((mixed ^ mixed >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 32;
    ((mixed * u64::from(count)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_line_is_evicted() {
        let mut cache = Cache::new(1, 2);
        let (a, none) = cache.insert(0, 10, 0).unwrap();
        assert_eq!(none, None);
        cache.line(a).valid = 0b11;
        cache.line(a).dirty = 0b01;
        cache.insert(0, 20, 0).unwrap();
        assert_eq!(cache.find(0, 10), Some(a));
        let (b, victim) = cache.insert(0, 30, 0).unwrap();
        assert_eq!(victim.map(|v| v.number), Some(20));
        assert!(cache.holds(b, 30) && cache.find(0, 20).is_none());
        let victim = cache.insert(0, 40, 0).unwrap().1;
        assert_eq!(victim, Some(Victim { number: 10, valid: 0b11, dirty: 0b01 }));
    }

    #[test]
    fn lines_with_equal_partial_tags_are_told_apart() {
        for ways in [1, 3, 4, 16, 23] {
            let mut cache = Cache::new(3, ways);
            // One line per way; some partial tags are equal.
            let numbers = (1u64..).filter(|number| partial_tag(*number) < 8);
            let lines: Vec<(usize, u64)> = (0..3 * ways).map(|at| at % 3).zip(numbers).collect();
            let indices: Vec<usize> =
                lines.iter().map(|&(set, number)| cache.insert(set, number, 0).unwrap().0).collect();
            for (&(set, number), &index) in lines.iter().zip(&indices) {
                assert_eq!(cache.find(set, number), Some(index));
                assert!((0..3).all(|other| other == set || cache.find(other, number).is_none()));
            }
        }
    }

    #[test]
    fn a_line_with_sectors_in_flight_is_not_evicted() {
        let mut cache = Cache::new(1, 1);
        let (index, _) = cache.insert(0, 1, 0).unwrap();
        let line = cache.line(index);
        (line.ready, line.in_flight, line.valid) = (100, 1, 1);
        assert!(cache.insert(0, 2, 99).is_none());
        assert!(cache.insert(0, 2, 100).is_some());
    }

    #[test]
    fn strides_are_spread_evenly() {
        for stride in [1, 2, 3, 8, 64, 100, 1024, 4096, 65536] {
            for count in [32, 40, 64, 80, 96] {
                let mut hits = vec![0u32; count as usize];
                let lines = 200 * u64::from(count);
                (0..lines).for_each(|i| hits[hash_slice(0x5_5555 + i * stride, count) as usize] += 1);
                assert!(hits.iter().all(|&n| (180..=220).contains(&n)), "{stride} {count} {hits:?}");
            }
        }
    }
}
