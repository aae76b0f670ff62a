use proptest::prelude::*;

use super::*;

#[test]
fn bits_are_written_most_significant_first() {
    let mut stream = Stream::default();
    stream.put(0b011, 3);
    stream.put(0b1_0000_0001, 9);
    assert_eq!((stream.bits(), stream.bytes()), (12, &[0b0111_0000, 0b0001_0000][..]));
}

#[test]
fn a_reader_stops_at_the_end() {
    let mut reader = BitReader::new(&[0xff]);
    assert_eq!(reader.take(7), Ok(0x7f));
    assert_eq!(reader.take(2), Err(Error::Truncated { bits: 8 }));
    assert_eq!(reader.take(1), Ok(1));
}

proptest! {
    #[test]
    fn fields_round_trip(fields in proptest::collection::vec((any::<u64>(), 1u32..=57), 0..20)) {
        let mut stream = Stream::default();
        for &(value, count) in &fields {
            stream.put(value & ((1 << count) - 1), count);
        }
        let mut reader = BitReader::new(stream.bytes());
        for &(value, count) in &fields {
            prop_assert_eq!(reader.take(count), Ok(value & ((1 << count) - 1)));
        }
        prop_assert_eq!(reader.at() as u32, stream.bits());
    }

    #[test]
    fn grouped_fields_equal_single_fields(
        fields in proptest::collection::vec(any::<u64>(), 0..19),
        width in 0u32..=64,
        before in 1u32..32,
    ) {
        let fields: Vec<u64> = fields.iter().map(|field| field.unbounded_shr(64 - width)).collect();
        let (mut together, mut single) = (Stream::default(), Stream::default());
        let (mut all, mut each) = (LsbWriter::new(&mut together), LsbWriter::new(&mut single));
        all.put(1, before);
        each.put(1, before);
        all.put_all(&fields, width);
        fields.iter().filter(|_| width > 0).for_each(|&field| each.put(field, width));
        all.finish();
        each.finish();
        prop_assert_eq!((together.bits(), together.bytes()), (single.bits(), single.bytes()));
        let mut reader = LsbReader::new(together.bytes());
        prop_assert_eq!(reader.take(before), Ok(1));
        let mut found = vec![7; fields.len()];
        prop_assert_eq!(reader.take_all(&mut found, width), Ok(()));
        prop_assert_eq!(found, fields);
    }

    #[test]
    fn signed_fits_agree_with_arithmetic(word: i32, bits in 1u32..32) {
        let range = -(1i64 << (bits - 1))..1i64 << (bits - 1);
        prop_assert_eq!(fits_signed(word as u32, bits), range.contains(&i64::from(word)));
    }
}
