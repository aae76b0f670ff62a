//! The packed format: traces round-trip, are small, and corrupt ones are refused.

mod common;

use std::{io::Cursor, path::PathBuf};

use buddy_trace::{
    Code, Error, Inst, Kernel, Launch, NO_REGISTER, Op,
    accel::{self, Reader},
    open_kernel, packed,
    pattern::{Arithmetic, Array, Gemm, RandomSectors, Stream},
    write_kernel,
};
use common::{Gaps, Warp, exact, plain, warps};
use proptest::prelude::*;

fn pack(kernel: &mut dyn Kernel) -> (Vec<u8>, packed::Written) {
    let mut bytes = Vec::new();
    let written = packed::write(&mut bytes, kernel).unwrap();
    assert_eq!(written.bytes, bytes.len() as u64);
    (bytes, written)
}

fn open(bytes: &[u8]) -> Result<packed::Reader, Error> {
    packed::Reader::new("test", Cursor::new(bytes.to_vec()))
}

fn unpack(bytes: &[u8]) -> Result<Vec<Warp>, Error> {
    warps(&mut open(bytes)?)
}

fn generated() -> Vec<Box<dyn Kernel>> {
    let array = |base| Array { base, element_bytes: 4 };
    vec![
        Box::new(Stream::new(Launch::linear("s", 3, 96), &[array(4096)], &[array(0)], 500, 3)),
        Box::new(RandomSectors::new(2, 64, 1 << 30, 1 << 20, 3)),
        Box::new(Gemm::new(array(0), array(1 << 20), array(1 << 21), [64, 128, 32])),
        Box::new(Arithmetic::new(3, 64, Op::Fp32, 1, 1)),
        Box::new(Gaps(Launch::linear("gaps", 1, 32))),
    ]
}

/// Returns the real kernel in text form.
fn real() -> Reader {
    Reader::open(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectoradd/kernel-1.traceg")).unwrap()
}

#[test]
fn packed_traces_round_trip_exactly() {
    for mut kernel in generated() {
        let (bytes, _) = pack(kernel.as_mut());
        let again = open(&bytes).unwrap();
        assert_eq!(again.launch(), kernel.launch());
        // Exact: strides stay strides and lists stay lists.
        let (again, first) = (unpack(&bytes).unwrap(), warps(kernel.as_mut()).unwrap());
        assert!(exact(again) == exact(first), "{}", kernel.launch().name);
    }
}

#[test]
fn text_traces_survive_packing() {
    let (bytes, written) = pack(&mut real());
    assert_eq!(written.instructions, 489);
    let mut text = Vec::new();
    accel::write(&mut text, &mut open(&bytes).unwrap()).unwrap();
    let mut again = Reader::new("again", Cursor::new(text)).unwrap();
    let (all, first) = (warps(&mut again).unwrap(), warps(&mut real()).unwrap());
    assert_eq!(plain(all), plain(first.clone()));
    assert_eq!(again.launch(), real().launch());
    // Opcode names are kept, though the model uses only their classes.
    assert!(again.opcodes().iter().any(|name| name == "IMAD.WIDE"), "{:?}", again.opcodes());
    assert!(exact(unpack(&bytes).unwrap()) == exact(first));
}

#[test]
fn unknown_opcodes_are_counted() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectoradd/kernel-1.traceg"));
    let text = text.unwrap().replace("FADD", "NEVER.HEARD");
    let (bytes, _) = pack(&mut Reader::new("text", Cursor::new(text)).unwrap());
    let mut kernel = open(&bytes).unwrap();
    warps(&mut kernel).unwrap();
    assert_eq!(kernel.unknown().into_iter().collect::<Vec<_>>(), [("NEVER.HEARD".to_owned(), 54)]);
}

#[test]
fn a_stream_packs_below_a_twentieth_of_a_byte_per_instruction() {
    let array = |base| Array { base, element_bytes: 4 };
    let launch = Launch::linear("triad", 1000, 256);
    let mut stream = Stream::new(launch, &[array(1 << 20), array(1 << 30)], &[array(0)], 256_000, 2);
    let (bytes, written) = pack(&mut stream);
    let share = bytes.len() as f64 / written.instructions as f64;
    assert!(written.instructions > 50_000 && share < 0.05, "{share} bytes for each of {written:?}");
}

#[test]
fn the_file_name_selects_the_format() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let first = plain(warps(&mut real()).unwrap());
    for name in ["by-name.warps", "by-name.traceg", "by-name.traceg.xz"] {
        write_kernel(&folder.join(name), &mut real()).unwrap();
        assert!(buddy_trace::is_kernel(name));
        let mut kernel = open_kernel(&folder.join(name)).unwrap();
        assert_eq!(plain(warps(kernel.as_mut()).unwrap()), first, "{name}");
    }
}

/// Returns a short file with every kind of step.
fn small() -> Vec<u8> {
    let mut bytes = Vec::new();
    packed::write(&mut bytes, &mut Every(Launch::linear("every", 2, 64))).unwrap();
    bytes
}

/// Arithmetic, a strided access, repeated and new lists, lanes predicated off.
struct Every(Launch);

impl Kernel for Every {
    fn launch(&self) -> &Launch {
        &self.0
    }
    fn fill(&mut self, at: buddy_trace::At, code: &mut Code) -> Result<(), Error> {
        if at.step > 1 {
            return Ok(());
        }
        let base = 0x1000 * at.block + 0x80 * u64::from(at.warp);
        code.push(Inst::new(Op::Int, 3, &[1, NO_REGISTER, 2]));
        code.push(Inst::new(Op::LoadGlobal, 4, &[3]).at(base, 4, 4));
        code.push_list(
            Inst::new(Op::StoreGlobal, NO_REGISTER, &[4]).masked(0b111),
            8,
            &[base, base + 24, base],
        );
        code.push_list(Inst::new(Op::LoadShared, 9, &[4]).masked(0b11), 1, &[base | 5, at.block ^ 9]);
        code.push_list(Inst::new(Op::LoadGlobal, 9, &[4]).masked(0), 4, &[]);
        code.push(Inst::new(Op::Exit, NO_REGISTER, &[]));
        Ok(())
    }
}

