//! Table lookup of all words of an entry at once, with gathers.

use buddy_core::Entry;

use super::Lengths;
#[cfg(target_arch = "x86_64")]
use super::sum_of_lengths;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

/// A word of 32 or 64 bits.
pub(crate) trait Word: Copy + PartialOrd + Into<u64> {
    /// Bits of the word.
    const BITS: u32;

    /// Truncates a number to a word.
    fn of(number: u64) -> Self;

    /// Splits an entry into words.
    fn split<const N: usize>(entry: &Entry) -> [Self; N];

    /// Hashes to a word of the same size; invertible.
    fn hash(self, multiplier: u64) -> Self;

    /// Scalar version of [`look_up`] for one word.
    fn find(self, table: &Lookup<'_, Self>) -> Self;

    /// AVX2 version of [`look_up`].
    ///
    /// # Safety
    /// The CPU must have AVX2, and the table must be [valid](Lookup::is_valid).
    #[cfg(target_arch = "x86_64")]
    unsafe fn find_avx2(entry: &Entry, table: &Lookup<'_, Self>) -> Found;

    /// Counts the results that are at least `first`.
    ///
    /// # Safety
    /// The CPU must have AVX2 and POPCNT.
    #[cfg(target_arch = "x86_64")]
    unsafe fn count_avx2(found: &Found, first: u64) -> u32;

    /// AVX-512 version of [`look_up`].
    ///
    /// # Safety
    /// The CPU must have AVX-512 F and DQ, and the table must be [valid](Lookup::is_valid).
    #[cfg(target_arch = "x86_64")]
    unsafe fn find_avx512(entry: &Entry, table: &Lookup<'_, Self>) -> Found;

    /// Counts the results that are at least `first`.
    ///
    /// # Safety
    /// The CPU must have AVX-512.
    #[cfg(target_arch = "x86_64")]
    unsafe fn count_avx512(found: &Found, first: u64) -> u32;
}

/// Lookup results for the words of an entry, in order.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
#[cfg(target_arch = "x86_64")]
pub(crate) struct Found(Entry);

/// A perfect hash table. The top bits of a hash select a bucket, whose displacement maps the low
/// bits to a slot. The slot holds the remaining hash bits, with the result in place of the low
/// bits.
pub(crate) struct Lookup<'a, W> {
    /// Multiplier of the hash.
    pub(crate) multiplier: u64,
    /// One per value of the top bits, and [`PADDING`] more, so that eight bytes can be read from
    /// each.
    pub(crate) buckets: &'a [u16],
    /// Slots; the length is a power of two.
    pub(crate) slots: &'a [W],
}

/// Padding elements after the buckets.
pub(crate) const PADDING: usize = 3;

impl<W: Word> Lookup<'_, W> {
    /// Returns the shift that leaves the bucket bits.
    #[inline(always)]
    fn shift(&self) -> u32 {
        W::BITS - (self.buckets.len() - PADDING).ilog2()
    }

    /// Returns whether every hash has a bucket and a slot.
    #[inline(always)]
    fn is_valid(&self) -> bool {
        self.buckets.len() > PADDING + 1 && self.slots.len().is_power_of_two()
    }
}

/// A decision based on how many results reach a limit.
pub(crate) trait Choice {
    /// Decides; `from(limit)` counts the results that are at least `limit`.
    fn choose(&self, from: impl Fn(u64) -> u32) -> u32;
}

/// Returns the slot result of each word in the table; for other words a number of at least half the
/// slots.
#[inline(always)]
pub(crate) fn look_up<W: Word, const N: usize>(entry: &Entry, table: &Lookup<'_, W>) -> [W; N] {
    assert!(table.is_valid(), "needs a bucket per hash prefix and a power of two of slots");
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the CPU has AVX-512, and the table is valid.
        return W::split(&unsafe { W::find_avx512(entry, table) }.0);
    }
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the CPU has AVX2, and the table is valid.
        return W::split(&unsafe { W::find_avx2(entry, table) }.0);
    }
    look_up_portable(entry, table)
}

