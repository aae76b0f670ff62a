//! The Accel-Sim format: real traces are read, written ones round-trip, and malformed ones are
//! refused.

mod common;

use std::{io::Cursor, path::PathBuf};

use buddy_trace::{
    At, Code, Error, Item, Kernel, Launch, NO_REGISTER, Op,
    accel::{self, Reader},
    pattern::{Array, Gemm, RandomSectors, Stream},
};
use common::{Gaps, Warp, plain, warps};

/// Returns the folder of a real vectorAdd trace: its first three blocks and its last.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectoradd")
}

fn read(text: &str) -> Result<Vec<Warp>, Error> {
    warps(&mut Reader::new("test", Cursor::new(text.to_owned().into_bytes()))?)
}

#[test]
fn a_real_trace_is_read_plain_and_compressed() {
    let items = accel::read_list(&folder()).unwrap();
    assert_eq!(items[0], Item::Copy { address: 0x7fb0_fc40_0000, bytes: 200_000 });
    let Item::Kernel(path) = &items[2] else { panic!("{items:?}") };
    let mut kernel = Reader::open(path).unwrap();
    assert_eq!((kernel.launch().name.as_str(), kernel.launch().registers), ("_Z9vectorAddPKfS0_Pfi", 12));
    let all = warps(&mut kernel).unwrap();
    assert_eq!((all.len(), all[0].len()), (32, 17));
    let (load, addresses) = &all[0][10];
    assert_eq!((load.op, load.dst, load.src[0], load.width), (Op::LoadGlobal, 4, 4, 4));
    assert_eq!((addresses.len(), addresses[1]), (32, 0x7fb0_fc43_0e04));
    assert_eq!(kernel.heap_bytes(), 0, "consumed blocks are freed");
    let mut packed = Reader::open(&path.with_extension("traceg.xz")).unwrap();
    assert_eq!(warps(&mut packed).unwrap(), all);
}

#[test]
fn written_traces_round_trip() {
    let array = |base| Array { base, element_bytes: 4 };
    let mut kernels: [Box<dyn Kernel>; 4] = [
        Box::new(Stream::new(Launch::linear("s", 3, 96), &[array(4096)], &[array(0)], 500, 3)),
        Box::new(RandomSectors::new(2, 64, 1 << 30, 1 << 20, 3)),
        Box::new(Gemm::new(array(0), array(1 << 20), array(1 << 21), [64, 128, 32])),
        Box::new(Gaps(Launch::linear("gaps", 1, 32))),
    ];
    for kernel in &mut kernels {
        let mut text = Vec::new();
        accel::write(&mut text, kernel.as_mut()).unwrap();
        let again = read(std::str::from_utf8(&text).unwrap()).unwrap();
        assert_eq!(plain(again), plain(warps(kernel.as_mut()).unwrap()));
    }
}

#[test]
fn written_files_may_be_compressed() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let mut kernel = RandomSectors::new(2, 64, 1 << 30, 1 << 20, 3);
    for name in ["written.traceg", "written.traceg.xz", "written.tracez"] {
        accel::write_file(&folder.join(name), &mut kernel).unwrap();
        let mut again = Reader::open(&folder.join(name)).unwrap();
        assert_eq!(plain(warps(&mut again).unwrap()), plain(warps(&mut kernel).unwrap()), "{name}");
    }
}

const SMALL: &str = "-kernel name = k\n-grid dim = (2,1,1)\n-block dim = (33,1,1)\n-shmem = 0\n-nregs = 8\n\
    -shmem base_addr = 0x10000000\n-accelsim tracer version = 5\n-enable lineinfo = 0\n\n#traces format\n\n\
    #BEGIN_TB\nthread block = 0,0,0\nwarp = 0\ninsts = 2\n0000 ffffffff 1 R4 LDG.E.64 1 R2 8 1 0x80 8 0\n\
    0010 00000005 1 R5 LD.E 1 R4 4 2 0x10000000 12 0\nwarp = 1\ninsts = 1\n0000 00000001 0 EXIT 0 0 0\n#END_TB\n\n\
    #BEGIN_TB\nthread block = 1,0,0\nwarp = 0\ninsts = 0\nwarp = 1\ninsts = 1\n\
    0000 00000003 0 ST.E 2 R4 R5 4 0 0x20000000 0x30000000 0\n#END_TB\n";

#[test]
fn a_hand_written_trace_parses_as_written() {
    let all = plain(read(SMALL).unwrap());
    let none = NO_REGISTER;
    let addresses: Vec<u64> = (0..32).map(|lane| 0x80 + 8 * lane).collect();
    assert_eq!(all[0][0], (Op::LoadGlobal, u32::MAX, 4, [2, none, none, none], 8, addresses));
    // The generic load is in the shared-memory window, the generic store is not.
    assert_eq!(all[0][1].0, Op::LoadShared);
    assert_eq!(all[0][1].5, [0x1000_0000, 0x1000_000c]);
    assert_eq!(all[3][0].0, Op::StoreGlobal);
    assert_eq!((all[2].len(), all[1][0].0), (0, Op::Exit));
}

