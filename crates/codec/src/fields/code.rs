//! A prefix code of a few dozen symbols, as in Deflate: known by the lengths of its codes, none over [`LONGEST`] bits.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::Error;

/// The longest code, in bits.
pub(super) const LONGEST: u32 = 10;

/// A complete prefix code: any bits begin with one of its codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PrefixCode {
    /// For each symbol its code, first bit lowest, and the bits of that.
    codes: Vec<(u16, u8)>,
    /// For any next bits the symbol of the code that they begin with, and the bits of that.
    symbols: Vec<(u8, u8)>,
}

impl PrefixCode {
    /// The code whose symbols have codes of these lengths: the shorter first, of equal ones the lower symbol.
    ///
    /// # Errors
    /// [`Error::Parameters`] unless lengths are within 1 and [`LONGEST`] and the code is complete.
    pub(super) fn new(lengths: &[u8]) -> Result<Self, Error> {
        if lengths.contains(&0) { Err(incomplete(lengths)) } else { Self::of_some(lengths) }
    }

    /// The same where symbols whose length is 0 have no code.
    ///
    /// # Errors
    /// [`Error::Parameters`] unless lengths are within [`LONGEST`] and the code is complete.
    pub(super) fn of_some(lengths: &[u8]) -> Result<Self, Error> {
        let known = lengths.iter().all(|&length| u32::from(length) <= LONGEST);
        let coded = || lengths.iter().filter(|&&length| length > 0);
        let share = |&length: &u8| 1 << (LONGEST - u32::from(length));
        if !known || coded().map(share).sum::<u32>() != 1 << LONGEST {
            return Err(incomplete(lengths));
        }
        let (mut codes, mut symbols) = (vec![(0, 0); lengths.len()], vec![(0, 0); 1 << LONGEST]);
        let mut order: Vec<usize> = (0..lengths.len()).filter(|&symbol| lengths[symbol] > 0).collect();
        order.sort_by_key(|&symbol| lengths[symbol]);
        let mut next = 0u16;
        for symbol in order {
            let length = lengths[symbol];
            // The first bit of a code is its highest, and lowest in a stream.
            let code = next.reverse_bits() >> (16 - LONGEST);
            codes[symbol] = (code, length);
            let alike = (usize::from(code)..symbols.len()).step_by(1 << length);
            alike.for_each(|bits| symbols[bits] = (symbol as u8, length));
            next += share(&length) as u16;
        }
        Ok(Self { codes, symbols })
    }

    /// What [`of_counts`](Self::of_counts) gives for the symbols that have a count, two at least; the others have no code.
    pub(super) fn of_some_counts(counts: &[Option<u64>]) -> Self {
        let some: Vec<u64> = counts.iter().copied().flatten().collect();
        let code = Self::of_counts(&some);
        let mut lengths = code.codes.iter().map(|&(_, length)| length);
        let each = counts.iter().map(|count| count.and_then(|_| lengths.next()).unwrap_or(0));
        Self::of_some(&each.collect::<Vec<u8>>()).expect("it is complete without them")
    }

    /// The code with which symbols that come so often take the fewest bits, but for rare ones that would have longer codes.
    pub(super) fn of_counts(counts: &[u64]) -> Self {
        let total: u64 = counts.iter().sum();
        let floors = std::iter::successors(Some(1), |floor| Some(floor + floor / 4 + total / 4096 + 1));
        let mut lengths =
            floors.map(|floor| huffman(&counts.iter().map(|&count| count.max(floor)).collect::<Vec<u64>>()));
        let short = |lengths: &Vec<u8>| lengths.iter().all(|&length| u32::from(length) <= LONGEST);
        let lengths = lengths.find(short).expect("codes of equal length are short");
        Self::new(&lengths).expect("Huffman codes are complete")
    }

    /// For each symbol its code, first bit lowest, and the bits of that.
    pub(super) fn codes(&self) -> &[(u16, u8)] {
        &self.codes
    }

    /// For any [`LONGEST`] bits the symbol of the code that they begin with, and the bits of that.
    pub(super) fn symbols(&self) -> &[(u8, u8)] {
        &self.symbols
    }
}

fn incomplete(lengths: &[u8]) -> Error {
    Error::Parameters(format!("no complete prefix code: codes of {lengths:?} bits"))
}

/// The lengths of Huffman's code; two symbols at least.
fn huffman(weights: &[u64]) -> Vec<u8> {
    let mut open: BinaryHeap<Reverse<(u64, usize)>> =
        weights.iter().enumerate().map(|(node, &weight)| Reverse((weight, node))).collect();
    let mut above = vec![0; 2 * weights.len() - 1];
    for node in weights.len()..above.len() {
        let mut least = || open.pop().expect("two nodes are open").0;
        let (left, right) = (least(), least());
        (above[left.1], above[right.1]) = (node, node);
        open.push(Reverse((left.0 + right.0, node)));
    }
    let mut depths = vec![0u8; above.len()];
    // A node stands before the one above it.
    for node in (0..above.len() - 1).rev() {
        depths[node] = depths[above[node]] + 1;
    }
    depths.truncate(weights.len());
    depths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(counts: &[u64]) -> Vec<u8> {
        PrefixCode::of_counts(counts).codes().iter().map(|&(_, length)| length).collect()
    }

    #[test]
    fn frequent_symbols_have_short_codes() {
        assert_eq!(lengths(&[8, 4, 2, 2]), [1, 2, 3, 3]);
        assert_eq!(PrefixCode::of_counts(&[8, 4, 2, 2]).codes(), [(0, 1), (0b01, 2), (0b011, 3), (0b111, 3)]);
    }

    #[test]
    fn no_code_is_longer_than_the_longest() {
        let powers: Vec<u64> = (0..33).map(|bit| 1 << bit).collect();
        for counts in [&powers, &vec![0; 65], &vec![1 << 40; 65]] {
            assert!(lengths(counts).iter().all(|&length| (1..=10).contains(&length)), "{counts:?}");
        }
        assert_eq!(lengths(&powers)[32], 1);
    }

    #[test]
    fn codes_that_are_not_complete_are_refused() {
        for lengths in [&[1, 2][..], &[1, 1, 1], &[0, 1, 1], &[1, 11, 11], &[]] {
            let error = PrefixCode::new(lengths).unwrap_err().to_string();
            assert!(error.starts_with("no complete prefix code"), "{error}");
        }
    }

    #[test]
    fn symbols_without_a_count_have_no_code() {
        let code = PrefixCode::of_some_counts(&[Some(3), None, Some(1), Some(0), None]);
        let lengths: Vec<u8> = code.codes().iter().map(|&(_, length)| length).collect();
        assert_eq!(lengths, [1, 0, 2, 2, 0]);
        assert!(
            code.symbols()
                .iter()
                .all(|&(symbol, length)| [(0, 1), (2, 2), (3, 2)].contains(&(symbol, length)))
        );
        assert!(PrefixCode::of_some(&[0, 1, 2]).is_err());
    }

    #[test]
    fn any_bits_begin_with_a_code() {
        let code = PrefixCode::of_counts(&[100, 1, 50, 3, 3, 0]);
        for (bits, &(symbol, length)) in code.symbols().iter().enumerate() {
            assert_eq!((bits & ((1 << length) - 1)) as u16, code.codes()[usize::from(symbol)].0);
        }
    }
}
