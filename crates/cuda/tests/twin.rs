//! The kernels' per-entry functions, compiled as plain C++, equal the Rust codecs bit for bit: on
//! the golden entries, on structured ones, and on invalid streams. The C++ runs under the address
//! and undefined-behaviour sanitisers, so an access outside the row, or an invalid shift, ends it.

use std::{
    io::{Read, Write},
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
};

use buddy_codec::{Bf16, Codec, CodecKind, EntryCodec, Error, Stream, testing};
use buddy_core::{Entry, Layout, SizeClass, ZERO_ENTRY};
use proptest::{prelude::*, test_runner::Config};

const LAYOUTS: [Layout; 3] = [Layout::A, Layout::B, Layout::C];
/// Bits of the longest stream that is stored.
const STORED: u32 = 768;

/// Builds the twin once for all tests.
fn twin() -> &'static PathBuf {
    static TWIN: OnceLock<PathBuf> = OnceLock::new();
    TWIN.get_or_init(|| {
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("twin");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/twin.cpp");
        let checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
        let status = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()))
            .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"])
            .args(checks)
            .args(buddy_cuda::constants().iter().map(|define| format!("-D{define}")))
            .args([source, "-o"])
            .arg(&program)
            .status();
        assert!(status.expect("a C++ compiler ($CXX or g++)").success(), "the kernels do not compile as C++");
        program
    })
}

struct Request<'a> {
    codec: &'a Codec,
    /// The stream's bytes and layout to decode, or `None` to encode the entry.
    decode: Option<(usize, Layout)>,
    entry: Entry,
}

struct Answer {
    status: u32,
    size_bits: u32,
    bits: u32,
    layout: u32,
    bytes: Entry,
}

