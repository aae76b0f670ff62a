//! Reference encoders and decoders of our own formats. Bits are text in stream order.

use std::{cell::RefCell, collections::HashSet};

use buddy_codec::{
    Bf16, Delta64, EntryCodec, Fp16, Fp32, Planes, Stream, Zeros,
    testing::{entries, entry_of, noise, samples},
};
use buddy_core::{Entry, Layout};
use proptest::{prelude::*, sample::Index};

use super::floats::parts;

/// Formats the low bits of a number, lowest first.
pub(crate) fn field(value: i128, bits: usize) -> String {
    (0..bits).map(|bit| if value >> bit & 1 == 1 { '1' } else { '0' }).collect()
}

/// Returns the entry as unsigned numbers of `bits` bits.
pub(crate) fn numbers(entry: &Entry, bits: usize) -> Vec<i128> {
    let number = |chunk: &[u8]| chunk.iter().rev().fold(0, |number, &byte| number * 256 + i128::from(byte));
    entry.chunks(bits / 8).map(number).collect()
}

/// Joins numbers into an entry.
pub(crate) fn joined(numbers: &[i128], bits: usize) -> Entry {
    let bytes: Vec<u8> =
        numbers.iter().flat_map(|number| number.to_le_bytes()[..bits / 8].to_vec()).collect();
    bytes.try_into().unwrap()
}

/// The unread bits of a stream.
pub(crate) struct Rest(pub(crate) String);

impl Rest {
    pub(crate) fn of(stream: &[u8]) -> Self {
        Self(stream.iter().map(|&byte| field(byte.into(), 8)).collect())
    }

    pub(crate) fn text(&mut self, bits: usize) -> Option<String> {
        let rest = self.0.get(bits..)?.to_owned();
        let text = std::mem::replace(&mut self.0, rest);
        Some(text[..bits].to_owned())
    }

    pub(crate) fn number(&mut self, bits: usize) -> Option<i128> {
        Some(self.text(bits)?.chars().rev().fold(0, |number, bit| 2 * number + i128::from(bit == '1')))
    }
}

/// A codec as the format page specifies it.
pub(crate) trait Page {
    fn write(&self, entry: &Entry) -> (Layout, String);
    /// Decodes a stream; `None` where the page specifies an error.
    fn read(&self, stream: &[u8], layout: Layout) -> Option<Entry>;
}

fn xor(a: &str, b: &str) -> String {
    a.chars().zip(b.chars()).map(|(a, b)| if a == b { '0' } else { '1' }).collect()
}

impl<const W: usize> Page for Planes<W> {
    fn write(&self, entry: &Entry) -> (Layout, String) {
        let words = numbers(entry, W);
        let differences: Vec<i128> =
            words.windows(2).map(|pair| (pair[1] - pair[0]).rem_euclid(1 << W)).collect();
        let dbp = |j: usize| -> String { differences.iter().map(|&d| field(d >> j, 1)).collect() };
        let dbx = |j: usize| if j == W - 1 { dbp(j) } else { xor(&dbp(j), &dbp(j + 1)) };
        let mask: String = (0..W).map(|j| if dbx(j).contains('1') { '1' } else { '0' }).collect();
        let planes: String = (0..W).rev().map(dbx).filter(|dbx| dbx.contains('1')).collect();
        (Layout::A, mask + &field(words[0], W) + &planes)
    }

    fn read(&self, stream: &[u8], layout: Layout) -> Option<Entry> {
        let mut rest = (layout == Layout::A).then(|| Rest::of(stream))?;
        let lanes = 1024 / W;
        let (mask, mut word) = (rest.text(W)?, rest.number(W)?);
        let mut planes = vec![];
        let mut above = "0".repeat(lanes - 1);
        for j in (0..W).rev() {
            if &mask[j..=j] == "1" {
                above = xor(&above, &rest.text(lanes - 1)?);
            }
            planes.push(above.clone());
        }
        let mut words = vec![word];
        for i in 0..lanes - 1 {
            let difference =
                planes.iter().fold(0, |value, plane| 2 * value + i128::from(&plane[i..=i] == "1"));
            word = (word + difference) % (1 << W);
            words.push(word);
        }
        Some(joined(&words, W))
    }
}