/// The documented example: two blocks of one warp that load, 128 bytes apart.
struct Example(Launch);

impl Kernel for Example {
    fn launch(&self) -> &Launch {
        &self.0
    }
    fn fill(&mut self, at: buddy_trace::At, code: &mut Code) -> Result<(), Error> {
        if at.step == 0 {
            code.push(Inst::new(Op::Int, 2, &[1]));
            code.push(Inst::new(Op::LoadGlobal, 4, &[2]).at(0x1000 + 0x80 * at.block, 4, 4));
            code.push(Inst::new(Op::Exit, NO_REGISTER, &[]));
        }
        Ok(())
    }
}

/// Returns the bytes of the documented example; text after two blanks is a comment.
fn documented() -> Vec<u8> {
    let page = include_str!("../../../docs/reference/traces.md");
    let block = page.split("```example\n").nth(1).unwrap().split("```").next().unwrap();
    let hex: String =
        block.lines().map(|line| line.split("  ").next().unwrap()).collect::<String>().replace(' ', "");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn the_documented_example_decodes() {
    let mut kernel = Example(Launch::linear("example", 2, 32));
    let (bytes, _) = pack(&mut kernel);
    let show = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    assert_eq!(show(&documented()), show(&bytes));
    assert!(exact(unpack(&documented()).unwrap()) == exact(warps(&mut kernel).unwrap()));
}

#[test]
fn every_truncation_and_every_flipped_bit_is_an_error() {
    let bytes = small();
    let first = warps(&mut Every(Launch::linear("every", 2, 64))).unwrap();
    assert!(exact(unpack(&bytes).unwrap()) == exact(first));
    for end in 0..bytes.len() {
        assert!(unpack(&bytes[..end]).is_err(), "the first {end} bytes read as a whole trace");
    }
    for at in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[at / 8] ^= 1 << (at % 8);
        let error = unpack(&damaged).err().unwrap_or_else(|| panic!("bit {at} may be flipped")).to_string();
        assert!(error.starts_with("test: ") && error.lines().count() == 1, "{error}");
    }
    assert!(
        unpack(&[bytes.as_slice(), b"x"].concat()).unwrap_err().to_string().contains("bytes behind the end")
    );
}

/// Recomputes the checksums, so that corruption reaches the decoder.
fn reseal(bytes: &mut [u8]) {
    let mut at = 12;
    while let Some(head) = bytes.get(at..at + 4) {
        let length = u32::from_le_bytes(head.try_into().unwrap()) as usize;
        let Some(frame) = bytes.get(at + 8..at + 8 + length) else { return };
        let sum = crc32fast::hash(frame);
        bytes[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        at += 8 + length;
    }
}

#[test]
fn corruption_with_valid_checksums_is_a_value_or_an_error() {
    let bytes = small();
    let mut refused = 0;
    for at in 20..bytes.len() {
        for byte in [0, 1, 2, 0x7f, 0x80, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(1)] {
            let mut damaged = bytes.clone();
            damaged[at] = byte;
            reseal(&mut damaged);
            refused += u32::from(unpack(&damaged).is_err());
        }
    }
    assert!(refused > 100, "{refused}");
}

proptest! {
    #[test]
    fn random_warps_round_trip(seed in any::<u64>(), blocks in 1u32..5, threads in 1u32..130) {
        let launch = Launch::linear("random", blocks, threads);
        let mut kernel = Random { launch, seed };
        let (bytes, _) = pack(&mut kernel);
        prop_assert!(exact(unpack(&bytes).unwrap()) == exact(warps(&mut kernel).unwrap()));
    }

    #[test]
    fn random_bytes_with_valid_checksums_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
    ) {
        let mut bytes = small();
        for (at, byte) in changes {
            let at = 12 + at.index(bytes.len() - 12);
            bytes[at] = byte;
        }
        reseal(&mut bytes);
        let _ = unpack(&bytes);
    }
}

/// Random warps from a seed.
struct Random {
    launch: Launch,
    seed: u64,
}

impl Kernel for Random {
    fn launch(&self) -> &Launch {
        &self.launch
    }
    fn fill(&mut self, at: buddy_trace::At, code: &mut Code) -> Result<(), Error> {
        let mut state = self.seed ^ at.block << 20 ^ u64::from(at.warp) << 8 ^ u64::from(at.step);
        let mut draw = || {
            state = buddy_trace::pattern::scramble(state);
            state
        };
        if at.step > 2 {
            return Ok(());
        }
        for _ in 0..1 + draw() % 40 {
            let op = Op::ALL[(draw() % Op::ALL.len() as u64) as usize];
            let inst = Inst::new(op, draw() as u8, &[draw() as u8]).masked(draw() as u32 | draw() as u32);
            let accesses = op.is_global() || op.is_shared();
            match draw() % 3 {
                0 if accesses => code.push(inst.at(draw(), draw() as i32, 1 << (draw() % 5))),
                1 if accesses => {
                    let list: Vec<u64> = (0..inst.lanes()).map(|_| draw() >> (draw() % 64)).collect();
                    code.push_list(inst, 1 << (draw() % 5), &list);
                }
                _ => code.push(inst),
            }
        }
        Ok(())
    }
}