#[test]
fn line_numbers_and_old_positions_are_skipped() {
    let line = "0000 00000001 0 EXIT 0 0 0";
    for (header, before) in [("-enable lineinfo = 1", "77 "), ("-accelsim tracer version = 2", "0 0 0 1 ")] {
        let text =
            SMALL.replace("-enable lineinfo = 0", header).replace("\n0000", &format!("\n{before}0000"));
        let text = text.replace("\n0010", &format!("\n{before}0010"));
        assert!(text.contains(&format!("{before}{line}")));
        let again =
            if header.contains("version") { text.replace("version = 5\n", "version = 2\n") } else { text };
        assert_eq!(plain(read(&again).unwrap()), plain(read(SMALL).unwrap()));
    }
}

#[test]
fn every_truncation_is_a_one_line_error() {
    // Everything but the last newline is required.
    for end in 0..SMALL.len() - 1 {
        let Err(error) = read(&SMALL[..end]) else { panic!("the first {end} bytes read as a whole trace") };
        let message = error.to_string();
        assert!(message.starts_with("test:") || message.starts_with("test: "), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn every_changed_byte_gives_a_value_or_an_error() {
    for at in 0..SMALL.len() {
        for byte in [b'0', b'9', b'f', b'-', b' ', b'\n', b'#', 0xff] {
            let mut text = SMALL.as_bytes().to_vec();
            text[at] = byte;
            if let Err(error) =
                Reader::new("test", Cursor::new(text)).and_then(|mut kernel| warps(&mut kernel))
            {
                assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}

#[test]
fn each_kind_of_damage_has_its_message() {
    let cases = [
        ("grid dim = (2,1,1)", "grid dim = (3,1,1)", "found 2 thread blocks of 3"),
        ("grid dim = (2,1,1)", "grid dim = (4294967295,4294967295,2)", "the number of blocks is"),
        ("grid dim = (2,1,1)", "grid dim = (0,1,1)", "the number of blocks is 0; it must be from 1 to 2^32"),
        ("block dim = (33,1,1)", "block dim = (2000,1,1)", "in a block is 2000; it must be from 1 to 1024"),
        ("-block dim = (33,1,1)\n", "", "the header has no 'block dim'"),
        ("-nregs = 8", "-nregs = 300", "nregs is 300; it must be at most 255"),
        ("thread block = 1,0,0", "thread block = 0,0,0", "thread block 0 comes twice"),
        ("thread block = 1,0,0", "thread block = 2,0,0", "inside the grid, found 'thread block = 2,0,0'"),
        ("insts = 2", "insts = 3", "found 2 instructions of 3"),
        ("insts = 2", "insts = 1", "expected 'warp = n' or #END_TB"),
        ("insts = 2", "insts = 18446744073709551615", "found 2 instructions of 18446744073709551615"),
        ("insts = 2", "insts = -1", "expected 'insts = n', found 'insts = -1'"),
        ("warp = 1\ninsts = 1\n0000 00000001 0 EXIT 0 0 0\n", "", "found 1 warps of 2"),
        ("warp = 1\ninsts = 1\n0000 00000001", "warp = 0\ninsts = 1\n0000 00000001", "warp 0 comes twice"),
        ("warp = 1\ninsts = 1\n0000 00000001", "warp = 7\ninsts = 1\n0000 00000001", "the warp is 7"),
        ("0000 ffffffff", "0000 fffffffff", "the mask is 68719476735; it must be 8 hexadecimal digits"),
        ("0000 ffffffff", "0000 f0ffffff", "mask f0ffffff does not fit: strided addresses need one run"),
        ("0010 00000005", "0010 0000000f", "expected a difference for each further lane"),
        ("0000 00000003 0 ST", "0000 80000007 0 ST", "an address for each lane of the mask"),
        ("1 R4 LDG", "2 R4 R5 LDG", "the number of destination registers is 2"),
        ("1 R2 8 1", "9 R2 8 1", "the number of source registers is 9; it must be at most 4"),
        ("1 R2 8 1", "1 R256 8 1", "expected a register R0 to R255, found 'R256'"),
        ("R2 8 1 0x80", "R2 8 7 0x80", "the address mode is 7"),
        ("0x80 8 0", "0x80 99999999999 0", "the stride is 99999999999"),
    ];
    for (from, to, message) in cases {
        assert!(SMALL.contains(from), "{from}");
        let error = read(&SMALL.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(message), "{from} -> {to}: {error}");
    }
}

#[test]
fn extra_blocks_warps_and_lines_are_errors() {
    let twice = SMALL.to_owned() + &SMALL[SMALL.find("#BEGIN_TB").unwrap()..];
    let cases = [
        (twice.clone(), "a thread block beyond the 2 that the header announces"),
        (SMALL.replace("(2,1,1)", "(1,1,1)"), "a thread block beyond the 1 that the header announces"),
        (format!("{SMALL}insts = 3\n"), "expected #BEGIN_TB, found 'insts = 3'"),
        (SMALL.replace("version = 5", "version = 7"), "the tracer's version is 7; it must be 1 to 6"),
        (SMALL.replace("version = 5", "version = 0"), "the tracer's version is 0; it must be 1 to 6"),
        (SMALL.replace("lineinfo = 0", "lineinfo = 2"), "enable lineinfo is 2; it must be 0 or 1"),
    ];
    for (text, message) in cases {
        let error = read(&text).unwrap_err().to_string();
        assert!(error.contains(message), "{message}: {error}");
    }
    // Comments and blank lines may follow.
    assert!(read(&format!("{SMALL}\n# the end\n\n")).is_ok());
}

#[test]
fn any_opcode_with_addresses_is_a_memory_access() {
    let cases = [
        ("1 R4 LDG.E.64 1 R2", "0 REDG.E.ADD.STRONG.GPU 1 R2", Op::Reduce, 4),
        ("1 R4 LDG.E.64 1 R2", "1 R4 ATOMX.E.ADD.64 1 R2", Op::Atomic, 8),
        ("1 R4 LDG.E.64 1 R2", "1 R4 LDQ.128 1 R2", Op::LoadGlobal, 16),
        ("1 R4 LDG.E.64 1 R2", "1 R4 FOO 1 R2", Op::LoadGlobal, 4),
        ("1 R4 LDG.E.64 1 R2", "0 FOO 1 R2", Op::StoreGlobal, 4),
        ("1 R4 LDG.E.64 1 R2", "1 R4 IADD3 1 R2", Op::LoadGlobal, 4),
    ];
    for (from, to, op, width) in cases {
        let all = plain(read(&SMALL.replacen(from, to, 1)).unwrap());
        assert_eq!((all[0][0].0, all[0][0].4, all[0][0].5.len()), (op, width, 32), "{to}");
    }
    // An address in the shared-memory window decides, as for a generic load.
    assert_eq!(plain(read(&SMALL.replace("LD.E", "FOO.E")).unwrap())[0][1].0, Op::LoadShared);
}

#[test]
fn unknown_opcodes_are_counted() {
    let text = SMALL.replace("EXIT", "WHATEVER").replace("LDG.E.64", "FOO.64");
    let mut kernel = Reader::new("test", Cursor::new(text.into_bytes())).unwrap();
    warps(&mut kernel).unwrap();
    let unknown: Vec<(String, u64)> = kernel.unknown().into_iter().collect();
    assert_eq!(unknown, [("FOO.64".to_owned(), 1), ("WHATEVER".to_owned(), 1)]);
}

#[test]
fn real_traces_have_no_unknown_opcodes() {
    let mut kernel = Reader::open(&folder().join("kernel-1.traceg")).unwrap();
    let mut code = Code::default();
    kernel.fill(At { block: 0, warp: 0, step: 0 }, &mut code).unwrap();
    let load = usize::from(code.opcode(10).unwrap());
    assert_eq!((kernel.opcodes()[load].as_str(), code.insts()[10].op), ("LDG.E", Op::LoadGlobal));
    warps(&mut kernel).unwrap();
    assert!(kernel.unknown().is_empty(), "{:?}", kernel.unknown());
}

#[test]
fn an_endless_line_is_refused() {
    let text = SMALL.replace("EXIT", &"E".repeat(70_000));
    assert!(read(&text).unwrap_err().to_string().contains("the length of this line"));
}

#[test]
fn malformed_lists_are_named_errors() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let error = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        accel::read_list(&path).unwrap_err().to_string()
    };
    assert!(error("empty.g", "# nothing\n").contains("found 0 kernels of 1"));
    for outside in ["../kernel-1.traceg", "/tmp/kernel-1.traceg", "a/../../kernel-1.traceg"] {
        assert!(error("outside.g", outside).contains("is not inside the folder of its list"), "{outside}");
    }
    let huge = format!("MemcpyHtoD,0x0,{}\nkernel-1.traceg\n", u64::MAX);
    assert!(
        error("huge.g", &huge)
            .contains("bytes that are copied so far is 18446744073709551615; it must be at most 2^40")
    );
    let high = "MemcpyHtoD,0xffffffffffffffff,1024\nkernel-1.traceg\n";
    assert!(error("high.g", high).contains("must be so low that the copy ends under 2^64"));
    assert!(error("copy.g", "MemcpyHtoD,7fb0,20\nkernel-1.traceg\n").contains("expected 'MemcpyHtoD,0x"));
    std::fs::write(folder.join("other.g"), "# a remark\nMemcpyDtoH,0x10,4\nsub/kernel-1.traceg\n").unwrap();
    let items = accel::read_list(&folder.join("other.g")).unwrap();
    assert_eq!(items[0], Item::Other("MemcpyDtoH,0x10,4".to_owned()), "other lines are passed through");
    assert_eq!(items[1], Item::Kernel(folder.join("sub/kernel-1.traceg")));
    assert!(Reader::open(&folder).err().unwrap().to_string().contains("not a regular file"));
    let missing = folder.join("none");
    assert!(accel::read_list(&missing).unwrap_err().to_string().contains("No such file"));
    assert!(Reader::open(&missing.join("kernel-1.traceg")).is_err());
}
