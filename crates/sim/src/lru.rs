//! Which way of a set was used least recently.

/// Ways whose order fits one word, four bits each.
const PACKED: usize = 16;

/// The ways of every set in the order of their last use, the oldest first. At the start that is the order of the ways.
#[derive(Debug)]
pub(crate) struct Lru {
    ways: usize,
    /// For up to 16 ways a word for each set, the oldest way in its lowest bits: then an order changes by shifts.
    packed: Vec<u64>,
    /// For more, a list for each set.
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

    /// The way of this age: 0 is the oldest.
    #[inline]
    pub(crate) fn way(&self, set: usize, age: usize) -> usize {
        match self.packed.get(set) {
            Some(order) => (order >> (4 * age)) as usize % PACKED,
            None => usize::from(self.listed[set * self.ways + age]),
        }
    }

    /// Makes a way the youngest.
    #[inline]
    pub(crate) fn touch(&mut self, set: usize, way: usize) {
        const ONES: u64 = 0x1111_1111_1111_1111;
        let age = match self.packed.get(set) {
            Some(order) => {
                // The lowest four bits that are zero: where the way stands. Carries only reach what lies above.
                let other = order ^ (way as u64 * ONES);
                (other.wrapping_sub(ONES) & !other & ONES << 3).trailing_zeros() as usize / 4
            }
            None => (0..self.ways).find(|&age| self.way(set, age) == way).unwrap_or(0),
        };
        self.renew(set, age);
    }

    /// Makes the way of this age the youngest; those that are younger close up.
    #[inline]
    pub(crate) fn renew(&mut self, set: usize, age: usize) {
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
        /// A word and a list keep what a plain list of ways keeps.
        #[test]
        fn the_order_is_that_of_the_last_use(ways in 1usize..40, used in proptest::collection::vec(0usize..40, 0..200)) {
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
