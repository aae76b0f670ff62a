//! Buffers are restored exactly, as a whole and entry by entry.

use buddy::{CodecKind, ENTRY_BYTES, Error, Options, Packed, Target};
use proptest::prelude::*;

fn ramp(bytes: usize) -> Vec<u8> {
    let words = (0..bytes.div_ceil(4) as u32).flat_map(|i| (5 * i).to_le_bytes());
    words.take(bytes).collect()
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut byte = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| byte()).collect()
}

#[test]
fn every_length_is_restored() {
    for bytes in [0, 1, 127, 128, 129, 8192, 8193, 100_001] {
        for data in [vec![0; bytes], ramp(bytes), noise(bytes)] {
            let packed = buddy::compress(&data, Options::default()).unwrap();
            assert_eq!(packed.decompress().unwrap(), data);
            assert_eq!(packed.data_bytes(), bytes as u64);
            assert_eq!(Packed::from_bytes(packed.as_bytes()).unwrap(), packed);
            for (index, part) in data.chunks(ENTRY_BYTES).enumerate() {
                assert_eq!(packed.entry(index as u64).unwrap()[..part.len()], *part);
            }
            assert!(matches!(packed.entry(packed.entries()), Err(Error::Frozen { .. })));
        }
    }
}

#[test]
fn targets_follow_the_data() {
    let compress = |data: &[u8]| buddy::compress(data, Options::default()).unwrap();
    assert_eq!(compress(&vec![0; 1 << 18]).target(), Target::X16);
    assert!(compress(&ramp(1 << 18)).ratio() > 3.0);
    let raw = compress(&noise(1 << 18));
    assert_eq!(raw.target(), Target::X1);
    assert!(raw.ratio() > 0.99);
}

#[test]
fn chosen_codec_is_never_larger_than_bpc() {
    let bf16: Vec<u8> =
        noise(1 << 16).chunks(2).flat_map(|pair| [pair[0], 0x3f ^ (pair[1] & 0x80)]).collect();
    for data in [ramp(1 << 16), bf16] {
        let size =
            |codec| buddy::compress(&data, Options { codec, ..Options::default() }).unwrap().packed_bytes();
        assert!(size(None) <= size(Some(CodecKind::Bpc)));
    }
}

#[test]
fn options_that_cannot_be_stored_are_errors() {
    let table = Options { codec: Some(CodecKind::Table32), ..Options::default() };
    assert!(matches!(buddy::compress(&ramp(1000), table), Err(Error::Frozen { .. })));
    let plain = Options { target: Some(Target::Uncompressed), ..Options::default() };
    assert!(matches!(buddy::compress(&ramp(1000), plain), Err(Error::Frozen { .. })));
}

#[test]
fn truncated_bytes_are_an_error() {
    let packed = buddy::compress(&ramp(20_000), Options::default()).unwrap().into_bytes();
    for length in [0, 127, 128, packed.len() - 1] {
        assert!(Packed::from_bytes(&packed[..length]).is_err());
    }
}

proptest! {
    #[test]
    fn damaged_bytes_give_a_value_or_an_error(at in 0_usize..6000, bit in 0_u32..8) {
        let mut bytes = buddy::compress(&ramp(20_000), Options::default()).unwrap().into_bytes();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        if let Ok(packed) = Packed::from_bytes(bytes) {
            let _ = (packed.decompress(), packed.entry(0));
        }
    }
}
