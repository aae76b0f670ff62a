//! Accel-Sim 2.0's `.tracez` and version 6 of the tracer's lines. The files are made here, since no
//! sample of the tracer's own is public.

mod common;

use std::io::Cursor;

use buddy_trace::{
    Error, Kernel, Launch, NO_REGISTER, Op,
    accel::{self, Reader},
    packed,
    pattern::{Array, Gemm, RandomSectors, Stream},
};
use common::{Gaps, Warp, plain, warps};

const HEADER: &str = "-kernel name = k\n-grid dim = (1,1,1)\n-block dim = (32,1,1)\n-shmem = 0\n-nregs = 8\n\
    -accelsim tracer version = 6\n-enable lineinfo = 0\n";
const LINES: [&str; 8] = [
    "0000 ffffffff 2 P0 R4 LDG.E 3 R2 UR4 P1 4 1 0x80 4 0 0 NoVal",
    "0010 ffffffff 1 R24 HGMMA.64x256x16.F32.BF16 3 R24 UR4 R255 1 0 0 0 Val 1 7 1 7 1 7 1 7",
    "0020 00000001 0 UTMALDG.2D 2 UR4 UR6 128 0x400 1 3 4096 0 4 0x7f0000000000 3 32 -64 0 0 NoVal",
    "0030 00000001 0 UBLKCP.S.G 2 UR4 UR6 0 0x400 0 64 0 3 2 0x80 0xa0 0 0 NoVal",
    "0040 00000001 0 SYNCS.ARRIVE.TRANS64.A1T0 1 R3 8 1 0x400 0 0 0 NoVal",
    "0050 ffffffff 0 WARPGROUP.DEPBAR.LE 0 0 0 0 NoVal",
    "0060 ffffffff 1 UR5 R2UR 1 R7 0 0 0 NoVal",
    "0070 ffffffff 0 EXIT 0 0 0 0 NoVal",
];

/// Returns a `.tracez` file of one warp, with its lines in frames of three.
fn file(header: &str, lines: &[&str], dictionary: &[u8]) -> Vec<u8> {
    let mut bytes = header.as_bytes().to_vec();
    bytes.push(0);
    let put =
        |bytes: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    put(&mut bytes, &[dictionary.len() as u32, 3]);
    bytes.extend(dictionary);
    let offset = bytes.len() as u64;
    let frames: Vec<&[&str]> = lines.chunks(3).collect();
    put(&mut bytes, &[lines.len() as u32, frames.len() as u32]);
    let mut compressor = zstd::bulk::Compressor::with_dictionary(3, dictionary).unwrap();
    for frame in &frames {
        let packed = compressor.compress((frame.join("\n") + "\n").as_bytes()).unwrap();
        put(&mut bytes, &[packed.len() as u32]);
        bytes.extend(packed);
    }
    let index = bytes.len() as u64;
    put(&mut bytes, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, lines.len() as u32, frames.len() as u32]);
    bytes.extend(offset.to_le_bytes());
    frames.iter().for_each(|frame| put(&mut bytes, &[frame.len() as u32]));
    bytes.extend(index.to_le_bytes());
    bytes
}

fn reader(bytes: Vec<u8>) -> Result<Reader, Error> {
    Reader::new_tracez("test", Cursor::new(bytes))
}

fn read(bytes: Vec<u8>) -> Result<Vec<Warp>, Error> {
    warps(&mut reader(bytes)?)
}

#[test]
fn lines_of_version_6_are_read() {
    let mut kernel = reader(file(HEADER, &LINES, &[])).unwrap();
    let all = warps(&mut kernel).unwrap();
    let ops: Vec<Op> = all[0].iter().map(|(inst, _)| inst.op).collect();
    let (unknown, none) = (Op::Unknown, NO_REGISTER);
    let wanted =
        [Op::LoadGlobal, Op::Tensor, unknown, unknown, Op::AtomicShared, Op::Control, Op::Int, Op::Exit];
    assert_eq!(ops, wanted);
    let insts: Vec<_> = all[0].iter().map(|(inst, _)| inst).collect();
    assert_eq!((insts[0].dst, insts[0].src), (4, [2, none, none, none]), "predicates and uniform registers");
    assert_eq!((insts[1].dst, insts[1].src, insts[1].columns()), (24, [24, 255, none, none], 256));
    assert_eq!((insts[2].width, insts[3].width, insts[6].dst), (0, 0, none));
    assert_eq!(all[0][4].1, [0x400]);
    let untimed: Vec<(String, u64)> = kernel.unknown().into_iter().collect();
    assert_eq!(untimed, [("UBLKCP.S.G".to_owned(), 1), ("UTMALDG.2D".to_owned(), 1)]);
}

/// The same lines as text, with the cluster of the block, and with a dictionary.
#[test]
fn text_and_container_and_dictionary_give_the_same_warps() {
    let wanted = plain(read(file(HEADER, &LINES, &[])).unwrap());
    let text = format!(
        "{HEADER}\n#BEGIN_TB\nthread block = 0,0,0\ncluster id = 0,0,0\ncluster cta = 0,0,0\ncluster rank = 0\n\
         warp = 0\ninsts = 8\n{}\n#END_TB\n",
        LINES.join("\n")
    );
    assert_eq!(
        plain(warps(&mut Reader::new("test", Cursor::new(text.into_bytes())).unwrap()).unwrap()),
        wanted
    );
    let dictionary = LINES.join("\n").repeat(3);
    assert_eq!(plain(read(file(HEADER, &LINES, dictionary.as_bytes())).unwrap()), wanted);
}

