//! A sectored, set-associative cache with the least recently used line evicted, and no data.

use crate::lru::Lru;

/// What a cache knows of a line.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Line {
    /// Its number plus one; 0 is none.
    tag: u64,
    /// When the sectors in flight arrive; [`UNKNOWN`] until that is computed.
    pub(crate) ready: u64,
    /// Sectors that are there or on their way.
    pub(crate) valid: u8,
    /// Sectors that memory does not have yet.
    pub(crate) dirty: u8,
    /// Of the valid sectors, those on their way.
    pub(crate) flight: u8,
}

/// A time that is not known yet.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// A cache of lines that are known by a number.
///
/// The host's own caches decide how fast it is. So what a search reads lies apart from the lines and is small: the marks of 16
/// ways are half a line of the host's memory, with which a search ends that finds nothing.
#[derive(Debug)]
pub(crate) struct Cache {
    /// Some bits of the number of each line, four lines to a word: with a few operations all four are compared.
    marks: Vec<u64>,
    lines: Vec<Line>,
    lru: Lru,
    ways: usize,
    /// Words of marks in a set.
    words: usize,
}

/// A one in each of the four parts of a word.
const ONES: u64 = 0x0001_0001_0001_0001;

/// A line that had to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) number: u64,
    pub(crate) valid: u8,
    pub(crate) dirty: u8,
}

impl Cache {
    pub(crate) fn new(sets: usize, ways: usize) -> Self {
        let words = ways.div_ceil(4);
        let (marks, lines) = (vec![0; sets * words], vec![Line::default(); sets * ways]);
        Self { marks, lines, lru: Lru::new(sets, ways), ways, words }
    }

    /// Where a line lies; it becomes the most recently used.
    #[inline]
    pub(crate) fn find(&mut self, set: usize, number: u64) -> Option<usize> {
        let first = set * self.ways;
        let wanted = mark(number) * ONES;
        for (word, marks) in self.marks[set * self.words..(set + 1) * self.words].iter().enumerate() {
            // Zero where a mark is the wanted one; the highest bit of such a part, and perhaps of some that are not.
            let other = marks ^ wanted;
            let mut same = other.wrapping_sub(ONES) & !other & ONES << 15;
            while same != 0 {
                let way = 4 * word + same.trailing_zeros() as usize / 16;
                if way < self.ways && self.lines[first + way].tag == number + 1 {
                    self.lru.touch(set, way);
                    return Some(first + way);
                }
                same &= same - 1;
            }
        }
        None
    }

    /// Puts a line in the place of the least recently used one whose sectors have all arrived by `now`.
    /// Nothing happens where every line of the set is still waiting.
    #[inline]
    pub(crate) fn insert(&mut self, set: usize, number: u64, now: u64) -> Option<(usize, Option<Victim>)> {
        let first = set * self.ways;
        let waits = |line: &Line| line.flight != 0 && line.ready > now;
        // The oldest line hardly ever waits.
        let arrived = |age: &usize| !waits(&self.lines[first + self.lru.way(set, *age)]);
        let age = (0..self.ways).find(arrived)?;
        let way = self.lru.way(set, age);
        self.lru.renew(set, age);
        let line = &mut self.lines[first + way];
        let Line { tag, valid, dirty, .. } = *line;
        let victim = (tag != 0).then(|| Victim { number: tag - 1, valid, dirty });
        *line = Line { tag: number + 1, ..Line::default() };
        let (marks, shift) = (&mut self.marks[set * self.words + way / 4], 16 * (way % 4));
        *marks = *marks & !(0xffff << shift) | mark(number) << shift;
        Some((first + way, victim))
    }

    #[inline]
    pub(crate) fn line(&mut self, place: usize) -> &mut Line {
        &mut self.lines[place]
    }

    /// Whether a place still holds this line.
    #[inline]
    pub(crate) fn holds(&self, place: usize, number: u64) -> bool {
        self.lines[place].tag == number + 1
    }

    /// Invalidates every line; dirty sectors are dropped, not written back.
    pub(crate) fn clear(&mut self) {
        self.lines.fill(Line::default());
        self.lru.clear();
    }

    /// Sectors that memory does not have yet.
    pub(crate) fn dirty_sectors(&self) -> u64 {
        self.lines.iter().map(|line| u64::from(line.dirty.count_ones())).sum()
    }
}

/// Bits of a line's number that tell most lines of a set apart.
#[inline]
fn mark(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24 & 0xffff
}

/// Spreads line numbers over `count` places: neighbours, and lines at any stride, come out evenly
/// (multiplication by the golden ratio, the upper bits scaled).
#[inline]
pub(crate) fn hash_slice(number: u64, count: u32) -> u32 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((mixed * u64::from(count)) >> 32) as u32
}

/// The same for sets within what [`hash_slice`] made one place, from other bits.
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
    fn the_least_recently_used_line_goes() {
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
    fn lines_are_found_whatever_their_marks() {
        for ways in [1, 3, 4, 16, 23] {
            let mut cache = Cache::new(3, ways);
            // As many lines as there are places, of which some have the same mark.
            let twins = (1u64..).filter(|number| mark(*number) < 8);
            let lines: Vec<(usize, u64)> = (0..3 * ways).map(|at| at % 3).zip(twins).collect();
            let places: Vec<usize> =
                lines.iter().map(|&(set, number)| cache.insert(set, number, 0).unwrap().0).collect();
            for (&(set, number), &place) in lines.iter().zip(&places) {
                assert_eq!(cache.find(set, number), Some(place));
                assert!((0..3).all(|other| other == set || cache.find(other, number).is_none()));
            }
        }
    }

    #[test]
    fn a_line_on_its_way_stays() {
        let mut cache = Cache::new(1, 1);
        let (place, _) = cache.insert(0, 1, 0).unwrap();
        let line = cache.line(place);
        (line.ready, line.flight, line.valid) = (100, 1, 1);
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
