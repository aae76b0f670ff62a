//! All words of an entry looked up in a table at once, with loads from many places in one instruction.

use buddy_core::Entry;

use super::{Lengths, sum_of_lengths};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

/// A word of 32 or 64 bits.
pub(crate) trait Word: Copy + PartialOrd + Into<u64> {
    /// Its bits.
    const BITS: u32;

    /// The low bits of a number.
    fn of(number: u64) -> Self;

    /// The words of an entry.
    fn split<const N: usize>(entry: &Entry) -> [Self; N];

    /// A word of the same size for every word: shifts and one product, all of which can be undone.
    fn hash(self, multiplier: u64) -> Self;

    /// What [`look_up`] gives for one word.
    fn find(self, table: &Lookup<'_, Self>) -> Self;

    /// What [`look_up`] finds.
    ///
    /// # Safety
    /// The machine has AVX2, and the table is [whole](Lookup::is_whole).
    #[cfg(target_arch = "x86_64")]
    unsafe fn find_avx2(entry: &Entry, table: &Lookup<'_, Self>) -> Found;

    /// How many of them are not below a number.
    ///
    /// # Safety
    /// The machine has AVX2 and POPCNT.
    #[cfg(target_arch = "x86_64")]
    unsafe fn count_avx2(found: &Found, first: u64) -> u32;

    /// What [`look_up`] finds.
    ///
    /// # Safety
    /// The machine has AVX-512 with its DQ instructions, and the table is [whole](Lookup::is_whole).
    #[cfg(target_arch = "x86_64")]
    unsafe fn find_avx512(entry: &Entry, table: &Lookup<'_, Self>) -> Found;

    /// How many of them are not below a number.
    ///
    /// # Safety
    /// The machine has AVX-512.
    #[cfg(target_arch = "x86_64")]
    unsafe fn count_avx512(found: &Found, first: u64) -> u32;
}

/// What was found for the words of an entry, one after the other.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Found(Entry);

/// Where words are looked up: the top bits of a word's hash name a bucket, whose number turns the low bits into the place of a
/// slot. The slot holds the other bits of the hash that it is for, and in place of the low ones what was asked for.
pub(crate) struct Lookup<'a, W> {
    /// What the hash multiplies with.
    pub(crate) multiplier: u64,
    /// One for each value of the top bits, and [`PADDING`] more, so that eight bytes can be read from each.
    pub(crate) buckets: &'a [u16],
    /// A power of two of them.
    pub(crate) slots: &'a [W],
}

/// Numbers after those of the buckets.
pub(crate) const PADDING: usize = 3;

impl<W: Word> Lookup<'_, W> {
    /// Top bits that name a bucket, as the shift that leaves them.
    #[inline(always)]
    fn shift(&self) -> u32 {
        W::BITS - (self.buckets.len() - PADDING).ilog2()
    }

    /// Whether every hash has its bucket and its slot.
    #[inline(always)]
    fn is_whole(&self) -> bool {
        self.buckets.len() > PADDING + 1 && self.slots.len().is_power_of_two()
    }
}

/// What follows from how many numbers are not below some others.
pub(crate) trait Choice {
    /// What it is, of numbers that `from` counts from a number on.
    fn choose(&self, from: impl Fn(u64) -> u32) -> u32;
}

/// What the slot of each word holds where it is for this word; otherwise a number that is not below half of the slots.
#[inline(always)]
pub(crate) fn look_up<W: Word, const N: usize>(entry: &Entry, table: &Lookup<'_, W>) -> [W; N] {
    assert!(table.is_whole(), "a bucket for every hash, and a power of two of slots");
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the machine has AVX-512, and the table is whole.
        return W::split(&unsafe { W::find_avx512(entry, table) }.0);
    }
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the machine has AVX2, and the table is whole.
        return W::split(&unsafe { W::find_avx2(entry, table) }.0);
    }
    look_up_portable(entry, table)
}

