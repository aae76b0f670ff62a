//! Dictionary indices with a prefix code of their bit length (`docs/reference/format.md`, "rank32,
//! rank64").
//!
//! Values are sorted by frequency, so frequent ones have short indices and codes. 256 equally
//! frequent values take exactly eight bits each, so that 32 of them fill a sector.

use std::fmt;

use buddy_core::{ENTRY_BYTES, Entry, Layout, SizeClass};
use serde::{Deserialize, Serialize};

use super::{
    code::{LONGEST, PrefixCode},
    forms::ABSENT,
    table::Table,
    values::{frequent_values, ranks},
    words,
};
use crate::{
    EntryCodec, Error, Stream,
    bits::{LsbReader, LsbWriter},
    simd::Lengths,
};

/// The longest coded stream; a longer one is stored as the raw entry, in layout B.
const CODED_BITS: u32 = 768;
const RAW_BITS: u32 = 8 * ENTRY_BYTES as u32;
/// Index lengths 0 to 15, and the escape.
const SYMBOLS: usize = 17;
pub(super) const ESCAPE: usize = 16;
/// Bits of a symbol without a code: more than a stream holds.
const NO_CODE_BITS: u32 = 1024;

/// Prefix codes of dictionary indices; `N` words per entry, 32 or 16.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parameters", into = "Parameters")]
pub struct Rank<const N: usize> {
    table: Table<N>,
    code: PrefixCode,
    /// Total bits of each symbol.
    bits: [u32; SYMBOLS],
    /// Total bits by lookup result, for the vector code.
    lengths: Box<Lengths>,
}

/// Serialized parameters: the values as in a table, and the code length of each index length and of
/// the escape, one hex digit each, 0 if unused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    values: String,
    code: String,
}

impl<const N: usize> From<Rank<N>> for Parameters {
    fn from(codec: Rank<N>) -> Self {
        let code = codec.code.codes().iter().map(|&(_, bits)| format!("{bits:x}")).collect();
        Self { values: codec.table.text(), code }
    }
}

impl<const N: usize> TryFrom<Parameters> for Rank<N> {
    type Error = Error;

    fn try_from(Parameters { values, code }: Parameters) -> Result<Self, Error> {
        let digits: Option<Vec<u8>> = code.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
        let wrong = || Error::Parameters(format!("a code of places has {SYMBOLS} hex digits, not '{code}'"));
        let bits = digits.filter(|digits| digits.len() == SYMBOLS).ok_or_else(wrong)?;
        Ok(Self::of(Table::parse(&values)?, PrefixCode::sparse(&bits)?))
    }
}

/// Returns the bit length of an index.
#[inline(always)]
fn length(place: u64) -> usize {
    (64 - place.leading_zeros()) as usize
}

impl<const N: usize> Rank<N> {
    fn of(table: Table<N>, code: PrefixCode) -> Self {
        let mut bits = [NO_CODE_BITS; SYMBOLS];
        for (symbol, (bits, &(_, code))) in bits.iter_mut().zip(code.codes()).enumerate() {
            let after = if symbol == ESCAPE { words::bits(N) } else { symbol.saturating_sub(1) as u32 };
            *bits = if code == 0 { NO_CODE_BITS } else { u32::from(code) + after };
        }
        let longest = table.longest();
        let taken = |length: usize| bits[if length <= longest { length } else { ESCAPE }] as u16;
        let found: Vec<u16> = (0..=words::bits(N) as usize).map(taken).collect();
        Self { lengths: Box::new(Lengths::new::<N>(0, 1, [&found, &found])), table, code, bits }
    }

    /// Trains the dictionary and the code of its indices on a sample. `frequent_values` chooses the
    /// number of values and whether there is an escape.
    pub fn train(sample: &[Entry]) -> Self {
        let bytes =
            |judged: &[[u64; N]], len: usize, escapes: bool| Self::best_code(judged, len, escapes).0 as usize;
        let (values, escapes) = frequent_values(sample, &[false, true], bytes);
        let table = Table::from_most_frequent(values);
        let places: Vec<[u64; N]> = ranks(table.values(), sample.iter());
        let (_, code) = Self::best_code(&places, table.values().len(), escapes);
        Self::of(table, code)
    }

