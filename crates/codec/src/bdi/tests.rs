use buddy_core::Layout;

use super::*;
use crate::{
    EntryCodec,
    testing::{entry_of, hex, stream_of},
};

/// Tag 0, a zero byte.
#[test]
fn zeros_take_twelve_bits() {
    assert_eq!(stream_of(&Bdi, &ZERO_ENTRY), (12, hex("0000")));
}

/// Tag 1, then the value from its most significant byte.
#[test]
fn one_repeated_value_takes_eight_bytes() {
    let entry = entry_of([0x0123_4567_89ab_cdef_u64; 16].map(u64::to_le_bytes));
    assert_eq!(stream_of(&Bdi, &entry), (68, hex("10123456789abcdef0")));
}

/// Pointers 8 bytes apart with one null: tag 2, the base, the mask `1011 1111 1111 1111`, 16
/// deltas.
#[test]
fn pointers_and_a_null_share_the_two_bases() {
    let mut values: [u64; 16] = std::array::from_fn(|i| 0x7f00_1234_5600 + 8 * i as u64);
    values[1] = 0;
    let expected = hex("200007f0012345600bfff00001018202830384048505860687078");
    assert_eq!(stream_of(&Bdi, &entry_of(values.map(u64::to_le_bytes))), (212, expected));
}

/// The base is the first value that is not an immediate. Differences wrap: -2^63 is 2^63 - 1 plus
/// one.
#[test]
fn differences_wrap_at_the_width_of_a_value() {
    let mut values = [0u64; 16];
    (values[3], values[4], values[5]) = (i64::MAX as u64, i64::MIN as u64, -128i64 as u64);
    let expected = hex("27fffffffffffffff180000000000018000000000000000000000");
    assert_eq!(stream_of(&Bdi, &entry_of(values.map(u64::to_le_bytes))), (212, expected));
}

#[test]
fn every_form_has_its_size() {
    let sizes = FORMS.map(|form| {
        let values = ENTRY_BYTES / form.value_bytes;
        form.value_bytes + values * form.delta_bytes + values / 8
    });
    assert_eq!(sizes, [26, 40, 42, 72, 74, 74]);
    for (form, bytes) in FORMS.iter().zip(sizes) {
        // Differences that use every byte, with a period that no other width matches.
        let base = 0x1111_1111_1111_1111_u64;
        let step = 0x2a << (8 * (form.delta_bytes - 1));
        let mut entry = ZERO_ENTRY;
        for (i, chunk) in entry.chunks_exact_mut(form.value_bytes).enumerate() {
            chunk.copy_from_slice(&(base + i as u64 % 3 * step).to_le_bytes()[..form.value_bytes]);
        }
        let (bits, stream) = stream_of(&Bdi, &entry);
        assert_eq!((bits as usize, u64::from(stream[0] >> 4)), (4 + 8 * bytes, form.tag));
    }
}

#[test]
fn incompressible_entries_are_a_tag_and_the_bytes() {
    let entry: Entry = std::array::from_fn(|i| (i * i + 7 * i) as u8);
    let (bits, stream) = stream_of(&Bdi, &entry);
    assert_eq!((bits, &stream[..3]), (1028, &[0xf0, 0x00, 0x81][..]));
}

#[test]
fn invalid_codes_are_errors() {
    for tag in 8..15 {
        let error = Bdi.decode(&[tag << 4; 129], Layout::A);
        assert!(matches!(error, Err(Error::Invalid { at: 0, .. })), "tag {tag}");
    }
    assert!(matches!(Bdi.decode(&[0x00, 0x10], Layout::A), Err(Error::Invalid { at: 4, .. })));
    assert_eq!(Bdi.decode(&[0; 40], Layout::C), Err(Error::Layout(Layout::C)));
}