/// What the numbers that [`look_up`] finds take in all, each by its length.
#[inline(always)]
pub(crate) fn look_up_and_sum<W: Word, const N: usize>(
    entry: &Entry,
    table: &Lookup<'_, W>,
    lengths: &Lengths,
) -> u32 {
    assert!(table.is_whole(), "a bucket for every hash, and a power of two of slots");
    let one_by_one =
        |found: [W; N]| found.iter().map(|&number| lengths.of_word(number.into(), W::BITS)).sum();
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the machine has AVX-512, and the table is whole.
        let found = unsafe { W::find_avx512(entry, table) }.0;
        return sum_of_lengths::<N>(&found, lengths).unwrap_or_else(|| one_by_one(W::split(&found)));
    }
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the machine has AVX2, and the table is whole.
        let found = unsafe { W::find_avx2(entry, table) }.0;
        return sum_of_lengths::<N>(&found, lengths).unwrap_or_else(|| one_by_one(W::split(&found)));
    }
    one_by_one(look_up_portable(entry, table))
}

/// What follows from the numbers that [`look_up`] finds, which stay in registers.
#[inline(always)]
pub(crate) fn look_up_and_choose<W: Word, const N: usize>(
    entry: &Entry,
    table: &Lookup<'_, W>,
    choice: &impl Choice,
) -> u32 {
    assert!(table.is_whole(), "a bucket for every hash, and a power of two of slots");
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the machine has AVX-512, and the table is whole.
        let found = unsafe { W::find_avx512(entry, table) };
        // SAFETY: the machine has AVX-512.
        return choice.choose(
            #[inline(always)]
            |first| unsafe { W::count_avx512(&found, first) },
        );
    }
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the machine has AVX2, and the table is whole.
        let found = unsafe { W::find_avx2(entry, table) };
        // SAFETY: the machine has AVX2 and POPCNT.
        return choice.choose(
            #[inline(always)]
            |first| unsafe { W::count_avx2(&found, first) },
        );
    }
    choose_portable::<W, N>(entry, table, choice)
}

/// No machine has AVX-512 without POPCNT, which counts are taken with.
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

/// One by one. Not inlined: beside the others the compiler would prepare for it, entry by entry.
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
                // SAFETY: the caller says that the machine has AVX2 and that the table is whole.
                unsafe { avx2::$word::find(entry, table) }
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn count_avx2(found: &Found, first: u64) -> u32 {
                // SAFETY: the caller says that the machine has AVX2 and POPCNT.
                unsafe { avx2::$word::count_from(found, first as Self) }
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn find_avx512(entry: &Entry, table: &Lookup<'_, Self>) -> Found {
                // SAFETY: the caller says that the machine has AVX-512 and that the table is whole.
                unsafe { avx512::$word::find(entry, table) }
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn count_avx512(found: &Found, first: u64) -> u32 {
                // SAFETY: the caller says that the machine has AVX-512.
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

    /// Counts from one number on.
    struct CountFrom(u64);

    impl Choice for CountFrom {
        #[inline(always)]
        fn choose(&self, from: impl Fn(u64) -> u32) -> u32 {
            from(self.0)
        }
    }

    /// Any table at all: what it means is another matter.
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
                // SAFETY: the machine has AVX2, and the table is whole.
                let words = unsafe { W::find_avx2(&entry, &table) };
                assert_eq!(W::split::<N>(&words.0), found);
            }
            let some = [found[3].into(), found[7].into(), 0, 1, W::of(u64::MAX).into(), slots.len() as u64];
            for first in some {
                let counted = choose_portable::<W, N>(&entry, &table, &CountFrom(first));
                assert_eq!(look_up_and_choose::<W, N>(&entry, &table, &CountFrom(first)), counted);
                #[cfg(target_arch = "x86_64")]
                if has_avx2() {
                    // SAFETY: the machine has AVX2, and the table is whole.
                    let found = unsafe { W::count_avx2(&W::find_avx2(&entry, &table), first) };
                    assert_eq!(found, counted);
                }
            }
        }
    }

    /// Sums of ranks, by whatever the machine has and by AVX2 alone, against numbers that are found and looked up one by one.
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
                // SAFETY: the machine has AVX2, and the table is whole.
                let with_avx2 = unsafe { sum_with_avx2::<N>(&W::find_avx2(&entry, &table).0, &lengths) };
                assert_eq!(with_avx2, sum, "AVX2");
            }
        }
    }

    #[test]
    fn sums_are_those_of_what_is_found() {
        compare_sums::<u32, 32>();
        compare_sums::<u64, 16>();
    }

    #[test]
    fn all_at_once_is_one_by_one() {
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
        assert_eq!(hashes.len(), (1 << 17) - 1, "nothing but 0 is there twice");
    }
}
