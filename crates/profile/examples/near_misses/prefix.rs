//! Variants of the prefix codecs, by their sizes only.

use buddy_codec::{Codec, EntryCodec};
use buddy_core::{Entry, as_entries, is_zero, last_entry};
use serde::Deserialize;

/// Names of the variants.
pub(crate) const VARIANTS: [&str; 3] = ["first word coded", "two codes, one for each entry", "both"];

/// Largest length of a number in bits.
const LENGTHS: usize = 65;
/// Largest length of a code in bits.
const LONGEST: u32 = 10;
/// Rounds in which entries take the cheaper of two codes.
const ROUNDS: usize = 6;

/// Bits of a number of each length, with its code.
type Code = [u32; LENGTHS];

/// Parameters of a prefix codec.
#[derive(Deserialize)]
struct Parameters {
    stride: usize,
    order: usize,
    first: String,
    rest: String,
}

/// A prefix codec and what its variants train.
pub(crate) struct Trained {
    stride: usize,
    order: usize,
    /// Bits of a word.
    width: u32,
    rest: Code,
    /// Codes of which an entry takes one.
    two: [Code; 2],
    /// The word that first words are differences from, and their code; `None` without a first word.
    base: Option<(u64, Code)>,
}

impl Trained {
    /// Trains the variants; `None` for other codecs.
    ///
    /// # Panics
    /// If the sizes computed here are not the codec's.
    pub(crate) fn new(codec: &Codec, seen: &[Entry]) -> Option<Self> {
        let width = match codec {
            Codec::Prefix32(_) => 32,
            Codec::Prefix64(_) => 64,
            _ => return None,
        };
        let value = serde_json::to_value(codec).expect("a codec is valid JSON");
        let Parameters { stride, order, first, rest } =
            serde_json::from_value(value).expect("parameters of a prefix codec");
        let (first, rest) = (parse(&first), parse(&rest));
        let mut own = Self { stride, order, width, rest, two: [rest; 2], base: None };
        let some: Vec<&Entry> = seen.iter().filter(|entry| !is_zero(entry)).collect();
        for entry in &some {
            let numbers = own.numbers(entry);
            let (firsts, others) = numbers.split_at(stride * order);
            let whole = if stride > 0 { width } else { 0 };
            let bits = 1 + whole + sum(&first, firsts.get(1..).unwrap_or(&[])) + sum(&rest, others);
            assert!(bits.min(1025) == codec.size_bits(entry), "{bits} bits");
        }
        own.two = own.train_two(&some);
        own.base = own.train_base(&some);
        Some(own)
    }

    /// Returns the bits of each entry of an array with a variant, given those of the codec.
    pub(crate) fn bits(&self, variant: usize, bytes: &[u8], own: &[u16]) -> Vec<u16> {
        let (entries, tail) = as_entries(bytes);
        let last = last_entry(tail);
        let one = |(entry, &bits): (&Entry, &u16)| {
            if bits == 0 { 0 } else { self.changed(variant, entry, bits.into()).min(1025) as u16 }
        };
        entries.iter().chain(&last).zip(own).map(one).collect()
    }

    fn changed(&self, variant: usize, entry: &Entry, mut bits: u32) -> u32 {
        if bits >= 1025 {
            return bits;
        }
        if let (0 | 2, Some((base, code))) = (variant, &self.base) {
            bits = bits - self.width + code[length(self.fold(self.word(entry, 0).wrapping_sub(*base)))];
        }
        if variant > 0 {
            let numbers = self.numbers(entry);
            let others = &numbers[self.stride * self.order..];
            let least = self.two.iter().map(|code| sum(code, others)).min().expect("two codes");
            bits = bits - sum(&self.rest, others) + 1 + least;
        }
        bits
    }

