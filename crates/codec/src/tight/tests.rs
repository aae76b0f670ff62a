use proptest::prelude::*;

use super::*;

/// Random numbers, the same each time.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1 << 24) as f32
    }

    /// A sum of twelve uniform numbers, which is nearly normal.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }

    /// A number of a Laplace distribution.
    fn laplace(&mut self) -> f32 {
        let sign = if self.uniform() < 0.5 { -1.0 } else { 1.0 };
        sign * -(1.0 - self.uniform()).ln()
    }
}

fn bytes_of(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(|value| (((value.to_bits() + 0x8000) >> 16) as u16).to_le_bytes()).collect()
}

/// A matrix of normal weights; each row has a scale of its own.
fn normal(rows: usize, row: usize) -> Vec<u8> {
    let mut random = Random(1);
    bytes_of((0..rows * row * 64).map(|i| {
        let scale = 0.01 * (1.0 + (i / (row * 64) % 7) as f32);
        scale * random.normal()
    }))
}

/// Any bits, with every exponent: nearly all values are exceptions.
fn any_bits(rows: usize, row: usize) -> Vec<u8> {
    let mut random = Random(2);
    (0..rows * row * 128).map(|_| (random.uniform() * 256.0) as u8).collect()
}

/// Rows of zeros, of equal values, of infinities and of values that hardly fit.
fn odd(rows: usize, row: usize) -> Vec<u8> {
    let values = [0.0, 1.0, f32::INFINITY, f32::NAN, 3.0e38, 1.0e-38, -1.0e-40, -0.0];
    let at = |i: usize| match i / (row * 64) % 10 {
        kind @ 0..8 => values[kind],
        8 => values[i % 8],
        _ => 2.0f32.powi(i as i32 % 16 - 20),
    };
    bytes_of((0..rows * row * 64).map(at))
}

#[test]
fn matrices_of_all_kinds_round_trip() {
    for (rows, row) in [(1, 1), (16, 2), (17, 3), (40, 5), (3, 64)] {
        for data in [normal(rows, row), any_bits(rows, row), odd(rows, row), vec![0; rows * row * 128]] {
            let packed = tighten(row as u32, &data).unwrap();
            let open = Tight::open(&packed).unwrap();
            assert_eq!(open.read().unwrap(), data, "{rows} rows of {row}");
            assert_eq!(open.check(), Ok(true));
            assert_eq!(open.header().rows(), rows as u64);
        }
    }
}

#[test]
fn any_run_of_entries_can_be_read() {
    let data = normal(20, 7);
    let packed = tighten(7, &data).unwrap();
    let open = Tight::open(&packed).unwrap();
    let mut out = vec![0; 9 * 128];
    open.read_entries(33, &mut out).unwrap();
    assert_eq!(out, data[33 * 128..42 * 128]);
    assert!(open.entry(140).is_err() && open.read_entries(132, &mut out).is_err());
    assert!(open.read_entries(0, &mut out[..100]).is_err());
}

#[test]
fn weights_pack_to_the_shares_that_the_format_page_states() {
    let share = |value: &mut dyn FnMut(usize) -> f32| {
        let data = bytes_of((0..128 * 4096).map(value));
        tighten(64, &data).unwrap().len() as f64 / data.len() as f64
    };
    let mut random = Random(3);
    let normal = share(&mut |_| 0.02 * random.normal());
    assert!(normal < 0.705, "{normal}");
    let scaled = share(&mut |i| 0.01 * (1.3f32).powi((i / 4096 % 9) as i32) * random.normal());
    assert!(scaled < 0.708, "{scaled}");
    let laplace = share(&mut |_| 0.01 * random.laplace());
    assert!(laplace < 0.717, "{laplace}");
}

/// One pair of columns, worked by hand from the format page.
#[test]
fn the_bits_of_a_column_are_those_of_the_format_page() {
    // Row 1, value 10 = 2 (4 i + quarter) + b: pair i = 1 of quarter 1. All other values are 1.0.
    let mut data: Vec<u8> = [0x80, 0x3f].repeat(16 * 64);
    data[64 * 2 + 20..][..2].copy_from_slice(&0xc0c5u16.to_le_bytes());
    let packed = tighten(1, &data).unwrap();
    let parts = Tight::open(&packed).unwrap().header().parts();
    let columns = &packed[parts.columns.start as usize..parts.columns.end as usize];
    // 1.0 has exponent 127. A window that begins at 56 or higher holds upper exponents 63 and 64.
    let byte = packed[parts.rows.start as usize + 4];
    let (lowest, raised) = (byte & 0x7f, byte >> 7);
    // Row 1 is the third of its half: lanes 8 to 11.
    let lane = 4 * 2 + 1;
    let low = columns[lane * 16 + 2];
    assert_eq!(low, 0xc5 ^ raised << 7);
    let codes = u32::from_le_bytes(columns[1024 + 8 * lane..][..4].try_into().unwrap());
    let upper = (0x81 + u32::from(raised)) / 2;
    assert_eq!(codes >> 2 & 3, (upper - u32::from(lowest)) & 3);
    let signs = u32::from_le_bytes(columns[1280 + 4 * lane..][..4].try_into().unwrap());
    assert_eq!(signs, 1 << 7, "the sign of pair 1, value 0, of the upper row");
}

#[test]
fn a_matrix_needs_whole_rows() {
    for (row, bytes) in [(2, 3 * 128), (1, 100), (0, 128)] {
        assert!(matches!(tighten(row, &vec![1; bytes]), Err(Error::Frozen { .. })));
    }
}

#[test]
fn every_flipped_bit_is_refused_by_the_checksum() {
    let packed = tighten(2, &normal(3, 2)).unwrap();
    for bit in (0..8 * packed.len()).step_by(3) {
        let mut flipped = packed.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let accepted = Tight::open(&flipped).and_then(|open| open.check());
        assert!(accepted != Ok(true), "bit {bit} gives {accepted:?}");
    }
}

#[test]
fn a_frozen_buffer_is_not_a_tight_matrix() {
    let data = normal(16, 1);
    let frozen =
        crate::freeze(&crate::CodecKind::Bf16.train(&[]), buddy_core::Target::X4Over3, 1, &data).unwrap();
    assert!(!TightHeader::is_tight(&frozen) && Tight::open(&frozen).is_err());
    assert!(crate::Frozen::open(&tighten(1, &data).unwrap()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A corrupted or truncated matrix gives entries or errors.
    #[test]
    fn any_bytes_are_safe(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in 0usize..3,
        kind in 0usize..3,
    ) {
        let data = [normal, any_bits, odd][kind](18, 3);
        let mut packed = tighten(3, &data).unwrap();
        for (at, byte) in changes {
            let at = at.index(packed.len());
            packed[at] = byte;
        }
        packed.truncate(packed.len() - cut);
        if let Ok(open) = Tight::open(&packed) {
            for entry in 0..open.header().entries() + 1 {
                let _ = open.entry(entry);
            }
        }
    }

    /// A corrupted index, flags or row bytes give entries or errors, never an out-of-range access.
    #[test]
    fn corrupted_metadata_is_safe(words in prop::collection::vec(any::<u32>(), 1..60), part in 0usize..3) {
        let mut packed = tighten(3, &normal(18, 3)).unwrap();
        let parts = TightHeader::parse(&packed).unwrap().parts();
        let range = [parts.flags, parts.index, parts.rows][part].clone();
        for (place, word) in packed[range.start as usize..range.end as usize].chunks_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let open = Tight::open(&packed).unwrap();
        for entry in 0..open.header().entries() {
            let _ = open.entry(entry);
        }
    }
}