impl<const W: usize> Page for Zeros<W> {
    fn write(&self, entry: &Entry) -> (Layout, String) {
        let words = numbers(entry, W);
        let map: String = words.iter().map(|&word| if word == 0 { '0' } else { '1' }).collect();
        let stored: String = words.iter().filter(|&&word| word != 0).map(|&word| field(word, W)).collect();
        (Layout::A, map + &stored)
    }

    fn read(&self, stream: &[u8], layout: Layout) -> Option<Entry> {
        let mut rest = (layout == Layout::A).then(|| Rest::of(stream))?;
        let map = rest.text(1024 / W)?;
        let word = |bit| if bit == '1' { rest.number(W) } else { Some(0) };
        Some(joined(&map.chars().map(word).collect::<Option<Vec<_>>>()?, W))
    }
}

impl Page for Delta64 {
    fn write(&self, entry: &Entry) -> (Layout, String) {
        let words = numbers(entry, 64);
        let fold = |d: i128| if d < 0 { -2 * d - 1 } else { 2 * d };
        let folded: Vec<i128> =
            words.windows(2).map(|pair| fold(super::wrap(pair[1] - pair[0], 8))).collect();
        let (mut shift, mut width) = (0, 0);
        if folded.iter().any(|&d| d != 0) {
            shift = (0..64).rfind(|&shift| folded.iter().all(|&d| d % (1 << shift) == 0)).unwrap();
            width = (0..=64).find(|&width| folded.iter().all(|&d| d < 1 << (shift + width))).unwrap();
        }
        let fields: String = folded.iter().map(|&d| field(d >> shift, width)).collect();
        (Layout::A, field(words[0], 64) + &field(width as i128, 8) + &field(shift as i128, 8) + &fields)
    }

    fn read(&self, stream: &[u8], layout: Layout) -> Option<Entry> {
        let mut rest = (layout == Layout::A).then(|| Rest::of(stream))?;
        let (mut word, width, shift) = (rest.number(64)?, rest.number(8)?, rest.number(8)?);
        if width + shift > 64 || (width == 0 && shift > 0) {
            return None;
        }
        let mut words = vec![word];
        for _ in 0..15 {
            let folded = rest.number(width as usize)? << shift;
            let difference = if folded % 2 == 1 { -(folded + 1) / 2 } else { folded / 2 };
            word = (word + difference).rem_euclid(1 << 64);
            words.push(word);
        }
        Some(joined(&words, 64))
    }
}

/// Returns the window that training must find.
fn trained(entries: &[Entry]) -> u8 {
    let held = |window: i128| {
        let inside = |value| (window..window + 16).contains(&parts(value, 8, 7).1);
        entries.iter().filter(|entry| numbers(entry, 16).into_iter().all(inside)).count()
    };
    let most = (0..=240).map(held).max().unwrap();
    if most == 0 { 112 } else { (0..=240).find(|&window| held(window) == most).unwrap() as u8 }
}

/// Compares encoding, layout and padding with the reference, and decoding after flipping some bits.
pub(crate) fn assert_page(
    codec: &impl EntryCodec,
    page: &(impl Page + ?Sized),
    entry: &Entry,
    flips: &[Index],
) -> Layout {
    let mut stream = Stream::default();
    codec.encode(entry, &mut stream);
    let (layout, text) = page.write(entry);
    let padding = "0".repeat(text.len().next_multiple_of(8) - text.len());
    assert_eq!((stream.bits(), stream.layout()), (text.len() as u32, layout), "{entry:02x?}");
    assert_eq!(Rest::of(stream.bytes()).0, text + &padding, "{entry:02x?}");
    assert_eq!(page.read(stream.bytes(), layout).as_ref(), Some(entry));
    let mut bytes = stream.bytes().to_vec();
    for flip in flips {
        // Half of the flips hit the header, where they matter most.
        let bit = flip.index(2 * 8 * bytes.len());
        let bit = if bit % 2 == 0 { bit / 2 } else { bit / 2 % 192 };
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_read(codec, page, &bytes);
    }
    layout
}

