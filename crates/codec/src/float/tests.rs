use buddy_core::{SizeClass, ZERO_ENTRY};

use super::*;
use crate::testing;

fn entry_of(values: impl Fn(usize) -> u16) -> Entry {
    let mut entry = ZERO_ENTRY;
    for (i, bytes) in entry.as_chunks_mut().0.iter_mut().enumerate() {
        *bytes = values(i).to_le_bytes();
    }
    entry
}

fn bf16(sign: u16, exponent: u16, mantissa: u16) -> u16 {
    sign << 15 | exponent << 7 | mantissa
}

fn encode(codec: &impl EntryCodec, entry: &Entry) -> Stream {
    let mut stream = Stream::default();
    codec.encode(entry, &mut stream);
    stream
}

#[test]
fn every_float_codec_satisfies_the_contract() {
    let samples = testing::samples();
    testing::contract(&Bf16::default(), &samples);
    testing::contract(&Bf16::new(0).unwrap(), &samples);
    testing::contract(&Bf16::new(240).unwrap(), &samples);
    testing::contract(&Fp16::default(), &samples);
    testing::contract(&Fp32::default(), &samples);
}

/// Exponents 112 to 127 cyclically: the whole window, no zeros, more than eight exponents.
#[test]
fn a_full_window_fills_96_bytes() {
    let entry = entry_of(|i| bf16(i as u16 & 1, 112 + i as u16 % 16, i as u16));
    let stream = encode(&Bf16::default(), &entry);
    assert_eq!((stream.layout(), stream.bits()), (Layout::B, 768));
    assert_eq!(stream.bytes()[..4], [0, 0x81, 2, 0x83]);
    // Values 0 to 7 have codes 0 to 7: even ones in the low half of the word, odd ones in the high
    // half.
    assert_eq!(stream.bytes()[64..68], [0x20, 0x64, 0x31, 0x75]);
    testing::contract(&Bf16::default(), &[entry]);
}

/// Three values far below the rest are outside every window; they become escapes.
#[test]
fn outliers_become_escapes() {
    let entry =
        entry_of(|i| bf16(0, if i % 30 == 3 { 50 + i as u16 } else { 120 - i as u16 % 5 }, 1 + i as u16));
    let stream = encode(&Bf16::default(), &entry);
    assert_eq!((stream.layout(), stream.bits()), (Layout::C, 8 * (89 + 3)));
    assert_eq!(stream.bytes()[88..], [120, 53, 83, 113]);
    testing::contract(&Bf16::default(), &[entry]);
    let too_many = [[0xff; 88].as_slice(), &[120; 8]].concat();
    assert!(matches!(Bf16::default().decode(&too_many, Layout::C), Err(Error::Invalid { .. })));
}

/// Half the values zero, the rest positive: bitmap, and 11 bits per value.
#[test]
fn half_zero_bf16_takes_two_sectors() {
    let entry = entry_of(|i| if i % 2 == 0 { 0 } else { bf16(0, 115 + i as u16 % 13, 2 * i as u16 + 1) });
    let stream = encode(&Bf16::default(), &entry);
    assert_eq!((stream.layout(), stream.bits()), (Layout::A, 24 + 64 + 32 * 11));
    assert_eq!(SizeClass::from_bits(stream.bits()), SizeClass::S2);
    // Base 127, four code bits, no flag, nothing trimmed; then the bitmap of odd values.
    assert_eq!(stream.bytes()[..11], [127, 4, 0, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa]);
}

#[test]
fn training_finds_the_window() {
    let near = |low: u16| entry_of(move |i| bf16(0, low + i as u16 % 16, 5));
    let codec = Bf16::train(&[near(30), near(100), near(100), near(101), ZERO_ENTRY]);
    assert_eq!(codec.window(), 100);
    assert_eq!(Bf16::train(&[]), Bf16::default());
    assert!(Bf16::new(241).is_err());
    assert_eq!(serde_json::from_str::<Bf16>(r#"{"window":240}"#).unwrap(), Bf16::new(240).unwrap());
    assert!(serde_json::from_str::<Bf16>(r#"{"window":241}"#).is_err());
}

#[test]
fn invalid_headers_are_errors() {
    for header in [[0, 9, 0], [0, 0, 8]] {
        let stream = [header.as_slice(), &[0; 157]].concat();
        assert!(
            matches!(Bf16::default().decode(&stream, Layout::A), Err(Error::Invalid { .. })),
            "{header:?}"
        );
    }
    let stream = [[32, 0, 0].as_slice(), &[0; 157]].concat();
    assert!(matches!(Fp16::default().decode(&stream, Layout::A), Err(Error::Invalid { .. })));
}
