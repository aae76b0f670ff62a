//! A queue in the order of its values, for times that come nearly in order.
//!
//! A new value most often belongs among the last, so that few are moved for it, and the first is taken without any work. For
//! times that come in any order, such as the ends of scattered accesses, a heap is faster.

/// Values, the smallest first.
#[derive(Debug)]
pub(crate) struct Sorted<T> {
    /// In order from `head` on; what lies before it was taken.
    items: Vec<T>,
    head: usize,
}

/// How many of the last values are compared one by one.
const NEAR: usize = 16;

impl<T: Copy + Ord> Sorted<T> {
    pub(crate) fn new() -> Self {
        Self { items: Vec::new(), head: 0 }
    }

    /// The smallest value.
    #[inline]
    pub(crate) fn first(&self) -> Option<T> {
        self.items.get(self.head).copied()
    }

    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        let items = &self.items[self.head..];
        let far = items.len().saturating_sub(NEAR);
        let larger = items[far..].iter().rev().take_while(|&&item| item > value).count();
        let mut place = self.items.len() - larger;
        if larger == NEAR {
            place = self.head + items[..far].partition_point(|&item| item <= value);
        }
        self.items.insert(place, value);
    }

    /// Takes the smallest value out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let first = self.first()?;
        self.head += 1;
        // What was taken makes room once it is the larger part: each value is moved for it once.
        if 2 * self.head > self.items.len() {
            self.items.drain(..self.head);
            self.head = 0;
        }
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is put in and taken out, it is what a sorted list has.
        #[test]
        fn the_smallest_comes_first(steps in proptest::collection::vec((0u32..200, any::<bool>()), 1..400)) {
            let (mut queue, mut list) = (Sorted::new(), Vec::new());
            for (index, (value, take)) in steps.into_iter().enumerate() {
                queue.push(value + index as u32 / 4);
                list.push(value + index as u32 / 4);
                list.sort_unstable();
                if take {
                    prop_assert_eq!(queue.pop(), Some(list.remove(0)));
                }
                prop_assert_eq!(queue.first(), list.first().copied());
            }
        }
    }
}
