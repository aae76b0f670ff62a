//! Every codec satisfies the contract, on fixed and on structured random data.

use buddy_codec::{
    Bpc, Codec, CodecKind, EntryCodec, Packed, Stream,
    testing::{contract, entries, noise, pack_round_trip, round_trip, samples, storage, twins},
};
use buddy_core::{Layout, ZERO_ENTRY};
use proptest::prelude::*;

fn codecs() -> impl Iterator<Item = Codec> {
    let samples = samples();
    CodecKind::EVERY.into_iter().map(move |kind| kind.train(&samples))
}

#[test]
fn every_codec_satisfies_the_contract() {
    for codec in codecs() {
        contract(&codec, &samples());
        storage(&codec, &samples());
    }
}

#[test]
fn every_bound_is_reached() {
    for codec in codecs() {
        let longest = samples().iter().map(|entry| codec.size_bits(entry)).max();
        assert_eq!(longest, Some(codec.max_bits()), "{}", codec.kind());
    }
}

#[test]
fn zero_entries_have_short_streams() {
    for codec in codecs() {
        let bits = match codec.kind() {
            CodecKind::Bpc => 10,
            CodecKind::BpcBest => 8,
            CodecKind::Bdi => 12,
            CodecKind::Fpc => 24,
            CodecKind::Fvc => 32 * (codec.max_bits() / 32 - 32),
            CodecKind::Cpack => 64,
            CodecKind::Planes8 => 16,
            CodecKind::Planes16 => 32,
            CodecKind::Planes32 => 64,
            CodecKind::Planes64 => 128,
            CodecKind::Zeros16 => 64,
            CodecKind::Zeros32 => 32,
            CodecKind::Zeros64 => 16,
            CodecKind::Bf16 | CodecKind::Fp16 => 24 + 64,
            CodecKind::Fp32 => 24 + 32,
            CodecKind::Delta64 => 80,
            CodecKind::Near64 => 512,
            // Depends on their parameters; at most a sector.
            CodecKind::Table32
            | CodecKind::Table64
            | CodecKind::Stride32
            | CodecKind::Stride64
            | CodecKind::Scaled64
            | CodecKind::Prefix32
            | CodecKind::Prefix64
            | CodecKind::Rank32
            | CodecKind::Rank64 => {
                assert!(codec.size_bits(&ZERO_ENTRY) <= 256, "{}", codec.kind());
                continue;
            }
        };
        assert_eq!(codec.size_bits(&ZERO_ENTRY), bits, "{}", codec.kind());
    }
}

#[test]
fn names_and_parameters_survive_serialization() {
    for codec in codecs() {
        let kind = codec.kind();
        assert_eq!(kind.name().parse(), Ok(kind));
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        let text = serde_json::to_string(&codec).unwrap();
        assert_eq!(serde_json::from_str::<Codec>(&text).unwrap(), codec, "{text}");
    }
    let error = "bcp".parse::<CodecKind>().unwrap_err();
    assert!(error.to_string().starts_with("unknown codec 'bcp'; the codecs are bpc, bdi, "), "{error}");
}

#[test]
fn dispatch_does_not_change_streams() {
    twins(&Bpc, &CodecKind::Bpc.train(&[]), &samples());
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn different_codecs_are_not_twins() {
    twins(&CodecKind::Bdi.train(&[]), &CodecKind::Fpc.train(&[]), &samples());
}

proptest! {
    #[test]
    fn entries_round_trip(sample in proptest::collection::vec(entries(), 0..6), entry in entries()) {
        let (mut stream, mut packed) = (Stream::default(), Packed::default());
        for kind in CodecKind::EVERY {
            let codec = kind.train(&sample);
            for entry in sample.iter().chain([&entry]) {
                round_trip(&codec, entry, &mut stream);
                pack_round_trip(&codec, entry, &mut packed);
            }
        }
    }

    #[test]
    fn any_bytes_are_an_entry_or_an_error(
        sample in entries(),
        streams in proptest::collection::vec((noise(), 0usize..=128), 16),
    ) {
        for kind in CodecKind::EVERY {
            let codec = kind.train(&[sample]);
            for (bytes, len) in &streams {
                for layout in [Layout::A, Layout::B, Layout::C] {
                    let _ = codec.decode(&bytes[..*len], layout);
                }
            }
        }
    }
}
