//! Canonical prefix code of a few dozen symbols, as in Deflate: defined by its code lengths, at
//! most [`LONGEST`] bits.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::Error;

/// Maximum code length in bits.
pub(super) const LONGEST: u32 = 10;

/// A complete prefix code: every bit sequence begins with a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PrefixCode {
    /// Per symbol: its code, first bit lowest, and its length.
    codes: Vec<(u16, u8)>,
    /// Decoding table by lookahead: the symbol and the length of its code.
    symbols: Vec<(u8, u8)>,
}

impl PrefixCode {
    /// Creates the canonical code with these lengths: shorter codes first, then lower symbols.
    ///
    /// # Errors
    /// [`Error::Parameters`] unless lengths are within 1 and [`LONGEST`] and the code is complete.
    pub(super) fn new(lengths: &[u8]) -> Result<Self, Error> {
        if lengths.contains(&0) { Err(incomplete(lengths)) } else { Self::sparse(lengths) }
    }

    /// Creates a code in which symbols of length 0 are unused.
    ///
    /// # Errors
    /// [`Error::Parameters`] unless lengths are within [`LONGEST`] and the code is complete.
    pub(super) fn sparse(lengths: &[u8]) -> Result<Self, Error> {
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
            // The first bit of a code is its highest, and the lowest in a stream.
            let code = next.reverse_bits() >> (16 - LONGEST);
            codes[symbol] = (code, length);
            let alike = (usize::from(code)..symbols.len()).step_by(1 << length);
            alike.for_each(|bits| symbols[bits] = (symbol as u8, length));
            next += share(&length) as u16;
        }
        Ok(Self { codes, symbols })
    }

    /// Creates a Huffman code for the symbols with a count, at least two; the others are unused.
    pub(super) fn from_sparse_counts(counts: &[Option<u64>]) -> Self {
        let some: Vec<u64> = counts.iter().copied().flatten().collect();
        let code = Self::from_counts(&some);
        let mut lengths = code.codes.iter().map(|&(_, length)| length);
        let each = counts.iter().map(|count| count.and_then(|_| lengths.next()).unwrap_or(0));
        Self::sparse(&each.collect::<Vec<u8>>()).expect("complete without the unused symbols")
    }

    /// Creates the Huffman code of these counts, limited to [`LONGEST`] bits.
    pub(super) fn from_counts(counts: &[u64]) -> Self {
        let total: u64 = counts.iter().sum();
        let floors = std::iter::successors(Some(1), |floor| Some(floor + floor / 4 + total / 4096 + 1));
        let mut lengths =
            floors.map(|floor| huffman(&counts.iter().map(|&count| count.max(floor)).collect::<Vec<u64>>()));
        let short = |lengths: &Vec<u8>| lengths.iter().all(|&length| u32::from(length) <= LONGEST);
        let lengths = lengths.find(short).expect("codes of equal length are short");
        Self::new(&lengths).expect("Huffman codes are complete")
    }

    /// Returns per symbol its code, first bit lowest, and its length.
    pub(super) fn codes(&self) -> &[(u16, u8)] {
        &self.codes
    }

    /// Returns the decoding table: for any [`LONGEST`] bits the symbol and the length of its code.
    pub(super) fn symbols(&self) -> &[(u8, u8)] {
        &self.symbols
    }
}

fn incomplete(lengths: &[u8]) -> Error {
    Error::Parameters(format!("no complete prefix code: codes of {lengths:?} bits"))
}

/// Returns the code lengths of a Huffman code of at least two symbols.
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
    // Nodes precede their parents.
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
        PrefixCode::from_counts(counts).codes().iter().map(|&(_, length)| length).collect()
    }

    #[test]
    fn frequent_symbols_have_short_codes() {
        assert_eq!(lengths(&[8, 4, 2, 2]), [1, 2, 3, 3]);
        assert_eq!(
            PrefixCode::from_counts(&[8, 4, 2, 2]).codes(),
            [(0, 1), (0b01, 2), (0b011, 3), (0b111, 3)]
        );
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
    fn incomplete_codes_are_refused() {
        for lengths in [&[1, 2][..], &[1, 1, 1], &[0, 1, 1], &[1, 11, 11], &[]] {
            let error = PrefixCode::new(lengths).unwrap_err().to_string();
            assert!(error.starts_with("no complete prefix code"), "{error}");
        }
    }

    #[test]
    fn symbols_without_a_count_have_no_code() {
        let code = PrefixCode::from_sparse_counts(&[Some(3), None, Some(1), Some(0), None]);
        let lengths: Vec<u8> = code.codes().iter().map(|&(_, length)| length).collect();
        assert_eq!(lengths, [1, 0, 2, 2, 0]);
        assert!(
            code.symbols()
                .iter()
                .all(|&(symbol, length)| [(0, 1), (2, 2), (3, 2)].contains(&(symbol, length)))
        );
        assert!(PrefixCode::sparse(&[0, 1, 2]).is_err());
    }

    #[test]
    fn every_bit_sequence_begins_with_a_code() {
        let code = PrefixCode::from_counts(&[100, 1, 50, 3, 3, 0]);
        for (bits, &(symbol, length)) in code.symbols().iter().enumerate() {
            assert_eq!((bits & ((1 << length) - 1)) as u16, code.codes()[usize::from(symbol)].0);
        }
    }
}
