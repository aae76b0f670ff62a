use buddy_core::{ENTRY_BYTES, Entry, Target};
use proptest::prelude::*;

use super::*;
use crate::{Bf16, CodecKind, testing};

fn codecs() -> impl Iterator<Item = Codec> {
    let frozen = |kind: &CodecKind| *kind == CodecKind::Bf16 || !kind.has_parameters();
    CodecKind::EVERY.into_iter().filter(frozen).map(|kind| kind.train(&[]))
}

/// Three copies of the samples, enough for several pages; the last entry is partial.
fn data() -> Vec<u8> {
    let mut data = testing::samples().repeat(3).into_flattened();
    data.truncate(data.len() - 5);
    data
}

#[test]
fn frozen_data_round_trips_with_every_codec_and_target() {
    let data = data();
    for codec in codecs() {
        for target in Target::ALL {
            let frozen = freeze(&codec, target, 0, &data).unwrap();
            let open = Frozen::open(&frozen).unwrap();
            assert_eq!(open.header().codec, codec);
            assert_eq!(open.read().unwrap(), data, "{codec:?} at {target}");
        }
    }
}

#[test]
fn rows_of_a_matrix_lie_in_tiles() {
    let codec = CodecKind::Bf16.train(&[]);
    for (rows, row) in [(1, 3), (16, 1), (17, 5), (40, 2)] {
        let data: Vec<u8> = testing::samples().into_iter().cycle().take(rows * row).flatten().collect();
        let frozen = freeze(&codec, Target::X4Over3, row as u32, &data).unwrap();
        let open = Frozen::open(&frozen).unwrap();
        assert_eq!(open.read().unwrap(), data, "{rows} rows of {row}");
        let places: std::collections::BTreeSet<u64> =
            (0..(rows * row) as u64).map(|entry| open.header().slot_of(entry)).collect();
        assert_eq!(places.len(), rows * row, "entries share a slot");
        assert!(places.iter().all(|&place| place < open.header().slots()));
    }
    // Entry 1 of row 18: the second tile, its second column, its third row.
    let header = FrozenHeader { codec, target: Target::X2, bytes: 0, row: 5, sectors: 0 };
    assert_eq!(header.slot_of(18 * 5 + 1), 16 * 5 + 16 + 2);
}

#[test]
fn a_matrix_needs_whole_rows() {
    let codec = CodecKind::Bf16.train(&[]);
    assert!(matches!(freeze(&codec, Target::X2, 2, &[1; 3 * ENTRY_BYTES]), Err(Error::Frozen { .. })));
}

#[test]
fn only_overflow_is_stored_past_the_slots() {
    let codec = CodecKind::Bpc.train(&[]);
    let frozen = freeze(&codec, Target::X2, 0, &[0; 200 * ENTRY_BYTES]).unwrap();
    let parts = FrozenHeader::parse(&frozen).unwrap().parts();
    assert!(parts.overflow.is_empty());
    assert_eq!(frozen.len() as u64, parts.total);
}

#[test]
fn trained_codecs_cannot_be_frozen() {
    for kind in [CodecKind::Fvc, CodecKind::Table32, CodecKind::Stride64, CodecKind::Scaled64] {
        let codec = kind.train(&[]);
        assert!(matches!(freeze(&codec, Target::X2, 0, &[1; 128]), Err(Error::Frozen { .. })), "{kind}");
    }
}

#[test]
fn normal_weights_pack_to_under_75_7_percent() {
    // Sums of twelve uniform numbers are approximately normal.
    let mut seed = 1u64;
    let mut uniform = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 40) as f32 / (1 << 24) as f32
    };
    let value = |_| (0.02 * ((0..12).map(|_| uniform()).sum::<f32>() - 6.0)).to_bits() >> 16;
    let data: Vec<u8> = (0..1 << 20).map(value).flat_map(|bits| (bits as u16).to_le_bytes()).collect();
    let entries: Vec<Entry> = data.as_chunks::<ENTRY_BYTES>().0.to_vec();
    let frozen = freeze(&CodecKind::Bf16.train(&entries), Target::X4Over3, 0, &data).unwrap();
    let share = frozen.len() as f64 / data.len() as f64;
    assert!(share < 0.757, "{share}");
    assert_eq!(Frozen::open(&frozen).unwrap().read().unwrap(), data);
}