    /// Returns the code with the fewest bytes of the entries' size classes, and these bytes: Huffman's
    /// code, or the even one. Huffman's needs the fewest bits on average, but entries above it miss
    /// their class.
    fn best_code(places: &[[u64; N]], values: usize, escapes: bool) -> (u64, PrefixCode) {
        let huffman = code(&symbols(places, values), values, escapes);
        let even = if escapes { None } else { even_code(values) };
        let judged = [Some(huffman), even].into_iter().flatten().map(|code| {
            let codec = Self::of(Table::single_zero(), code);
            let bytes = |places: &[u64; N]| {
                let all: u32 = places.iter().map(|&place| codec.bits[symbol(place, values)]).sum();
                SizeClass::from_bits(if all > CODED_BITS { RAW_BITS } else { all }).bytes() as u64
            };
            (places.iter().map(bytes).sum(), codec.code)
        });
        judged.min_by_key(|(bytes, _)| *bytes).expect("Huffman's code")
    }

    /// Returns the table, the code of its indices, and the total bits per symbol.
    pub(super) fn parts(&self) -> (&Table<N>, &PrefixCode, &[u32; SYMBOLS]) {
        (&self.table, &self.code, &self.bits)
    }
}

/// Returns the symbol of an index in a table of `values` values.
#[inline(always)]
fn symbol(place: u64, values: usize) -> usize {
    if place < values as u64 { length(place) } else { ESCAPE }
}

/// Counts the symbols.
fn symbols<const N: usize>(places: &[[u64; N]], values: usize) -> [u64; SYMBOLS] {
    let mut counts = [0; SYMBOLS];
    places.iter().flatten().for_each(|&place| counts[symbol(place, values)] += 1);
    counts
}

/// Returns the code of all index lengths for `values` values, with an escape on request.
fn code(counts: &[u64; SYMBOLS], values: usize, escapes: bool) -> PrefixCode {
    let longest = length(values as u64 - 1);
    let has = |symbol: usize| symbol <= longest || symbol == ESCAPE && (escapes || longest == 0);
    PrefixCode::from_sparse_counts(&std::array::from_fn::<_, SYMBOLS, _>(|symbol| {
        has(symbol).then_some(counts[symbol])
    }))
}

/// Returns the code with which all indices into a table of `values` values take equally many bits;
/// `None` for a single value, or for codes over [`LONGEST`].
fn even_code(values: usize) -> Option<PrefixCode> {
    let longest = length(values as u64 - 1);
    let bits = |symbol: usize| if symbol > longest { 0 } else { (longest - symbol.saturating_sub(1)) as u8 };
    let fits = (1..=LONGEST as usize).contains(&longest);
    fits.then(|| PrefixCode::sparse(&std::array::from_fn::<_, SYMBOLS, _>(bits)).expect("a complete code"))
}

impl<const N: usize> fmt::Display for Rank<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values, coded", self.table.values().len())
    }
}

impl<const N: usize> EntryCodec for Rank<N> {
    fn max_bits(&self) -> u32 {
        RAW_BITS
    }

