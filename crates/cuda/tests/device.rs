//! `buddy_device.cuh`, compiled as plain C++: a thread stores entries at the places of the address
//! map, in the Rust codec's bits, and reads them back. Four lanes read and write the same entries
//! by quarters.

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
};

use buddy_codec::{Bf16, Codec, CodecKind, Packed, testing};
use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, Entry, Extent, SizeClass, Target, ZERO_ENTRY};

/// Builds a program of this folder, once.
fn program(name: &'static str) -> PathBuf {
    static BUILD: OnceLock<std::sync::Mutex<()>> = OnceLock::new();
    let _one = BUILD.get_or_init(std::sync::Mutex::default).lock().expect("no build panics");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.cpp"));
    let status = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()))
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
        .args(buddy_cuda::constants().iter().map(|define| format!("-D{define}")))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .status();
    assert!(status.expect("a C++ compiler ($CXX or g++)").success(), "{name} does not compile as C++");
    program
}

/// Runs a program and returns its answer.
fn ask(program: &PathBuf, message: Vec<u8>) -> Vec<u8> {
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a start");
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(&message));
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "a sanitiser stopped it");
    writer.join().expect("a writer").expect("all taken");
    output.stdout
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The memory after all entries were stored: loaded entries, nibbles, device and buddy memory.
struct Memory<'a> {
    loaded: &'a [u8],
    nibbles: &'a [u8],
    device: &'a [u8],
    buddy: &'a [u8],
}

fn check(codec: &Codec, target: Target, entries: &[Entry], memory: &Memory<'_>) {
    assert_eq!(memory.loaded, entries.as_flattened(), "{codec:?} at {target}");
    let extent =
        Extent { target, entries: entries.len() as u64, device_base: 0, buddy_base: 0, nibble_base: 0 };
    let mut packed = Packed::default();
    for (i, entry) in entries.iter().enumerate() {
        codec.pack(entry, &mut packed);
        let nibble = memory.nibbles[i / 2] >> (4 * (i % 2)) & 15;
        assert_eq!(nibble, packed.nibble().bits(), "{codec:?} at {target}, {entry:02x?}");
        let place = extent.locate(i as u64).expect("an entry of the extent");
        let (device, buddy) = place.used(target, packed.nibble().class());
        let stored =
            |memory: &[u8], start: u64, bytes: u64| memory[start as usize..][..bytes as usize].to_vec();
        let parts = [
            stored(memory.device, device.start, device.bytes),
            stored(memory.buddy, buddy.start, buddy.bytes),
        ];
        assert_eq!(parts.concat(), packed.bytes(), "{codec:?} at {target}, entry {i}");
    }
}

#[test]
fn thread_stores_entries_at_the_places_of_the_address_map() {
    let program = program("device");
    let mut entries = testing::samples();
    entries.push(ZERO_ENTRY);
    let windows = [0, 112].map(|window| Codec::Bf16(Bf16::new(window).expect("a window")));
    let others = buddy_cuda::codecs()
        .filter(|&kind| kind != CodecKind::Bf16)
        .map(|kind| kind.train(&testing::samples()));
    for codec in others.chain(windows) {
        for target in Target::ALL {
            let number = buddy_cuda::codecs().position(|kind| kind == codec.kind()).expect("kernels") as u32;
            let window = buddy_cuda::Params::of(&codec).window();
            let learned = codec.block();
            let sizes = [target.device_bytes(), entries.len(), learned.len()].map(|size| size as u32);
            let mut message = [words(&[number, window]), words(&sizes), words(&learned)].concat();
            message.extend(entries.as_flattened());
            let answer = ask(&program, message);
            let (head, rest) = answer.split_at(32);
            // No fault, then the entry past the end, which reads as zeros.
            let past = (entries.len() as u64) << 8 | 5;
            let expected: Vec<u8> =
                [u64::MAX, past, 5, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(head, expected);
            let padded = entries.len().next_multiple_of(ENTRIES_PER_PAGE);
            let (status, rest) = rest.split_at(4 * entries.len());
            assert!(status.iter().all(|&byte| byte == 0), "every entry decodes");
            let (loaded, rest) = rest.split_at(ENTRY_BYTES * entries.len());
            let (nibbles, rest) = rest.split_at(padded / 2);
            let (device, buddy) = rest.split_at(padded * target.device_bytes());
            check(&codec, target, &entries, &Memory { loaded, nibbles, device, buddy });
        }
    }
}

/// Normal weights in layout B, and with a few small ones in layout C.
#[test]
fn quarters_are_quarters_of_the_whole() {
    let program = program("quarters");
    let codec = Codec::Bf16(Bf16::new(112).expect("a window"));
    let mut packed = Packed::default();
    let mut layouts = [0; 3];
    for seed in 0..100u32 {
        let value = |i: u32| {
            let hash = (seed * 64 + i).wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b);
            let low =
                if hash.is_multiple_of(29) && seed.is_multiple_of(2) { 40 } else { 116 + (hash >> 8) % 6 };
            (hash & 0x807f | low << 7) as u16
        };
        let entry: Vec<u8> = (0..64).flat_map(|i| value(i).to_le_bytes()).collect();
        let entry: Entry = entry.try_into().expect("128 bytes");
        codec.pack(&entry, &mut packed);
        if packed.nibble().class() != SizeClass::S3 {
            continue;
        }
        let layout = packed.nibble().layout() as usize;
        layouts[layout] += 1;
        if layout > 0 {
            let answer = ask(&program, [words(&[layout as u32, 112]), packed.bytes().to_vec()].concat());
            assert_eq!(answer, entry, "layout {layout}");
        }
    }
    assert!(layouts[1] > 20 && layouts[2] > 20, "{layouts:?}");
}

/// Entries written by four lanes, and the places of a KV cache.
#[test]
fn four_lanes_write_what_a_thread_writes() {
    let answer = ask(&program("quad"), Vec::new());
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
}