/// Returns the total code bits of the lookup results.
#[inline(always)]
pub(crate) fn look_up_and_sum<W: Word, const N: usize>(
    entry: &Entry,
    table: &Lookup<'_, W>,
    lengths: &Lengths,
) -> u32 {
    assert!(table.is_valid(), "needs a bucket per hash prefix and a power of two of slots");
    let one_by_one =
        |found: [W; N]| found.iter().map(|&number| lengths.of_word(number.into(), W::BITS)).sum();
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the CPU has AVX-512, and the table is valid.
        let found = unsafe { W::find_avx512(entry, table) }.0;
        return sum_of_lengths::<N>(&found, lengths).unwrap_or_else(|| one_by_one(W::split(&found)));
    }
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the CPU has AVX2, and the table is valid.
        let found = unsafe { W::find_avx2(entry, table) }.0;
        return sum_of_lengths::<N>(&found, lengths).unwrap_or_else(|| one_by_one(W::split(&found)));
    }
    one_by_one(look_up_portable(entry, table))
}

/// Evaluates `choice` on the lookup results, which stay in registers.
#[inline(always)]
pub(crate) fn look_up_and_choose<W: Word, const N: usize>(
    entry: &Entry,
    table: &Lookup<'_, W>,
    choice: &impl Choice,
) -> u32 {
    assert!(table.is_valid(), "needs a bucket per hash prefix and a power of two of slots");
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the CPU has AVX-512, and the table is valid.
        let found = unsafe { W::find_avx512(entry, table) };
        // SAFETY: the CPU has AVX-512.
        return choice.choose(
            #[inline(always)]
            |first| unsafe { W::count_avx512(&found, first) },
        );
    }
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the CPU has AVX2, and the table is valid.
        let found = unsafe { W::find_avx2(entry, table) };
        // SAFETY: the CPU has AVX2 and POPCNT.
        return choice.choose(
            #[inline(always)]
            |first| unsafe { W::count_avx2(&found, first) },
        );
    }
    choose_portable::<W, N>(entry, table, choice)
}

/// Every CPU with AVX-512 has POPCNT, which the counts use.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq")
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt")
}

/// Scalar version. Not inlined, so that the compiler does not hoist its set-up into the vector
/// path.
#[inline(never)]
fn look_up_portable<W: Word, const N: usize>(entry: &Entry, table: &Lookup<'_, W>) -> [W; N] {
    W::split(entry).map(|word: W| word.find(table))
}

#[inline(never)]
fn choose_portable<W: Word, const N: usize>(
    entry: &Entry,
    table: &Lookup<'_, W>,
    choice: &impl Choice,
) -> u32 {
    let found: [W; N] = look_up_portable(entry, table);
    choice.choose(|first| found.iter().map(|&number| u32::from(number.into() >= first)).sum())
}