proptest! {
    /// A corrupted or truncated buffer gives entries or errors.
    #[test]
    fn any_bytes_are_safe(
        target in prop::sample::select(Target::ALL.to_vec()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in 0usize..3,
    ) {
        let codec = Codec::Bf16(Bf16::new(112).unwrap());
        let mut frozen = freeze(&codec, target, 0, &testing::samples().into_flattened()).unwrap();
        for (at, byte) in changes {
            let at = at.index(frozen.len());
            frozen[at] = byte;
        }
        frozen.truncate(frozen.len() - cut);
        if let Ok(open) = Frozen::open(&frozen) {
            for entry in 0..open.header().entries() + 1 {
                let _ = open.entry(entry);
            }
        }
    }

    /// A corrupted index gives entries or errors, never an out-of-range access.
    #[test]
    fn a_corrupted_index_is_safe(words in prop::collection::vec(any::<u32>(), 1..8)) {
        let codec = Codec::Bf16(Bf16::new(112).unwrap());
        let mut frozen = freeze(&codec, Target::X2, 0, &data()).unwrap();
        let index = FrozenHeader::parse(&frozen).unwrap().parts().index;
        for (place, word) in frozen[index.start as usize..index.end as usize].chunks_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let open = Frozen::open(&frozen).unwrap();
        for entry in 0..open.header().entries() {
            let _ = open.entry(entry);
        }
    }
}

/// Builds a frozen buffer from pieces of `steps` steps.
fn freeze_by_pieces(codec: &Codec, target: Target, row: u32, data: &[u8], steps: usize) -> Vec<u8> {
    let mut header = FrozenHeader { codec: codec.clone(), target, bytes: data.len() as u64, row, sectors: 0 };
    let (mut whole, mut index) = (FrozenPiece::default(), Vec::new());
    for part in data.chunks(steps * header.step() as usize * ENTRY_BYTES) {
        let piece = FrozenPiece::pack(codec, target, row, part).unwrap();
        whole.device.extend(piece.device);
        whole.nibbles.extend(piece.nibbles);
        whole.overflow.extend(piece.overflow);
        for sectors in piece.sectors {
            index.extend(header.sectors.to_le_bytes());
            header.sectors += sectors;
        }
    }
    index.extend(header.sectors.to_le_bytes());
    let parts = header.parts();
    let mut out = vec![0; parts.total as usize];
    out[..HEADER_BYTES].copy_from_slice(&header.encode().unwrap());
    for (at, part) in [
        (parts.device, whole.device),
        (parts.nibbles, whole.nibbles),
        (parts.index, index),
        (parts.overflow, whole.overflow),
    ] {
        out[at.start as usize..at.end as usize].copy_from_slice(&part);
    }
    out
}

#[test]
fn pieces_equal_the_frozen_buffer() {
    let samples = testing::samples();
    for codec in codecs() {
        for target in Target::ALL {
            for (rows, row) in [(0, 0), (150, 1), (64, 2), (129, 3), (7, 40)] {
                let data = match row {
                    0 => data(),
                    _ => samples.iter().copied().cycle().take(rows * row as usize).flatten().collect(),
                };
                let frozen = freeze(&codec, target, row, &data).unwrap();
                assert_eq!(freeze_by_pieces(&codec, target, row, &data, 1), frozen, "{codec:?} at {target}");
                let open = Frozen::open(&frozen).unwrap();
                let (step, mut out) = (open.header().step(), vec![0; data.len()]);
                for (i, part) in out.chunks_mut(2 * step as usize * ENTRY_BYTES).enumerate() {
                    open.read_piece(2 * i as u64 * step, part).unwrap();
                }
                assert_eq!(out, data, "{codec:?} at {target}, {rows} rows of {row}");
            }
        }
    }
}

#[test]
fn an_unaligned_piece_is_refused() {
    let data = data();
    let frozen = freeze(&CodecKind::Bf16.train(&[]), Target::X4Over3, 0, &data).unwrap();
    let open = Frozen::open(&frozen).unwrap();
    for (first, bytes) in [(1, 128), (0, 128), (0, data.len() + 1), (64, data.len())] {
        assert!(open.read_piece(first, &mut vec![0; bytes]).is_err(), "{bytes} bytes from {first}");
    }
}

proptest! {
    #[test]
    fn corrupted_pieces_are_read_or_refused(at in 0usize..20000, byte in any::<u8>()) {
        let data = data();
        let mut frozen = freeze(&CodecKind::Bf16.train(&[]), Target::X2, 0, &data).unwrap();
        let at = at % frozen.len();
        frozen[at] = byte;
        if let Ok(open) = Frozen::open(&frozen) {
            let _ = open.read_piece(0, &mut vec![0; open.header().bytes.min(1 << 20) as usize]);
        }
    }
}
