//! One instruction line:
//! `PC MASK ndst [R%d] OPCODE nsrc [R%d ...] width [mode addresses] imm`.
//!
//! The words between mask and addresses are the same on each execution of an instruction. They are
//! parsed once and compared afterwards.

use super::{
    header::Header,
    words::{Words, digits, unexpected},
};
use crate::{
    Code, Inst, NO_REGISTER, Op, Problem, opcode,
    opcodes::{Opcodes, has_addresses},
};

/// Size of the shared-memory window in bytes.
const WINDOW_BYTES: u64 = 16 << 20;
/// Entries of the instruction cache, indexed by PC.
const CACHE_ENTRIES: usize = 1 << 12;

/// Parser of instruction lines, with a cache of parsed instructions.
pub(super) struct Parser {
    known: Vec<Instruction>,
    pub(super) opcodes: Opcodes,
}

/// The part of an instruction that is the same on each execution.
#[derive(Clone)]
struct Instruction {
    /// Text from the number of destinations to the width.
    text: Vec<u8>,
    inst: Inst,
    access: Access,
    /// Opcode number.
    opcode: u16,
}

/// Address space of a memory access.
#[derive(Clone, Copy)]
enum Access {
    None,
    Known(u8),
    /// A generic load or store: the address decides between shared and global memory.
    Generic {
        load: bool,
        width: u8,
    },
}

impl Parser {
    pub(super) fn new() -> Self {
        let nothing = Instruction {
            text: Vec::new(),
            inst: Inst::new(Op::Control, NO_REGISTER, &[]),
            access: Access::None,
            opcode: 0,
        };
        Self { known: vec![nothing; CACHE_ENTRIES], opcodes: Opcodes::default() }
    }

    /// Parses a line and appends its instruction to `code`.
    #[inline]
    pub(super) fn parse(&mut self, line: &[u8], header: &Header, code: &mut Code) -> Result<(), Problem> {
        let mut words = Words::new(line);
        for _ in 0..header.leading_words {
            words.next("a line number or a position")?;
        }
        let pc = words.hex("a PC")?;
        let mask = words.hex("a mask")?;
        let mask = u32::try_from(mask).map_err(|_| Problem::Range {
            what: "the mask",
            found: mask,
            range: "8 hexadecimal digits",
        })?;
        let rest = words.rest.trim_ascii_start();
        let place = (pc >> 4) as usize % CACHE_ENTRIES;
        words.rest = match rest.strip_prefix(self.known[place].text.as_slice()) {
            Some(behind) if behind.first().is_some_and(u8::is_ascii_whitespace) => behind,
            _ => {
                words.rest = rest;
                self.known[place] = Instruction::read(&mut words, rest, &mut self.opcodes)?;
                words.rest
            }
        };
        let Instruction { inst, access, opcode, .. } = &self.known[place];
        self.opcodes.count(*opcode, mask);
        push(inst.masked(mask), *access, &mut words, header, code)?;
        code.name_last(*opcode);
        Ok(())
    }
}

impl Instruction {
    fn read(words: &mut Words<'_>, rest: &[u8], opcodes: &mut Opcodes) -> Result<Self, Problem> {
        let dst = registers(words, "the number of destination registers", 1, "0 or 1")?[0];
        let name = words.next("an opcode")?;
        let src = registers(words, "the number of source registers", 4, "at most 4")?;
        let width = words.decimal("a width")?;
        if width > 64 {
            return Err(Problem::Range { what: "the access width", found: width, range: "at most 64" });
        }
        let name = std::str::from_utf8(name).map_err(|_| unexpected("an opcode", name))?;
        let text = rest[..rest.len() - words.rest.len()].to_vec();
        let (op, access) = resolve(name, dst, width > 0);
        let opcode = opcodes.intern(name, width > 0)?;
        Ok(Self { text, inst: Inst::new(op, dst, &src), access, opcode })
    }
}

/// Returns the class of an instruction in a trace without a shared-memory window.
pub(crate) fn op_of(name: &str, dst: u8, addresses: bool) -> Op {
    let (op, access) = resolve(name, dst, addresses);
    access.op(op, 0, 0)
}

