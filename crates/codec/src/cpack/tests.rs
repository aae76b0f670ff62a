use buddy_core::Layout;

use super::*;
use crate::{
    EntryCodec, Stream,
    testing::{entry_of, hex, stream_of},
};

fn encode(words: [u32; 32]) -> (u32, Vec<u8>) {
    stream_of(&Cpack, &entry_of(words.map(u32::to_le_bytes)))
}

/// `00` for each word.
#[test]
fn zeros_take_two_bits_a_word() {
    assert_eq!(encode([0; 32]), (64, vec![0; 8]));
}

/// `01` and the word, then `10 0000` for each of the others.
#[test]
fn a_repeated_word_is_written_once() {
    let (bits, stream) = encode([0xdead_beef; 32]);
    assert_eq!(bits, 34 + 31 * 6);
    assert_eq!(stream[..8], hex("77ab6fbbe0820820"));
}

/// Each code once, in the order in which they first become possible.
#[test]
fn every_pattern_has_its_code() {
    let mut words = [0; 32];
    words[..7].copy_from_slice(&[
        0x1234_5678, // xxxx, into slot 0
        0x1234_5699, // mmmx of slot 0, into slot 1
        0x1234_aaaa, // mmxx of slot 0, into slot 2
        0x0000_00bb, // zzzx
        0x1234_5699, // mmmm of slot 1
        0x1234_aacc, // mmmx of slot 2, though slots 0 and 1 begin with the same two bytes; into slot 3
        0x0000_00bb, // zzzx again: it is not in the dictionary
    ]);
    let mut expected = Stream::default();
    expected.put(0b01, 2);
    expected.put(0x1234_5678, 32);
    expected.put(0b1110_0000_1001_1001, 16);
    expected.put(0b1100_0000, 8);
    expected.put(0xaaaa, 16);
    expected.put(0b1101_1011_1011, 12);
    expected.put(0b10_0001, 6);
    expected.put(0b1110_0010_1100_1100, 16);
    expected.put(0b1101_1011_1011, 12);
    expected.put(0, 50);
    assert_eq!(encode(words), (expected.bits(), expected.bytes().to_vec()));
}

/// The seventeenth word replaces the oldest, in slot 0.
#[test]
fn the_oldest_word_is_replaced() {
    let word = |i: u32| (i + 1) << 16 | 0x0100;
    let mut words = [0; 32];
    for i in 0..17 {
        words[i as usize] = word(i);
    }
    words[17] = word(0); // replaced
    words[18] = word(16); // in slot 0; `word(0)` is now in slot 1
    words[19] = word(2);
    let (bits, stream) = encode(words);
    assert_eq!(bits, 18 * 34 + 2 * 6 + 12 * 2);
    let mut reader = BitReader::new(&stream);
    for _ in 0..18 {
        assert_eq!(reader.take(2), Ok(0b01));
        reader.take(32).unwrap();
    }
    assert_eq!((reader.take(6), reader.take(6)), (Ok(0b10_0000), Ok(0b10_0010)));
}

#[test]
fn invalid_codes_are_errors() {
    assert!(matches!(Cpack.decode(&[0b0011_1100; 136], Layout::A), Err(Error::Invalid { at: 2, .. })));
    // `10` with slot 0 while the dictionary is empty.
    assert!(matches!(Cpack.decode(&[0b1000_0000; 136], Layout::A), Err(Error::Invalid { at: 0, .. })));
    assert_eq!(Cpack.decode(&[0; 40], Layout::B), Err(Error::Layout(Layout::B)));
}
