//! Frozen buffers of the kernels, run on the CPU (`emu.h`), equal the Rust reference in every byte:
//! in order and in tiles, with room for overflow and without, with overflow in place and separate,
//! with two kernels and three; and they read back.
#![cfg(target_arch = "x86_64")]

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
};

use buddy_codec::{Bf16, Codec, FrozenHeader, freeze, testing};
use buddy_core::{ENTRY_BYTES, SECTOR_BYTES, Target};

const WINDOW: u8 = 112;

/// Builds the program once.
fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("freeze");
        let status = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()))
            .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined"])
            .args(["-fno-sanitize-recover=all", "-DBUDDY_CODEC=Bf16", "-DBUDDY_BLOCKS=16"])
            .args(buddy_cuda::constants().iter().map(|define| format!("-D{define}")))
            .args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/freeze.cpp"), "-o"])
            .arg(&program)
            .status();
        assert!(status.expect("a C++ compiler ($CXX or g++)").success(), "freeze.cpp does not compile");
        program
    })
}

/// A way to pack: the capacity in sectors, the number of parts with sums or the three-kernel form,
/// and separate overflow.
#[derive(Debug, Clone, Copy)]
struct Way {
    capacity: u32,
    parts: u32,
    apart: bool,
}

/// Returns the number told to the host, the buffer, its separate overflow, and the data read back.
fn ask(header: &FrozenHeader, data: &[u8], way: Way) -> (u32, Vec<u8>, Vec<u8>, Vec<u8>) {
    let room = FrozenHeader { sectors: if way.apart { 0 } else { way.capacity }, ..header.clone() };
    let parts = room.parts();
    let device = header.target.device_bytes() as u32;
    let how = [device, header.row, u32::from(WINDOW), way.capacity, way.parts, u32::from(way.apart)];
    let places = [parts.device.start, parts.nibbles.start, parts.index.start, parts.overflow.start];
    let mut message: Vec<u8> = how.iter().flat_map(|word| word.to_le_bytes()).collect();
    message.extend(header.entries().to_le_bytes());
    message.extend(places.iter().flat_map(|place| place.to_le_bytes()));
    message.extend(parts.total.to_le_bytes());
    message.extend(FrozenHeader { sectors: 0, ..header.clone() }.encode().unwrap());
    message.extend(data);
    let mut child = Command::new(program()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&message));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{way:?}");
    writer.join().unwrap().unwrap();
    let (told, rest) = output.stdout.split_first_chunk().unwrap();
    let (buffer, rest) = rest.split_at(parts.total as usize);
    let (apart, again) = rest.split_at(rest.len() - data.len());
    (u32::from_le_bytes(*told), buffer.to_vec(), apart.to_vec(), again.to_vec())
}

/// Samples of every kind, and normal values with some far smaller, for whole rows of `row` entries.
fn data(row: usize) -> Vec<u8> {
    let mut entries = testing::samples();
    for seed in 0..400u32 {
        let value = |i: u32| {
            let hash = (seed * 64 + i).wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b);
            let low =
                if hash.is_multiple_of(7) && seed % 9 == 0 { 40 + seed % 80 } else { 116 + (hash >> 8) % 6 };
            ((hash & 0x807f | low << 7) as u16).to_le_bytes()
        };
        entries.push(std::array::from_fn(|i| value(i as u32 / 2)[i % 2]));
    }
    entries.truncate(entries.len() / row.max(1) * row.max(1));
    entries.into_flattened()
}

fn check(target: Target, row: usize) {
    let (codec, data) = (Codec::Bf16(Bf16::new(WINDOW).unwrap()), data(row));
    let wanted = freeze(&codec, target, row as u32, &data).unwrap();
    let header = FrozenHeader::parse(&wanted).unwrap();
    let (sectors, before) = (header.sectors, header.parts().overflow.start as usize);
    assert!(sectors > 10, "some overflow");
    for (parts, apart) in [(0, false), (0, true), (1, false), (2, true), (5, false), (255, true)] {
        let (told, buffer, beside, again) = ask(&header, &data, Way { capacity: sectors, parts, apart });
        assert_eq!(told, sectors);
        assert!(again == data, "{target} rows of {row}, {parts} parts, apart {apart}");
        if apart {
            assert!(
                buffer == wanted[..before] && beside == wanted[before..][..sectors as usize * SECTOR_BYTES]
            );
        } else {
            assert!(buffer == wanted, "{target} rows of {row}, {parts} parts");
        }
    }
    for parts in [0, 5] {
        let (told, buffer, ..) = ask(&header, &data, Way { capacity: sectors - 1, parts, apart: false });
        assert_eq!(told, sectors, "what there is is said");
        assert!(FrozenHeader::parse(&buffer).is_err(), "no buffer without room");
    }
}

#[test]
fn packed_buffers_equal_the_reference() {
    for (target, row) in [(Target::X4Over3, 0), (Target::X2, 0), (Target::X16, 0), (Target::X4Over3, 3)] {
        check(target, row);
    }
}

#[test]
fn a_buffer_of_which_nothing_overflows_needs_no_sums() {
    let codec = Codec::Bf16(Bf16::new(WINDOW).unwrap());
    let data = vec![0; 300 * ENTRY_BYTES];
    let wanted = freeze(&codec, Target::X2, 0, &data).unwrap();
    let header = FrozenHeader::parse(&wanted).unwrap();
    for parts in [0, 3] {
        let (told, buffer, _, again) = ask(&header, &data, Way { capacity: 0, parts, apart: false });
        assert!(told == 0 && buffer == wanted && again == data);
    }
}
