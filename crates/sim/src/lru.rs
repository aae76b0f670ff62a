//! LRU order of the ways of each set.

/// Largest number of ways whose order fits one word, four bits each.
const PACKED: usize = 16;

/// The ways of each set ordered by last use, oldest first; initially in way order.
#[derive(Debug)]
pub(crate) struct Lru {
    ways: usize,
    /// Up to 16 ways: one word per set, the oldest way in the lowest bits.
    packed: Vec<u64>,
    /// More than 16 ways: a list per set.
    listed: Vec<u16>,
}

impl Lru {
    pub(crate) fn new(sets: usize, ways: usize) -> Self {
        let mut lru = Self { ways, packed: Vec::new(), listed: Vec::new() };
        if ways <= PACKED {
            lru.packed = vec![0; sets];
        } else {
            lru.listed = vec![0; sets * ways];
        }
        lru.clear();
        lru
    }

    pub(crate) fn clear(&mut self) {
        let start = (0..self.ways.min(PACKED) as u64).fold(0, |order, way| order | way << (4 * way));
        self.packed.fill(start);
        for list in self.listed.chunks_exact_mut(self.ways) {
            list.iter_mut().zip(0..).for_each(|(place, way)| *place = way);
        }
    }

    /// Returns the way of this age; 0 is the oldest.
    #[inline]
    pub(crate) fn way(&self, set: usize, age: usize) -> usize {
        match self.packed.get(set) {
            Some(order) => (order >> (4 * age)) as usize % PACKED,
            None => usize::from(self.listed[set * self.ways + age]),
        }
    }

    /// Makes a way the most recently used.
    #[inline]
    pub(crate) fn touch(&mut self, set: usize, way: usize) {
        const ONES: u64 = 0x1111_1111_1111_1111;
        let age = match self.packed.get(set) {
            Some(order) => {
                // Finds the lowest zero nibble, the position of the way. Borrows only reach the
                // nibbles above it.
                let other = order ^ (way as u64 * ONES);
                (other.wrapping_sub(ONES) & !other & ONES << 3).trailing_zeros() as usize / 4
            }
            None => (0..self.ways).find(|&age| self.way(set, age) == way).unwrap_or(0),
        };
        self.promote(set, age);
    }

    /// Makes the way of this age the most recently used.
    #[inline]
    pub(crate) fn promote(&mut self, set: usize, age: usize) {
        match self.packed.get_mut(set) {
            Some(order) => {
                let (way, below) = (*order >> (4 * age) & 0xf, (1u64 << (4 * age)) - 1);
                *order = *order & below | (*order >> 4) & !below | way << (4 * (self.ways - 1));
            }
            None => self.listed[set * self.ways + age..(set + 1) * self.ways].rotate_left(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Both layouts match a plain list of ways.
        #[test]
        fn ways_are_ordered_by_last_use(ways in 1usize..40, used in proptest::collection::vec(0usize..40, 0..200)) {
            let mut lru = Lru::new(3, ways);
            let mut plain: Vec<usize> = (0..ways).collect();
            for way in used {
                plain.retain(|&other| other != way % ways);
                plain.push(way % ways);
                lru.touch(1, way % ways);
                let order: Vec<usize> = (0..ways).map(|age| lru.way(1, age)).collect();
                prop_assert_eq!(&order, &plain);
                prop_assert!((0..ways).all(|age| lru.way(0, age) == age && lru.way(2, age) == age));
            }
        }
    }
}