    fn parameter_bytes(&self) -> usize {
        self.table.parameter_bytes() + SYMBOLS
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        let bits = self.table.sum(entry, &self.lengths);
        if bits > CODED_BITS { RAW_BITS } else { bits }
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        if self.size_bits(entry) > CODED_BITS {
            stream.fill(Layout::B, RAW_BITS).copy_from_slice(entry);
            return;
        }
        let (numbers, words) = (self.table.indices(entry), words::split::<N>(entry));
        let mut writer = LsbWriter::new(stream);
        for (place, word) in numbers.into_iter().zip(words) {
            let symbol = if place == ABSENT { ESCAPE } else { length(place) };
            let (code, bits) = self.code.codes()[symbol];
            writer.put_short(code.into(), bits.into());
            if symbol == ESCAPE {
                writer.put(word, words::bits(N));
            } else if symbol > 1 {
                // The top bit of the index is implied.
                writer.put(place ^ 1 << (symbol - 1), symbol as u32 - 1);
            }
        }
        writer.finish();
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        match layout {
            Layout::A => {}
            Layout::B => {
                return stream.first_chunk().copied().ok_or(Error::Truncated { bits: 8 * stream.len() });
            }
            Layout::C => return Err(Error::Layout(layout)),
        }
        let mut reader = LsbReader::new(stream);
        let (mut words, mut absent) = ([0; N], 0u32);
        for (i, word) in words.iter_mut().enumerate() {
            let (symbol, bits) = self.code.symbols()[reader.peek() as usize % (1 << LONGEST)];
            reader.skip(bits.into())?;
            *word = match usize::from(symbol) {
                ESCAPE => {
                    absent |= 1 << i;
                    reader.take(words::bits(N))?
                }
                0 | 1 => symbol.into(),
                length => reader.take(length as u32 - 1)? | 1 << (length - 1),
            };
        }
        let values = self.table.values();
        for (_, word) in words.iter_mut().enumerate().filter(|(i, _)| absent >> i & 1 == 0) {
            let value = values.get(*word as usize);
            *word = *value.ok_or(Error::Invalid { at: 0, what: "index past the end of the table" })?;
        }
        Ok(words::join(&words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{samples::Noise, testing};

    /// Image levels as floats, all equally frequent: eight bits each.
    #[test]
    fn two_hundred_and_fifty_six_levels_take_a_sector() {
        let mut noise = Noise(1);
        let mut level = || (((noise.next() >> 20) % 256) as f32 / 255.0).to_le_bytes();
        let sample: Vec<Entry> =
            (0..4096).map(|_| testing::entry_of((0..32).map(|_| level()).collect::<Vec<_>>())).collect();
        let codec = Rank::<32>::train(&sample);
        assert!(sample.iter().all(|entry| codec.size_bits(entry) == 256), "{codec}");
        let table = Table::<32>::train(&sample);
        assert!(sample.iter().all(|entry| table.size_bits(entry) > 256));
    }

    /// Ten doubles, all equally frequent: four bits each, where Huffman's code takes 3.7 on average
    /// and two entries of five miss 8 bytes.
    #[test]
    fn up_to_sixteen_doubles_take_eight_bytes() {
        let mut noise = Noise(3);
        for values in [9, 10, 16] {
            let mut value = || f64::to_le_bytes(0.1 * ((noise.next() >> 20) % values) as f64 + 0.1);
            let sample: Vec<Entry> =
                (0..4096).map(|_| testing::entry_of((0..16).map(|_| value()).collect::<Vec<_>>())).collect();
            let codec = Rank::<16>::train(&sample[..1024]);
            assert!(sample.iter().all(|entry| codec.size_bits(entry) <= 64), "{values}: {codec}");
        }
    }

    /// Two thirds of the words are one of four values, the others one of a thousand.
    #[test]
    fn frequent_values_take_fewer_bits() {
        let mut noise = Noise(2);
        let mut value = || {
            let number = noise.next() >> 16;
            f64::to_le_bytes(
                0.1 * if number.is_multiple_of(3) { number / 3 % 1000 } else { number / 3 % 4 } as f64,
            )
        };
        let sample: Vec<Entry> =
            (0..4096).map(|_| testing::entry_of((0..16).map(|_| value()).collect::<Vec<_>>())).collect();
        let codec = Rank::<16>::train(&sample);
        let mean = sample.iter().map(|entry| codec.size_bits(entry)).sum::<u32>() / 4096;
        assert!(mean < 16 * 7, "{mean} bits with {codec}");
    }

    #[test]
    fn invalid_parameters_are_refused() {
        for (code, what) in [
            ("11", "17 hex digits"),
            ("10000000000000000", "no complete"),
            ("b1000000000000001", "no complete"),
        ] {
            let learned = Parameters { values: "3f800000".into(), code: code.into() };
            assert!(Rank::<32>::try_from(learned).unwrap_err().to_string().contains(what), "{code}");
        }
        let learned = Parameters { values: "3f8000".into(), code: "10000000000000001".into() };
        assert!(Rank::<32>::try_from(learned).is_err());
    }
}