macro_rules! word {
    ($word:ident) => {
        impl Word for $word {
            const BITS: u32 = <$word>::BITS;

            #[inline(always)]
            fn of(number: u64) -> Self {
                number as Self
            }

            #[inline(always)]
            fn split<const N: usize>(entry: &Entry) -> [Self; N] {
                let mut words = [0; N];
                let bytes = entry.as_chunks().0;
                words.iter_mut().zip(bytes).for_each(|(word, &bytes)| *word = Self::from_le_bytes(bytes));
                words
            }

            #[inline(always)]
            fn hash(self, multiplier: u64) -> Self {
                let half = Self::BITS / 2;
                let product = (self ^ self >> half).wrapping_mul(multiplier as Self);
                product ^ product >> half
            }

            #[inline(always)]
            fn find(self, table: &Lookup<'_, Self>) -> Self {
                let (hash, low) = (Word::hash(self, table.multiplier), table.slots.len() - 1);
                let bucket = table.buckets[(hash >> table.shift()) as usize];
                table.slots[(hash as usize ^ usize::from(bucket)) & low] ^ (hash & !(low as Self))
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn find_avx2(entry: &Entry, table: &Lookup<'_, Self>) -> Found {
                // SAFETY: the caller guarantees AVX2 and a valid table.
                unsafe { avx2::$word::find(entry, table) }
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn count_avx2(found: &Found, first: u64) -> u32 {
                // SAFETY: the caller guarantees AVX2 and POPCNT.
                unsafe { avx2::$word::count_from(found, first as Self) }
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn find_avx512(entry: &Entry, table: &Lookup<'_, Self>) -> Found {
                // SAFETY: the caller guarantees AVX-512 and a valid table.
                unsafe { avx512::$word::find(entry, table) }
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn count_avx512(found: &Found, first: u64) -> u32 {
                // SAFETY: the caller guarantees AVX-512.
                unsafe { avx512::$word::count_from(found, first as Self) }
            }
        }
    };
}

word!(u32);
word!(u64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Noise, fill};
    #[cfg(target_arch = "x86_64")]
    use crate::simd::lengths::sum_with_avx2;

    /// Counts the results from one limit on.
    struct CountFrom(u64);

    impl Choice for CountFrom {
        #[inline(always)]
        fn choose(&self, from: impl Fn(u64) -> u32) -> u32 {
            from(self.0)
        }
    }

    /// Compares vector and scalar lookups on arbitrary tables.
    fn compare<W: Word + std::fmt::Debug, const N: usize>(slots: usize) {
        let mut noise = Noise(slots as u64);
        let buckets: Vec<u16> = (0..slots / 8 + PADDING).map(|_| noise.next() as u16).collect();
        let slots: Vec<W> = (0..slots).map(|_| W::of(noise.next())).collect();
        let table = Lookup { multiplier: noise.next() | 1, buckets: &buckets, slots: &slots };
        for round in 0..100 {
            let entry = fill(|_| if round < 2 { [0xff * round; 8] } else { noise.next().to_le_bytes() });
            let found: [W; N] = look_up_portable(&entry, &table);
            assert_eq!(look_up::<W, N>(&entry, &table), found);
            #[cfg(target_arch = "x86_64")]
            if has_avx2() {
                // SAFETY: the CPU has AVX2, and the table is valid.
                let words = unsafe { W::find_avx2(&entry, &table) };
                assert_eq!(W::split::<N>(&words.0), found);
            }
            let some = [found[3].into(), found[7].into(), 0, 1, W::of(u64::MAX).into(), slots.len() as u64];
            for first in some {
                let counted = choose_portable::<W, N>(&entry, &table, &CountFrom(first));
                assert_eq!(look_up_and_choose::<W, N>(&entry, &table, &CountFrom(first)), counted);
                #[cfg(target_arch = "x86_64")]
                if has_avx2() {
                    // SAFETY: the CPU has AVX2, and the table is valid.
                    let found = unsafe { W::count_avx2(&W::find_avx2(&entry, &table), first) };
                    assert_eq!(found, counted);
                }
            }
        }
    }

    /// Compares sums with the widest vectors and with AVX2 against scalar lookups.
    fn compare_sums<W: Word, const N: usize>() {
        let mut noise = Noise(3);
        let buckets: Vec<u16> = (0..8 + PADDING).map(|_| noise.next() as u16).collect();
        let slots: Vec<W> = (0..64).map(|_| W::of(noise.next() >> (noise.next() % 64))).collect();
        let table = Lookup { multiplier: noise.next() | 1, buckets: &buckets, slots: &slots };
        let bits: Vec<u16> = (0..=W::BITS).map(|_| noise.next() as u16 % 1025).collect();
        let lengths = Lengths::new::<N>(0, 1, [&bits, &bits]);
        for round in 0..200 {
            let entry = fill(|_| if round < 2 { [0xff * round; 8] } else { noise.next().to_le_bytes() });
            let found: [W; N] = look_up_portable(&entry, &table);
            let length = |number: W| 64 - Into::<u64>::into(number).leading_zeros() as usize;
            let sum: u32 = found.iter().map(|&number| u32::from(bits[length(number)])).sum();
            assert_eq!(look_up_and_sum::<W, N>(&entry, &table, &lengths), sum);
            assert_eq!(found.iter().map(|&number| lengths.of_word(number.into(), W::BITS)).sum::<u32>(), sum);
            #[cfg(target_arch = "x86_64")]
            if has_avx2() {
                // SAFETY: the CPU has AVX2, and the table is valid.
                let with_avx2 = unsafe { sum_with_avx2::<N>(&W::find_avx2(&entry, &table).0, &lengths) };
                assert_eq!(with_avx2, sum, "AVX2");
            }
        }
    }

    #[test]
    fn sums_equal_those_of_scalar_lookups() {
        compare_sums::<u32, 32>();
        compare_sums::<u64, 16>();
    }

    #[test]
    fn vector_lookups_equal_scalar_ones() {
        for slots in [64, 256, 65536] {
            compare::<u32, 32>(slots);
            compare::<u64, 16>(slots);
        }
    }

    #[test]
    fn no_two_words_have_the_same_hash() {
        let words = (0..1u32 << 16).flat_map(|word| [word, word << 16]);
        let mut hashes: Vec<u32> = words.map(|word| Word::hash(word, 0x9e37_79b1)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), (1 << 17) - 1, "only 0 occurs twice");
    }
}
