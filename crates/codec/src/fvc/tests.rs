use buddy_core::{Layout, ZERO_ENTRY};

use super::*;
use crate::{
    EntryCodec,
    testing::{entry_of, hex, stream_of},
};

fn entry(words: [u32; 32]) -> Entry {
    entry_of(words.map(u32::to_le_bytes))
}

/// Three values, 2-bit codes: `00`, `01`, `10`; `11` and the word for anything else.
#[test]
fn hits_are_codes_and_misses_escapes() {
    let codec = Fvc::new(vec![0, 0xffff_ffff, 0x3f80_0000]).unwrap();
    let mut words = [0; 32];
    words[..4].copy_from_slice(&[0xffff_ffff, 0x3f80_0000, 0xdead_beef, 0]);
    let expected = hex(&format!("6f7ab6fbbc{}", "0".repeat(14)));
    assert_eq!(stream_of(&codec, &entry(words)), (31 * 2 + 34, expected));
}

#[test]
fn a_code_is_wide_enough_for_the_values_and_the_escape() {
    let widths =
        [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4), (15, 4), (127, 7), (128, 8), (255, 8)];
    for (len, width) in widths {
        let codec = Fvc::new((0..len).collect()).unwrap();
        assert_eq!((codec.width(), codec.parameter_bytes()), (width, 4 * len as usize));
    }
}

#[test]
fn a_table_has_at_most_255_different_values() {
    assert_eq!(Fvc::new((0..256).collect()), Err(Error::Table { values: 256 }));
    assert_eq!(Fvc::new(vec![4, 5, 4]), Err(Error::Table { values: 3 }));
}

/// 8 is the most frequent; 3, 5 and 7 tie, so the smaller come first. A fourth value would need
/// 3-bit codes: 32 more bits for codes and 32 for the table, to save 6 times 32.
#[test]
fn the_most_frequent_values_win_and_ties_go_to_the_smaller() {
    let words =
        std::array::from_fn(|i| if i < 14 { 8 } else { [5, 3, 7].get((i - 14) / 6).copied().unwrap_or(8) });
    assert_eq!(Fvc::train(&[entry(words)]).values(), [8, 3, 5, 7]);
}

/// A sample of one entry whose words all differ: a table would only repeat them.
#[test]
fn a_table_that_does_not_pay_stays_small() {
    let codec = Fvc::train(&[entry(std::array::from_fn(|i| i as u32 * 0x0101_0101))]);
    assert_eq!(codec.values(), [0]);
    assert_eq!(Fvc::train(&[]).values(), [0u32; 0]);
}

#[test]
fn a_trained_table_survives_serialization() {
    let codec = Fvc::new(vec![7, 0, 9]).unwrap();
    let text = serde_json::to_string(&codec).unwrap();
    assert_eq!(text, r#"{"values":[7,0,9]}"#);
    assert_eq!(serde_json::from_str::<Fvc>(&text).unwrap(), codec);
    let error = serde_json::from_str::<Fvc>(r#"{"values":[7,7]}"#).unwrap_err();
    assert!(error.to_string().contains("limit is 255"), "{error}");
}

#[test]
fn a_code_past_the_table_is_an_error() {
    let codec = Fvc::new(vec![1, 2]).unwrap();
    assert!(matches!(codec.decode(&[0b0010_0000; 8], Layout::A), Err(Error::Invalid { at: 2, .. })));
    assert_eq!(codec.decode(&[0; 40], Layout::B), Err(Error::Layout(Layout::B)));
}

#[test]
fn zeros_take_one_code_per_word() {
    let codec = Fvc::train(&[ZERO_ENTRY]);
    assert_eq!((codec.values(), codec.size_bits(&ZERO_ENTRY)), (&[0][..], 32));
    assert_eq!(Fvc::new(vec![]).unwrap().size_bits(&ZERO_ENTRY), 32 * 33);
}
