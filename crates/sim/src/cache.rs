//! A sectored, set-associative cache with the least recently used line evicted, and no data.

/// What a cache knows of a line besides its number.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Line {
    /// When the sectors in flight arrive; [`UNKNOWN`] until that is computed.
    pub(crate) ready: u64,
    used: u64,
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
#[derive(Debug)]
pub(crate) struct Cache {
    /// The number of each line plus one; 0 is none. Apart from the lines: a search reads only these.
    tags: Vec<u64>,
    lines: Vec<Line>,
    ways: usize,
    clock: u64,
}

/// A line that had to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) number: u64,
    pub(crate) valid: u8,
    pub(crate) dirty: u8,
}

impl Cache {
    pub(crate) fn new(sets: usize, ways: usize) -> Self {
        Self { tags: vec![0; sets * ways], lines: vec![Line::default(); sets * ways], ways, clock: 0 }
    }

    /// Where a line lies; it becomes the most recently used.
    #[inline]
    pub(crate) fn find(&mut self, set: usize, number: u64) -> Option<usize> {
        let first = set * self.ways;
        let way = self.tags[first..first + self.ways].iter().position(|&tag| tag == number + 1)?;
        self.clock += 1;
        self.lines[first + way].used = self.clock;
        Some(first + way)
    }

    /// Puts a line in the place of the least recently used one whose sectors have all arrived by `now`.
    /// Nothing happens where every line of the set is still waiting.
    #[inline]
    pub(crate) fn insert(&mut self, set: usize, number: u64, now: u64) -> Option<(usize, Option<Victim>)> {
        let first = set * self.ways;
        let waits = |line: &Line| line.flight != 0 && line.ready > now;
        let set = &self.lines[first..first + self.ways];
        // The oldest line hardly ever waits, so that it is looked for first without asking.
        let mut oldest = set.iter().enumerate().min_by_key(|(_, line)| line.used)?.0;
        if waits(&set[oldest]) {
            let arrived = set.iter().enumerate().filter(|(_, line)| !waits(line));
            oldest = arrived.min_by_key(|(_, line)| line.used)?.0;
        }
        let oldest = first + oldest;
        let old = self.lines[oldest];
        let victim = (self.tags[oldest] != 0).then(|| Victim {
            number: self.tags[oldest] - 1,
            valid: old.valid,
            dirty: old.dirty,
        });
        self.clock += 1;
        self.tags[oldest] = number + 1;
        self.lines[oldest] = Line { used: self.clock, ..Line::default() };
        Some((oldest, victim))
    }

    #[inline]
    pub(crate) fn line(&mut self, place: usize) -> &mut Line {
        &mut self.lines[place]
    }

    /// Whether a place still holds this line.
    #[inline]
    pub(crate) fn holds(&self, place: usize, number: u64) -> bool {
        self.tags[place] == number + 1
    }

    /// Invalidates every line; dirty sectors are dropped, not written back.
    pub(crate) fn clear(&mut self) {
        self.tags.fill(0);
        self.lines.fill(Line::default());
    }

    /// Sectors that memory does not have yet.
    pub(crate) fn dirty_sectors(&self) -> u64 {
        self.lines.iter().map(|line| u64::from(line.dirty.count_ones())).sum()
    }
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
    fn a_line_on_its_way_stays() {
        let mut cache = Cache::new(1, 1);
        let (place, _) = cache.insert(0, 1, 0).unwrap();
        *cache.line(place) = Line { ready: 100, flight: 1, valid: 1, ..Line::default() };
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
