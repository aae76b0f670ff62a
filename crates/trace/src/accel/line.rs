//! One instruction line:
//! `PC MASK ndst [R%d] OPCODE nsrc [R%d ...] width [mode addresses] imm`.

use super::header::Header;
use crate::{Code, Inst, NO_REGISTER, Op, Problem, opcode};

/// Bytes of the window of shared memory.
const WINDOW_BYTES: u64 = 16 << 20;

/// Reads a line and appends its instruction to `code`.
pub(super) fn parse(line: &str, header: &Header, code: &mut Code) -> Result<(), Problem> {
    let mut words = Words { words: line.split_ascii_whitespace(), line };
    for _ in 0..header.leading_words {
        words.next("a line number or a position")?;
    }
    words.hex("a PC")?;
    let mask = words.hex("a mask")?;
    let mask = u32::try_from(mask).map_err(|_| Problem::Range {
        what: "the mask",
        found: mask,
        range: "8 hexadecimal digits",
    })?;
    let dst = words.registers("the number of destination registers", 1, "0 or 1")?[0];
    let name = words.next("an opcode")?;
    let src = words.registers("the number of source registers", 4, "at most 4")?;
    let width = words.decimal("a width")?;
    let op = opcode::classify(name);
    let inst = Inst::new(op.unwrap_or(Op::Control), dst, &src).masked(mask);
    if width == 0 {
        code.push(inst);
        return Ok(());
    }
    if width > 64 {
        return Err(Problem::Range { what: "the access width", found: width, range: "at most 64" });
    }
    // Whatever an instruction with addresses is called, it accesses memory.
    let known = op.is_some_and(|op| op.is_global() || op.is_shared() || op == Op::LoadConstant);
    let load = dst != NO_REGISTER || name.starts_with("LD");
    let access = Access { inst, width: opcode::width(name), load, generic: !known };
    access.push(&mut words, header, code)
}

/// A memory access whose addresses come next.
struct Access {
    inst: Inst,
    width: u8,
    load: bool,
    generic: bool,
}

impl Access {
    fn push(mut self, words: &mut Words<'_>, header: &Header, code: &mut Code) -> Result<(), Problem> {
        let lanes = self.inst.lanes() as usize;
        let mode = words.decimal("an address mode")?;
        let mut list = [0u64; 32];
        match mode {
            0 => {
                for address in &mut list[..lanes] {
                    *address = words.hex("an address for each lane of the mask")?;
                }
            }
            1 => {
                let (base, stride) = (words.hex("a base address")?, words.signed("a stride")?);
                return self.push_strided(base, stride, header, code);
            }
            2 => {
                list[0] = words.hex("a base address")?;
                for lane in 1..lanes {
                    let step = words.signed("a difference for each further lane of the mask")?;
                    list[lane] = list[lane - 1].wrapping_add_signed(step);
                }
            }
            _ => {
                return Err(Problem::Range { what: "the address mode", found: mode, range: "0, 1 or 2" });
            }
        }
        self.resolve(list[0], header);
        code.push_list(self.inst, self.width, &list[..lanes]);
        Ok(())
    }

    fn push_strided(mut self, base: u64, stride: i64, h: &Header, code: &mut Code) -> Result<(), Problem> {
        let mask = self.inst.mask;
        let run = mask.checked_shr(mask.trailing_zeros()).unwrap_or(0);
        if run & run.wrapping_add(1) != 0 {
            return Err(Problem::Mask { mask, why: "strided addresses need one run of lanes" });
        }
        let stride = i32::try_from(stride).map_err(|_| Problem::Range {
            what: "the stride",
            found: stride.unsigned_abs(),
            range: "under 2^31",
        })?;
        self.resolve(base, h);
        code.push(self.inst.at(base, stride, self.width));
        Ok(())
    }

    /// Decides a generic access: its address lies in the window of shared memory or not.
    fn resolve(&mut self, address: u64, header: &Header) {
        if !self.generic {
            return;
        }
        let shared = address.wrapping_sub(header.shared_base) < WINDOW_BYTES && header.shared_base != 0;
        self.inst.op = match (self.load, shared) {
            (true, true) => Op::LoadShared,
            (false, true) => Op::StoreShared,
            (true, false) => Op::LoadGlobal,
            (false, false) => Op::StoreGlobal,
        };
    }
}

/// The words of a line.
struct Words<'a> {
    words: std::str::SplitAsciiWhitespace<'a>,
    line: &'a str,
}

impl<'a> Words<'a> {
    fn next(&mut self, expected: &'static str) -> Result<&'a str, Problem> {
        self.words.next().ok_or_else(|| Problem::expected(expected, self.line))
    }

    fn hex(&mut self, expected: &'static str) -> Result<u64, Problem> {
        let word = self.next(expected)?;
        let digits = word.strip_prefix("0x").unwrap_or(word);
        u64::from_str_radix(digits, 16).map_err(|_| Problem::expected(expected, word))
    }

    fn decimal(&mut self, expected: &'static str) -> Result<u64, Problem> {
        let word = self.next(expected)?;
        word.parse().map_err(|_| Problem::expected(expected, word))
    }

    fn signed(&mut self, expected: &'static str) -> Result<i64, Problem> {
        let word = self.next(expected)?;
        word.parse().map_err(|_| Problem::expected(expected, word))
    }

    /// A count and so many registers.
    fn registers(
        &mut self,
        what: &'static str,
        most: usize,
        range: &'static str,
    ) -> Result<[u8; 4], Problem> {
        let count = self.decimal(what)?;
        if count > most as u64 {
            return Err(Problem::Range { what, found: count, range });
        }
        let mut registers = [NO_REGISTER; 4];
        for register in &mut registers[..count as usize] {
            let word = self.next("a register")?;
            let number = word.strip_prefix('R').and_then(|digits| digits.parse().ok());
            *register = number.ok_or_else(|| Problem::expected("a register R0 to R255", word))?;
        }
        Ok(registers)
    }
}
