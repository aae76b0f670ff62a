use buddy_core::Layout;

use super::*;
use crate::{
    EntryCodec, Stream,
    testing::{entry_of, hex, stream_of},
};

fn encode(words: [u32; 32]) -> (u32, Vec<u8>) {
    stream_of(&Fpc, &entry_of(words.map(u32::to_le_bytes)))
}

/// Four runs of eight: `000 111` each.
#[test]
fn zeros_take_four_runs() {
    assert_eq!(encode([0; 32]), (24, hex("1c71c7")));
}

/// The first word in each pattern, and its payload. The other 31 are zero: runs of 8, 8, 8 and 7.
#[test]
fn every_pattern_has_its_prefix_and_payload() {
    let cases = [
        (0x0000_0007, 0b001, 0x7, 4),
        (0xffff_fff8, 0b001, 0x8, 4),
        (0x0000_0008, 0b010, 0x08, 8),
        (0xffff_ff80, 0b010, 0x80, 8),
        (0x4040_4040, 0b110, 0x40, 8),
        (0x0000_0080, 0b011, 0x0080, 16),
        (0xffff_8000, 0b011, 0x8000, 16),
        (0x3f80_0000, 0b100, 0x3f80, 16),
        (0x8000_0000, 0b100, 0x8000, 16),
        (0x007f_ff80, 0b101, 0x7f80, 16),
        (0xff80_0001, 0b101, 0x8001, 16),
        (0xdead_beef, 0b111, 0xdead_beef, 32),
        (0x0080_0001, 0b111, 0x0080_0001, 32),
    ];
    for (word, prefix, data, bits) in cases {
        let mut words = [0; 32];
        words[0] = word;
        let mut expected = Stream::default();
        expected.put(prefix, 3);
        expected.put(data, bits);
        for run in [7, 7, 7, 6] {
            expected.put(run, 6);
        }
        assert_eq!(encode(words), (expected.bits(), expected.bytes().to_vec()), "{word:#010x}");
    }
}

/// A run ends at a non-zero word: `000 001`, `001 0001`, `000 000`, and so on.
#[test]
fn runs_end_at_non_zero_words() {
    let words = std::array::from_fn(|i| u32::from(i % 4 == 2));
    let (bits, stream) = encode(words);
    assert_eq!(bits, 6 + 8 * 7 + 7 * 6 + 6);
    assert_eq!(stream[..3], [0b0000_0100, 0b1000_1000, 0b0100_0100]);
}

#[test]
fn a_run_past_the_last_word_is_an_error() {
    // Three runs of 8, one of 7, and one of 2 with a single word left.
    let mut stream = Stream::default();
    for run in [7, 7, 7, 6, 1] {
        stream.put(run, 6);
    }
    assert!(matches!(Fpc.decode(stream.bytes(), Layout::A), Err(Error::Invalid { at: 24, .. })));
    assert_eq!(Fpc.decode(&[0; 40], Layout::B), Err(Error::Layout(Layout::B)));
}