/// Compares decoding of any bytes under every layout.
pub(crate) fn assert_read(codec: &impl EntryCodec, page: &(impl Page + ?Sized), bytes: &[u8]) {
    for layout in [Layout::A, Layout::B, Layout::C] {
        assert_eq!(codec.decode(bytes, layout).ok(), page.read(bytes, layout), "{layout:?} {bytes:02x?}");
    }
}

/// Compares a codec with its own reference implementation.
fn assert_same(codec: &(impl EntryCodec + Page), entry: &Entry, flips: &[Index]) -> Layout {
    assert_page(codec, codec, entry, flips)
}

fn assert_all_same(entry: &Entry, window: Bf16, flips: &[Index]) {
    assert_same(&Planes::<8>, entry, flips);
    assert_same(&Planes::<16>, entry, flips);
    assert_same(&Planes::<32>, entry, flips);
    assert_same(&Planes::<64>, entry, flips);
    assert_same(&Zeros::<16>, entry, flips);
    assert_same(&Zeros::<32>, entry, flips);
    assert_same(&Zeros::<64>, entry, flips);
    assert_same(&Delta64, entry, flips);
    assert_same(&Fp16::default(), entry, flips);
    assert_same(&Fp32::default(), entry, flips);
    assert_same(&window, entry, flips);
}

/// bf16 values like weights: similar exponents, some far below, some zeros.
fn weights() -> impl Strategy<Value = Entry> {
    let value = (any::<u8>(), 0u32..1 << 16, any::<u8>());
    (15u16..=255, 0u32..12, 0u32..12, prop::collection::vec(value, 64)).prop_map(
        |(top, far, zeros, values)| {
            let value = |(byte, kind, below): (u8, u32, u8)| {
                let near = top - (kind >> 8).leading_zeros() as u16 % 16;
                let exponent = if kind % 64 < far { top.min(u16::from(below)) } else { near };
                let zero = kind >> 6 & 63 < zeros;
                if zero { 0 } else { u16::from(byte & 0x80) << 8 | exponent << 7 | u16::from(byte & 0x7f) }
            };
            entry_of(values.into_iter().map(|parts| value(parts).to_le_bytes()).collect::<Vec<_>>())
        },
    )
}

#[test]
fn sample_streams_match_the_reference() {
    let window = Bf16::train(&samples());
    for entry in samples() {
        assert_all_same(&entry, window, &[]);
    }
}

/// Weights exercise all three layouts, and training finds the best window.
#[test]
fn weight_streams_match_the_reference() {
    let layouts = RefCell::new(HashSet::new());
    proptest!(ProptestConfig::with_cases(64), |(weights in prop::collection::vec(weights(), 8))| {
        let window = Bf16::train(&weights);
        prop_assert_eq!(window.window(), trained(&weights));
        for entry in &weights {
            layouts.borrow_mut().insert(assert_same(&window, entry, &[]));
        }
    });
    assert_eq!(layouts.borrow().len(), 3);
}

proptest! {
    #[test]
    fn any_entry_matches_the_reference(
        entry in prop_oneof![entries(), weights()],
        other in weights(),
        flips in prop::collection::vec(any::<Index>(), 6),
    ) {
        assert_all_same(&entry, Bf16::train(&[entry, other]), &flips);
    }

    /// Noise with headers that are often valid.
    #[test]
    fn any_bytes_decode_as_the_reference(
        noise in noise(),
        header in (any::<u8>(), 0u8..10, any::<bool>(), any::<bool>(), 0u8..26),
        len in 0usize..=128,
    ) {
        let (base, c, signs, dense, t) = header;
        let mut bytes = noise;
        bytes[..3].copy_from_slice(&[base, c | u8::from(signs) << 6 | u8::from(dense) << 7, t]);
        assert_read(&Fp32::default(), &Fp32::default(), &bytes[..len]);
        assert_read(&Bf16::default(), &Bf16::default(), &bytes[..len]);
        bytes[0] %= 40;
        assert_read(&Fp16::default(), &Fp16::default(), &bytes[..len]);
        bytes[8..10].copy_from_slice(&[base % 70, t]);
        assert_read(&Delta64, &Delta64, &bytes[..len]);
        assert_read(&Planes::<8>, &Planes::<8>, &bytes[..len]);
        assert_read(&Zeros::<64>, &Zeros::<64>, &bytes[..len]);
    }
}