#[test]
fn written_files_round_trip() {
    let array = |base| Array { base, element_bytes: 4 };
    let mut kernels: [Box<dyn Kernel>; 5] = [
        // Frames of 1024 instructions: more than two a warp.
        Box::new(Stream::new(Launch::linear("s", 3, 96), &[array(4096)], &[array(0)], 80_000, 3)),
        Box::new(RandomSectors::new(2, 64, 1 << 30, 1 << 20, 3)),
        Box::new(Gemm::new(array(0), array(1 << 20), array(1 << 21), [64, 128, 32])),
        Box::new(Gaps(Launch::linear("gaps", 1, 32))),
        Box::new(reader(file(HEADER, &LINES, &[])).unwrap()),
    ];
    let mut longest = 0;
    for kernel in &mut kernels {
        let mut bytes = Vec::new();
        accel::write_tracez(&mut bytes, kernel.as_mut()).unwrap();
        let mut again = reader(bytes).unwrap();
        let found = warps(&mut again).unwrap();
        longest = found.iter().map(Vec::len).max().unwrap().max(longest);
        if kernel.launch().name == "k" {
            let all = read(file(HEADER, &LINES, &[])).unwrap();
            let columns = |all: &[Warp]| all[0].iter().map(|(inst, _)| inst.columns()).collect::<Vec<_>>();
            assert_eq!((plain(found.clone()), columns(&found)), (plain(all.clone()), columns(&all)));
            assert!(again.unknown().contains_key("UTMALDG.2D"));
        } else {
            assert_eq!(plain(found), plain(warps(kernel.as_mut()).unwrap()));
        }
    }
    assert!(longest > 2 * 1024, "{longest}");
}

#[test]
fn the_packed_format_keeps_the_columns_of_products() {
    let mut bytes = Vec::new();
    packed::write(&mut bytes, &mut reader(file(HEADER, &LINES, &[])).unwrap()).unwrap();
    let all = warps(&mut packed::Reader::new("test", Cursor::new(bytes)).unwrap()).unwrap();
    assert_eq!(all[0][1].0.columns(), 256);
}

#[test]
fn every_truncation_and_every_changed_byte_gives_a_value_or_an_error() {
    let whole = file(HEADER, &LINES, b"a dictionary of text");
    for end in 0..whole.len() {
        let error = read(whole[..end].to_vec()).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    for at in 0..whole.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            if let Err(error) = read(bytes) {
                assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}

#[test]
fn each_kind_of_damage_has_its_message() {
    let refused = |bytes: Vec<u8>, why: &str| {
        let error = read(bytes).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    let whole = file(HEADER, &LINES, &[]);
    let index = whole.len() - 8 - 3 * 4 - 16 - 12 * 4;
    let with = |at: usize, value: u32| {
        let mut bytes = whole.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    assert_eq!(whole[index..index + 4], 1u32.to_le_bytes());
    refused(with(HEADER.len() + 1, u32::MAX), "its dictionary has more than 16 MiB");
    refused(with(index, 2), "its index is cut off");
    refused(with(index, 0), "its index has more than its blocks");
    refused(with(index + 44, 33), "more than 32 warps");
    refused(with(index + 48, 9), "do not add up to its instructions");
    refused(with(index + 52, 1 << 30), "more frames than its index");
    refused(with(index + 56, u32::MAX), "a warp lies behind the index");
    refused(with(whole.len() - 8, 0), "its index does not lie between");
    refused(with(HEADER.len() + 9 + 8, u32::MAX), "a frame has more than 64 MiB");
    refused(vec![b'-'; 1 << 17], "its header has no end in 64 KiB");
    refused(vec![0; 5], "shorter than 8 bytes");
    let line = |from: &str, to: &str| {
        file(HEADER, &LINES.map(|line| line.replace(from, to)).each_ref().map(String::as_str), &[])
    };
    refused(
        line("4096 0 4 0x7f0000000000 3 32 -64 0 0 NoVal", "4096 0 4 0x7f0000000000 3 32"),
        "a difference",
    );
    refused(line("4096 0 4", "4096 0 5"), "the address mode is 5; it must be 3 or 4");
    refused(line(" 2 P0 R4", " 2 P0 Q4"), "a register R0 to R255, found 'Q4'");
    refused(line(" 2 P0 R4", " 9 P0 R4"), "the number of destination registers is 9; it must be at most 8");
    refused(file(&HEADER.replace("version = 6", "version = 7"), &LINES, &[]), "it must be 1 to 6");
}

/// The fuzzer's seed was made with the command `zstd` and a script, not with this crate.
#[test]
fn frames_of_the_zstd_command_are_read() {
    let all = read(include_bytes!("../../../fuzz/seeds/tracez/warp").to_vec()).unwrap();
    let ops: Vec<Op> = all[0].iter().map(|(inst, _)| inst.op).collect();
    assert_eq!(ops, [Op::LoadGlobal, Op::Tensor, Op::Unknown, Op::Unknown, Op::Exit]);
}