    fn word(&self, entry: &Entry, at: usize) -> u64 {
        let bytes = self.width as usize / 8;
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&entry[at * bytes..(at + 1) * bytes]);
        u64::from_le_bytes(word)
    }

    /// Folds a difference of words: 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4.
    fn fold(&self, difference: u64) -> u64 {
        let top = 64 - self.width;
        let difference = (difference << top) as i64 >> top;
        ((difference << 1) ^ (difference >> 63)) as u64 & (u64::MAX >> top)
    }

    /// Returns the numbers of an entry, the first word included.
    fn numbers(&self, entry: &Entry) -> Vec<u64> {
        let words: Vec<u64> = (0..1024 / self.width as usize).map(|at| self.word(entry, at)).collect();
        let number = |at: usize| {
            let guess = match at {
                _ if self.stride == 0 || at == 0 => return words[at],
                _ if at < self.stride => words[at - 1],
                _ if self.order == 1 || at < 2 * self.stride => words[at - self.stride],
                _ => words[at - self.stride].wrapping_mul(2).wrapping_sub(words[at - 2 * self.stride]),
            };
            self.fold(words[at].wrapping_sub(guess))
        };
        (0..words.len()).map(number).collect()
    }

    /// Trains two codes: entries are parted at the median of their bits, then each takes the cheaper.
    fn train_two(&self, some: &[&Entry]) -> [Code; 2] {
        let mut all: Vec<Vec<u64>> =
            some.iter().map(|entry| self.numbers(entry).split_off(self.stride * self.order)).collect();
        all.sort_by_cached_key(|numbers| sum(&self.rest, numbers));
        let (low, high) = all.split_at(all.len() / 2);
        let mut two = [code(low, self.width), code(high, self.width)];
        for _ in 0..ROUNDS {
            let (first, second): (Vec<_>, Vec<_>) =
                all.iter().cloned().partition(|numbers| sum(&two[0], numbers) <= sum(&two[1], numbers));
            two = [code(&first, self.width), code(&second, self.width)];
        }
        two
    }

    fn train_base(&self, some: &[&Entry]) -> Option<(u64, Code)> {
        let mut words: Vec<u64> = some.iter().map(|entry| self.word(entry, 0)).collect();
        words.sort_unstable();
        let base = *words.get(words.len() / 2).filter(|_| self.stride > 0)?;
        let folded: Vec<u64> = words.iter().map(|word| self.fold(word.wrapping_sub(base))).collect();
        Some((base, code(&[folded], self.width)))
    }
}

fn length(number: u64) -> usize {
    (64 - number.leading_zeros()) as usize
}

fn sum(code: &Code, numbers: &[u64]) -> u32 {
    numbers.iter().map(|&number| code[length(number)]).sum()
}

fn parse(text: &str) -> Code {
    let mut code = [0; LENGTHS];
    for (length, (bits, digit)) in code.iter_mut().zip(text.chars()).enumerate() {
        *bits = digit.to_digit(16).expect("a hex digit") + length.saturating_sub(1) as u32;
    }
    code
}

/// Returns Huffman's code for the lengths of numbers of `width` bits, of at most [`LONGEST`] bits.
fn code(all: &[Vec<u64>], width: u32) -> Code {
    let mut counts = [0_u64; LENGTHS];
    all.iter().flatten().for_each(|&number| counts[length(number)] += 1);
    let total: u64 = counts.iter().sum();
    let mut floor = 1;
    loop {
        let lengths = huffman(&counts.map(|count| count.max(floor))[..=width as usize]);
        if lengths.iter().all(|&bits| bits <= LONGEST) {
            let bits = |length: usize| Some(lengths.get(length)? + length.saturating_sub(1) as u32);
            return std::array::from_fn(|length| bits(length).unwrap_or(0));
        }
        floor += floor / 4 + total / 4096 + 1;
    }
}

fn huffman(weights: &[u64]) -> Vec<u32> {
    let mut open: Vec<(u64, Vec<usize>)> =
        weights.iter().enumerate().map(|(symbol, &weight)| (weight, vec![symbol])).collect();
    let mut lengths = vec![0; weights.len()];
    while open.len() > 1 {
        open.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        let (one, other) = (open.pop().expect("two nodes"), open.pop().expect("two nodes"));
        let symbols = [one.1, other.1].concat();
        symbols.iter().for_each(|&symbol| lengths[symbol] += 1);
        open.push((one.0 + other.0, symbols));
    }
    lengths
}