/// Returns an opcode's class and address space. Any opcode with addresses is a memory access.
fn resolve(name: &str, dst: u8, addresses: bool) -> (Op, Access) {
    let (op, width) = (opcode::classify(name), opcode::width(name));
    match op {
        Some(op) if !addresses => (op, Access::None),
        Some(op) if has_addresses(op) => (op, Access::Known(width)),
        None if !addresses => (Op::Control, Access::None),
        Some(_) if name.starts_with("RED") => (Op::Reduce, Access::Known(width)),
        Some(_) if name.starts_with("ATOM") => (Op::Atomic, Access::Known(width)),
        _ => {
            let load = name.starts_with("LD") || (dst != NO_REGISTER && !name.starts_with("ST"));
            (Op::Control, Access::Generic { load, width })
        }
    }
}

/// Parses a count and that many registers.
fn registers(
    words: &mut Words<'_>,
    what: &'static str,
    most: usize,
    range: &'static str,
) -> Result<[u8; 4], Problem> {
    let count = words.decimal(what)?;
    if count > most as u64 {
        return Err(Problem::Range { what, found: count, range });
    }
    let mut registers = [NO_REGISTER; 4];
    for register in &mut registers[..count as usize] {
        let word = words.next("a register")?;
        let number = word.strip_prefix(b"R").and_then(digits).and_then(|number| u8::try_from(number).ok());
        *register = number.ok_or_else(|| unexpected("a register R0 to R255", word))?;
    }
    Ok(registers)
}

/// Parses the addresses, if any, and appends the instruction.
#[inline]
fn push(
    mut inst: Inst,
    access: Access,
    words: &mut Words<'_>,
    header: &Header,
    code: &mut Code,
) -> Result<(), Problem> {
    let width = match access {
        Access::None => {
            code.push(inst);
            return Ok(());
        }
        Access::Known(width) | Access::Generic { width, .. } => width,
    };
    let lanes = inst.lanes() as usize;
    let mode = words.decimal("an address mode")?;
    if mode == 1 {
        let (base, stride) = (words.hex("a base address")?, words.signed("a stride")?);
        inst.op = access.op(inst.op, base, header.shared_base);
        code.push(inst.at(base, check_stride(inst.mask, stride)?, width));
        return Ok(());
    }
    let mut list = [0u64; 32];
    match mode {
        0 => {
            for address in &mut list[..lanes] {
                *address = words.hex("an address for each lane of the mask")?;
            }
        }
        2 => {
            list[0] = words.hex("a base address")?;
            for lane in 1..lanes {
                let step = words.signed("a difference for each further lane of the mask")?;
                list[lane] = list[lane - 1].wrapping_add_signed(step);
            }
        }
        _ => return Err(Problem::Range { what: "the address mode", found: mode, range: "0, 1 or 2" }),
    }
    inst.op = access.op(inst.op, list[0], header.shared_base);
    code.push_list(inst, width, &list[..lanes]);
    Ok(())
}

fn check_stride(mask: u32, stride: i64) -> Result<i32, Problem> {
    let run = mask.checked_shr(mask.trailing_zeros()).unwrap_or(0);
    if run & run.wrapping_add(1) != 0 {
        return Err(Problem::Mask { mask, why: "strided addresses need one run of lanes" });
    }
    i32::try_from(stride).map_err(|_| Problem::Range {
        what: "the stride",
        found: stride.unsigned_abs(),
        range: "under 2^31",
    })
}

impl Access {
    /// Resolves a generic access: shared if its address is in the shared-memory window.
    #[inline]
    fn op(self, known: Op, address: u64, shared_base: u64) -> Op {
        let Self::Generic { load, .. } = self else { return known };
        let shared = address.wrapping_sub(shared_base) < WINDOW_BYTES && shared_base != 0;
        match (load, shared) {
            (true, true) => Op::LoadShared,
            (false, true) => Op::StoreShared,
            (true, false) => Op::LoadGlobal,
            (false, false) => Op::StoreGlobal,
        }
    }
}
