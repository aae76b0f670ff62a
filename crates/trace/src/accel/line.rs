//! One instruction line:
//! `PC MASK ndst [R%d] OPCODE nsrc [R%d ...] width [mode addresses] imm`.
//!
//! Version 6 has registers of every kind (`R`, `UR`, `P`, `UP`), a flag behind the sources of warpgroup
//! products, and bulk copies with a barrier and the addresses of a box. Uniform registers and
//! predicates are not modelled.
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
    /// A bulk copy of version 6.
    Bulk,
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
                self.known[place] = Instruction::read(&mut words, rest, header, &mut self.opcodes)?;
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
    fn read(
        words: &mut Words<'_>,
        rest: &[u8],
        header: &Header,
        opcodes: &mut Opcodes,
    ) -> Result<Self, Problem> {
        let is_version_6 = header.is_version_6;
        let most =
            if is_version_6 { (8, "at most 8", 8, "at most 8") } else { (1, "0 or 1", 4, "at most 4") };
        let dst = registers(words, is_version_6, "the number of destination registers", (most.0, most.1))?[0];
        let name = words.next("an opcode")?;
        let src = registers(words, is_version_6, "the number of source registers", (most.2, most.3))?;
        let name = std::str::from_utf8(name).map_err(|_| unexpected("an opcode", name))?;
        if is_version_6 && name.contains("GMMA") {
            words.decimal("a flag of the warpgroup's products")?;
        }
        let is_bulk = is_version_6 && opcode::is_bulk_copy(name);
        let width = words.decimal("a width")?;
        if width > 64 && !is_bulk {
            return Err(Problem::Range { what: "the access width", found: width, range: "at most 64" });
        }
        let text = rest[..rest.len() - words.rest.len()].to_vec();
        let accesses = width > 0 && !is_bulk;
        let (op, access) = if is_bulk { (Op::Unknown, Access::Bulk) } else { resolve(name, dst, accesses) };
        let opcode = opcodes.intern(name, accesses)?;
        let inst = Inst::new(op, dst, &src).of_columns(opcode::columns(name));
        Ok(Self { text, inst, access, opcode })
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
        Some(_) if opcode::is_barrier_object(name) => (Op::AtomicShared, Access::Known(width)),
        Some(_) if name.starts_with("RED") => (Op::Reduce, Access::Known(width)),
        Some(_) if name.starts_with("ATOM") => (Op::Atomic, Access::Known(width)),
        _ => {
            let load = name.starts_with("LD") || (dst != NO_REGISTER && !name.starts_with("ST"));
            (Op::Control, Access::Generic { load, width })
        }
    }
}

/// Parses a count and that many registers; returns the first four vector registers.
fn registers(
    words: &mut Words<'_>,
    of_every_kind: bool,
    what: &'static str,
    (most, range): (u64, &'static str),
) -> Result<[u8; 4], Problem> {
    let count = words.decimal(what)?;
    if count > most {
        return Err(Problem::Range { what, found: count, range });
    }
    let (mut registers, mut found) = ([NO_REGISTER; 4], 0);
    for _ in 0..count {
        let word = words.next("a register")?;
        let others = [&b"UR"[..], b"UP", b"P"].into_iter().find_map(|kind| word.strip_prefix(kind));
        if of_every_kind && others.and_then(digits).is_some() {
            continue;
        }
        let number = word.strip_prefix(b"R").and_then(digits).and_then(|number| u8::try_from(number).ok());
        let number = number.ok_or_else(|| unexpected("a register R0 to R255", word))?;
        if let Some(register) = registers.get_mut(found) {
            *register = number;
        }
        found += 1;
    }
    Ok(registers)
}

/// Checks the fields of a bulk copy: its barrier, a mask of blocks if it is multicast, bytes inside
/// and outside of the tensor, and addresses. The copy has no timing model.
fn check_bulk(words: &mut Words<'_>) -> Result<(), Problem> {
    words.hex("the address of a barrier")?;
    if words.decimal("a multicast flag")? != 0 {
        words.hex("a mask of blocks")?;
    }
    words.decimal("the bytes of a bulk copy")?;
    words.decimal("the bytes outside of the tensor")?;
    let mode = words.decimal("an address mode")?;
    match mode {
        3 => {
            for _ in 0..words.decimal("a number of addresses")? {
                words.hex("an address")?;
            }
        }
        4 => {
            words.hex("a base address")?;
            for _ in 1..words.decimal("a number of addresses")? {
                words.signed("a difference")?;
            }
        }
        _ => return Err(Problem::Range { what: "the address mode", found: mode, range: "3 or 4" }),
    }
    Ok(())
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
        Access::Bulk => {
            check_bulk(words)?;
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