/// Sends all requests of one codec to one run of the twin.
fn ask(requests: &[Request<'_>]) -> Vec<Answer> {
    let mut child =
        Command::new(twin()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the twin starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let learned = requests.first().map_or_else(Vec::new, |request| request.codec.block());
    let head = (learned.len() as u64)
        .to_le_bytes()
        .into_iter()
        .chain(learned.iter().flat_map(|word| word.to_le_bytes()));
    let bytes: Vec<u8> = head.chain(requests.iter().flat_map(message)).collect();
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    let mut answers = Vec::new();
    child.stdout.take().expect("a pipe").read_to_end(&mut answers).expect("answers");
    assert!(child.wait().expect("an end").success(), "a sanitiser stopped the twin");
    writer.join().expect("a writer").expect("all requests taken");
    let answers: Vec<Answer> = answers.as_chunks::<144>().0.iter().map(answer).collect();
    assert_eq!(answers.len(), requests.len());
    answers
}

fn message(request: &Request<'_>) -> Vec<u8> {
    let codec =
        buddy_cuda::codecs().position(|kind| kind == request.codec.kind()).expect("a codec with kernels");
    let window = buddy_cuda::Params::of(request.codec).window();
    let (limit, layout) = request.decode.unwrap_or((0, Layout::A));
    let head = [codec as u32, u32::from(request.decode.is_some()), window, 8 * limit as u32, layout as u32];
    head.iter().flat_map(|word| word.to_le_bytes()).chain(request.entry).collect()
}

fn answer(bytes: &[u8; 144]) -> Answer {
    let word = |i: usize| u32::from_le_bytes(*bytes[4 * i..].first_chunk().expect("four words"));
    let entry = *bytes[16..].first_chunk().expect("128 bytes");
    Answer { status: word(0), size_bits: word(1), bits: word(2), layout: word(3), bytes: entry }
}

/// Lists every codec with kernels, untrained and trained on the samples; bf16 with windows at both
/// ends, and field codecs with parameters that training rarely finds.
fn every_codec() -> Vec<Codec> {
    let windows = [0, 112, 240].map(|window| Codec::Bf16(Bf16::new(window).expect("a window")));
    let others = buddy_cuda::codecs().filter(|&kind| kind != CodecKind::Bf16);
    let trained = others.flat_map(|kind| {
        let samples = kind.has_parameters().then(|| kind.train(&testing::samples()));
        [Some(kind.train(&[])), samples].into_iter().flatten()
    });
    trained.chain(windows).chain(LEARNED.map(|text| serde_json::from_str(text).expect(text))).collect()
}

/// Tables of one value and of three, also with coded indices, evenly or not, with and without words
/// outside the table; units that are powers of two and others; prefix codes of words and of both orders,
/// frequent lengths short and long.
const LEARNED: [&str; 15] = [
    r#"{"codec":"table32","values":"3f800000"}"#,
    r#"{"codec":"table32","values":"000000003f80000040490fdb"}"#,
    r#"{"codec":"table64","values":"3ff00000000000000000000000000000bfb999999999999a"}"#,
    r#"{"codec":"scaled64","divisor":100,"exponent":0,"least":-5}"#,
    r#"{"codec":"scaled64","divisor":1,"exponent":-3,"least":7}"#,
    r#"{"codec":"scaled64","divisor":2147483647,"exponent":0,"least":0}"#,
    r#"{"codec":"prefix32","stride":0,"order":1,"first":"1342589aaaaaaaaaaaaaaaaaaaaaaaaaa","rest":"aa98712346799aaaaaaaaaaaaaaaaaaaa"}"#,
    r#"{"codec":"prefix32","stride":8,"order":2,"first":"aa98712346799aaaaaaaaaaaaaaaaaaaa","rest":"1342589aaaaaaaaaaaaaaaaaaaaaaaaaa"}"#,
    r#"{"codec":"prefix64","stride":3,"order":1,"first":"2223489aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","rest":"666666666666666666666666666666233aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#,
    r#"{"codec":"rank32","values":"3f800000","code":"10000000000000001"}"#,
    r#"{"codec":"rank32","values":"000000003f80000040490fdb","code":"12200000000000000"}"#,
    r#"{"codec":"rank32","values":"000000003f80000040490fdb","code":"22100000000000000"}"#,
    r#"{"codec":"rank64","values":"3ff00000000000000000000000000000bfb999999999999a","code":"12300000000000003"}"#,
    r#"{"codec":"rank64","values":"00000000000000003ff0000000000000bfb999999999999a","code":"22200000000000002"}"#,
    r#"{"codec":"prefix64","stride":1,"order":2,"first":"666666666666666666666666666666233aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","rest":"2223489aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#,
];

/// Sizes, streams and layouts equal Rust's.
fn encodes_alike(entries: &[Entry]) {
    for codec in every_codec() {
        let request = |&entry: &Entry| Request { codec: &codec, decode: None, entry };
        let answers = ask(&entries.iter().map(request).collect::<Vec<_>>());
        for (entry, answer) in entries.iter().zip(answers) {
            let mut stream = Stream::default();
            codec.encode(entry, &mut stream);
            assert_eq!(
                (answer.size_bits, answer.bits),
                (stream.bits(), stream.bits()),
                "{codec:?} {entry:02x?}"
            );
            if stream.bits() > STORED {
                continue;
            }
            assert_eq!(answer.layout, stream.layout() as u32, "{codec:?} {entry:02x?}");
            let stored = SizeClass::from_bits(stream.bits()).bytes();
            let mut expected = stream.bytes().to_vec();
            expected.resize(stored, 0);
            assert_eq!(answer.bytes[..stored], expected, "{codec:?} {entry:02x?}");
        }
    }
}

fn status_of(error: &Error) -> u32 {
    match error {
        Error::Truncated { .. } => 1,
        Error::Invalid { .. } => 2,
        Error::Layout(_) => 3,
        other => panic!("no decoder says {other}"),
    }
}

/// Any bytes, of any class and layout, give the same entry or the same error.
fn decodes_alike(codec: &Codec, streams: &[Entry]) {
    let mut requests = Vec::new();
    for &entry in streams {
        for bytes in [8, 32, 64, 96] {
            for layout in LAYOUTS {
                requests.push(Request { codec, decode: Some((bytes, layout)), entry });
            }
        }
    }
    for (request, answer) in requests.iter().zip(ask(&requests)) {
        let (bytes, layout) = request.decode.expect("only streams were asked");
        let stream = &request.entry[..bytes];
        match codec.decode(stream, layout) {
            Ok(entry) => {
                assert_eq!((answer.status, answer.bytes), (0, entry), "{codec:?} {layout:?} {stream:02x?}")
            }
            Err(error) => {
                assert_eq!(answer.status, status_of(&error), "{codec:?} {layout:?} {error} {stream:02x?}");
            }
        }
    }
}

/// The first bytes of an entry's stream, padded to a fixed length.
fn stream_of(codec: &Codec, entry: &Entry) -> Entry {
    let mut stream = Stream::default();
    codec.encode(entry, &mut stream);
    let mut bytes = [0x5a; 128];
    let length = stream.bytes().len().min(128);
    bytes[..length].copy_from_slice(&stream.bytes()[..length]);
    bytes
}

fn golden() -> Vec<Entry> {
    let text = include_str!("../../codec/tests/data/golden-v1.json");
    let golden: Vec<serde_json::Value> = serde_json::from_str(text).expect("golden entries");
    let entry = |value: &serde_json::Value| testing::hex(value["entry"].as_str().expect("hex")).try_into();
    golden.iter().map(|value| entry(value).expect("128 bytes")).collect()
}

#[test]
fn golden_and_sample_entries_encode_alike() {
    let mut entries = [golden(), testing::samples()].concat();
    entries.push(ZERO_ENTRY);
    encodes_alike(&entries);
}

#[test]
fn good_streams_decode_alike() {
    let entries = [golden(), testing::samples()].concat();
    for codec in every_codec() {
        decodes_alike(&codec, &entries.iter().map(|entry| stream_of(&codec, entry)).collect::<Vec<_>>());
    }
}

#[test]
fn streams_with_a_flipped_bit_decode_alike() {
    let samples = testing::samples();
    for codec in every_codec() {
        // All in one run of the twin, since starting it under sanitisers takes longer than
        // answering.
        let flips = samples.iter().step_by(5).flat_map(|entry| {
            let stream = stream_of(&codec, entry);
            (0..768).step_by(3).map(move |bit| {
                let mut bytes = stream;
                bytes[bit / 8] ^= 1 << (bit % 8);
                bytes
            })
        });
        decodes_alike(&codec, &flips.collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(Config { cases: 4, failure_persistence: None, ..Config::default() })]

    #[test]
    fn structured_entries_encode_alike(entries in proptest::collection::vec(testing::entries(), 250)) {
        encodes_alike(&entries);
        for codec in every_codec() {
            decodes_alike(&codec, &entries.iter().map(|entry| stream_of(&codec, entry)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn noise_decodes_alike(streams in proptest::collection::vec(testing::noise(), 500)) {
        for codec in every_codec() {
            decodes_alike(&codec, &streams);
        }
    }
}
