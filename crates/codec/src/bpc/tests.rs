use proptest::prelude::*;

use super::*;
use crate::testing::{self, entry_of, stream_of};

fn encode(words: [u32; 32]) -> (u32, Vec<u8>) {
    stream_of(&Bpc, &entry_of(words.map(u32::to_le_bytes)))
}

/// `000`, then one run of 33 zero planes: `01 11111`.
#[test]
fn zeros_take_ten_bits() {
    assert_eq!(encode([0; 32]), (10, vec![0b0000_1111, 0b1100_0000]));
}

/// `1` and the word, then the run.
#[test]
fn one_repeated_wide_word_takes_forty_bits() {
    assert_eq!(encode([0xdead_beef; 32]), (40, vec![0xef, 0x56, 0xdf, 0x77, 0b1011_1111]));
}

/// Differences of 1: plane 0 is all ones, the planes above it zero. `000`, a run of 32, `00000`.
#[test]
fn a_ramp_is_one_plane_of_ones() {
    assert_eq!(encode(std::array::from_fn(|i| i as u32)), (15, vec![0b0000_1111, 0b1000_0000]));
}

/// One difference of -1, then one of +1. All planes are equal, so only the top XOR is not zero: bit
/// i in all planes, bit i+1 in plane 0.
#[test]
fn signed_differences_reach_the_top_plane() {
    let mut words = [7; 32];
    words[9] = 6;
    // Base 7 in 4 bits is -8..7: `001 0111`. Plane 32 = bit 8: `00011 01000`. A run of 31. Plane 0
    // adds bit 9.
    let (bits, _) = encode(words);
    assert_eq!(bits, 7 + 10 + 7 + 10);
}

#[test]
fn invalid_codes_are_errors() {
    // Base 0, then `00011` with index 31.
    let stream = [0b0000_0011, 0b1111_1000, 0, 0, 0];
    assert!(matches!(Bpc.decode(&stream, Layout::A), Err(Error::Invalid { at: 3, .. })));
    // Base 0, then `001` and a run of 33 with only 32 planes left.
    let stream = [0b0000_0101, 0b1111_1000];
    assert!(matches!(Bpc.decode(&stream, Layout::A), Err(Error::Invalid { at: 6, .. })));
    assert_eq!(Bpc.decode(&[0; 40], Layout::B), Err(Error::Layout(Layout::B)));
}

#[test]
fn fast_equals_reference() {
    testing::contract(&reference::Reference, &testing::samples());
    testing::twins(&reference::Reference, &Bpc, &testing::samples());
}

proptest! {
    #[test]
    fn fast_equals_reference_on_any_data(entry in testing::entries()) {
        testing::twins(&reference::Reference, &Bpc, &[entry]);
    }
}
