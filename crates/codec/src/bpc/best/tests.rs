use proptest::prelude::*;

use super::*;
use crate::{
    Bpc,
    testing::{self, entry_of, stream_of},
};

fn encode(words: [u32; 32]) -> (u32, Vec<u8>) {
    stream_of(&BpcBest, &entry_of(words.map(u32::to_le_bytes)))
}

/// The flag, then one run of 32 zero words: `1 01 11110`. Transformed it would take 10 bits.
#[test]
fn zeros_take_eight_bits() {
    assert_eq!(encode([0; 32]), (8, vec![0b1011_1110]));
}

/// Zero words with one value in between: `1`, a run of 9 `01 00111`, `1` and the word, and a run of
/// 22 `01 10100`.
#[test]
fn a_lone_value_among_zeros_is_kept_untransformed() {
    let mut words = [0; 32];
    words[9] = 0xdead_beef;
    assert_eq!(encode(words).0, 1 + 7 + 33 + 7);
}

/// `1`, all ones `00000`, one bit `00011 11111`, two adjacent bits `00010 11110`, a lone zero
/// `001`, then 28 words of noise in 33 bits each.
#[test]
fn short_words_take_their_codes() {
    let mut words: [u32; 32] = std::array::from_fn(|i| (i as u32).pow(3).wrapping_mul(0x9e37_79b1));
    (words[0], words[1], words[2], words[3]) = (u32::MAX, 1 << 31, 3 << 30, 0);
    let (bits, stream) = encode(words);
    assert_eq!(bits, 1 + 5 + 10 + 10 + 3 + 28 * 33);
    assert_eq!(&stream[..3], [0b1000_0000, 0b0111_1111, 0b0001_0111]);
    assert_eq!(stream[3] >> 2, 0b10_0011, "the end of the pair's index, 001, and an uncompressed word");
}

/// A ramp stays transformed: the flag `0` and BPC's 15 bits.
#[test]
fn a_ramp_is_kept_transformed() {
    let ramp: [u32; 32] = std::array::from_fn(|i| i as u32);
    assert_eq!(encode(ramp), (16, vec![0b0000_0111, 0b1100_0000]));
}

#[test]
fn invalid_codes_are_errors() {
    // `1 00010` with index 31, `1 00001`, and `1 001` with a run of 32 after it.
    for (stream, at) in [([0x8b, 0xe0, 0, 0], 1), ([0x84, 0, 0, 0], 1), ([0b1001_0111, 0b1100_0000, 0, 0], 4)]
    {
        let error = BpcBest.decode(&stream, Layout::A);
        assert!(matches!(error, Err(Error::Invalid { at: found, .. }) if found == at), "{error:?}");
    }
    assert_eq!(BpcBest.decode(&[0; 40], Layout::B), Err(Error::Layout(Layout::B)));
}

#[test]
fn fast_equals_reference() {
    testing::contract(&reference::Reference, &testing::samples());
    testing::twins(&reference::Reference, &BpcBest, &testing::samples());
}

#[test]
fn at_most_one_bit_longer_than_bpc() {
    for entry in testing::samples() {
        assert!(BpcBest.size_bits(&entry) <= 1 + Bpc.size_bits(&entry));
    }
}

proptest! {
    #[test]
    fn fast_equals_reference_on_any_data(entry in testing::entries()) {
        testing::twins(&reference::Reference, &BpcBest, &[entry]);
    }

    #[test]
    fn fast_equals_reference_on_short_words(
        words in proptest::collection::vec(prop_oneof![
            Just(0u32), Just(u32::MAX), (0u32..32).prop_map(|i| 1 << i), (0u32..32).prop_map(|i| 3 << i), any::<u32>(),
        ], 32),
    ) {
        let words: [u32; 32] = words.try_into().unwrap();
        testing::twins(&reference::Reference, &BpcBest, &[entry_of(words.map(u32::to_le_bytes))]);
    }
}
