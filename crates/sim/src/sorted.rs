//! A sorted queue for times that arrive nearly in order.
//!
//! An insertion moves few values, and removing the smallest is free. For times in random order,
//! such as completions of scattered accesses, a heap is faster.

/// A priority queue, smallest value first.
#[derive(Debug)]
pub(crate) struct SortedQueue<T> {
    /// Sorted from `head` on; values before it were removed.
    items: Vec<T>,
    head: usize,
}

/// Number of values at the end that are compared one by one.
const NEAR: usize = 16;

impl<T: Copy + Ord> SortedQueue<T> {
    pub(crate) fn new() -> Self {
        Self { items: Vec::new(), head: 0 }
    }

    /// Returns the smallest value.
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

    /// Removes the smallest value.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let first = self.first()?;
        self.head += 1;
        // Compacts when most of the vector is removed values: amortized one move per value.
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
        /// Matches a sorted list under any sequence of operations.
        #[test]
        fn the_smallest_value_is_first(steps in proptest::collection::vec((0u32..200, any::<bool>()), 1..400)) {
            let (mut queue, mut list) = (SortedQueue::new(), Vec::new());
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
