//! Trained codecs match the format page with any parameters.

use buddy_codec::{
    Codec, CodecKind,
    testing::{entries, noise, samples},
};
use buddy_core::Entry;
use proptest::{prelude::*, sample::Index};

use super::{fields, own, prefix, rank};

const KINDS: [CodecKind; 9] = [
    CodecKind::Table32,
    CodecKind::Table64,
    CodecKind::Stride32,
    CodecKind::Stride64,
    CodecKind::Scaled64,
    CodecKind::Prefix32,
    CodecKind::Prefix64,
    CodecKind::Rank32,
    CodecKind::Rank64,
];

/// Returns the reference of a codec.
fn page(codec: &Codec) -> Box<dyn own::Page> {
    match codec.kind() {
        CodecKind::Prefix32 | CodecKind::Prefix64 => Box::new(prefix::Page::of(codec)),
        CodecKind::Rank32 | CodecKind::Rank64 => Box::new(rank::Page::of(codec)),
        _ => Box::new(fields::Page::of(codec)),
    }
}

/// Returns every codec trained on a sample, with its reference.
fn trained(sample: &[Entry]) -> impl Iterator<Item = (Codec, Box<dyn own::Page>)> {
    let codecs = KINDS.map(|kind| kind.train(sample));
    codecs.into_iter().map(|codec| {
        let page = page(&codec);
        (codec, page)
    })
}

#[test]
fn sample_streams_match_the_reference() {
    for (codec, page) in trained(&samples()) {
        for entry in samples() {
            own::assert_page(&codec, &*page, &entry, &[]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_entry_matches_the_reference(
        sample in prop::collection::vec(entries(), 1..4),
        entry in entries(),
        flips in prop::collection::vec(any::<Index>(), 6),
    ) {
        for (codec, page) in trained(&sample) {
            for entry in sample.iter().chain([&entry]) {
                own::assert_page(&codec, &*page, entry, &flips);
            }
        }
    }

    #[test]
    fn any_bytes_decode_as_the_reference(sample in entries(), bytes in noise(), len in 0usize..=128) {
        for (codec, page) in trained(&[sample]) {
            own::assert_read(&codec, &*page, &bytes[..len]);
        }
    }
}
