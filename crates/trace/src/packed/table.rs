//! Table of a kernel's distinct instructions and of their executions with distinct masks and
//! strides, its steps.

use std::collections::HashMap;

use super::varint::{Cursor, damaged, put, unzigzag, zigzag};
use crate::{Addresses, Code, Inst, NO_REGISTER, Op, Problem, accel, opcode, opcodes::Opcodes};

/// Largest number of instructions or steps.
const MAX_DEFINITIONS: u64 = 1 << 24;
/// Classes of accesses whose address, not opcode, determines the space.
const SPACES: [Op; 4] = [Op::LoadGlobal, Op::StoreGlobal, Op::LoadShared, Op::StoreShared];

/// A static instruction of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Instruction {
    opcode: u16,
    /// 0 if the opcode determines the class, else its index in [`SPACES`] plus one.
    space: u8,
    dst: u8,
    src: [u8; 4],
    width: u8,
}

/// Addressing of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    None,
    List,
    Strided(i32),
}

/// An instruction with its mask and addressing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// The instruction without its address.
    pub(super) inst: Inst,
    pub(super) shape: Shape,
    /// Index of the static instruction.
    pub(super) instruction: u32,
    pub(super) opcode: u16,
}

/// Definitions read so far, for decoding.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) opcodes: Opcodes,
    instructions: Vec<(Instruction, Op)>,
    pub(super) steps: Vec<Step>,
}

/// Encoded definitions that a frame adds.
#[derive(Debug, Default)]
pub(super) struct NewDefinitions {
    opcodes: (u64, Vec<u8>),
    instructions: (u64, Vec<u8>),
    steps: (u64, Vec<u8>),
}

/// Numbers of known definitions, for encoding.
#[derive(Debug, Default)]
pub(super) struct Index {
    opcodes: HashMap<(String, bool), u16>,
    instructions: HashMap<Instruction, u32>,
    steps: HashMap<(u32, u32, Shape), u32>,
}

impl NewDefinitions {
    /// Appends the definitions and clears them.
    pub(super) fn write(&mut self, out: &mut Vec<u8>) {
        for (count, bytes) in [&mut self.opcodes, &mut self.instructions, &mut self.steps] {
            put(out, *count);
            out.append(bytes);
            *count = 0;
        }
    }
}

impl Index {
    /// Returns the number of instructions.
    pub(super) fn instructions(&self) -> usize {
        self.instructions.len()
    }

    /// Returns the step and instruction numbers of an instruction of `code`; new ones are encoded
    /// to `added`.
    pub(super) fn step(
        &mut self,
        code: &Code,
        at: usize,
        names: &[String],
        added: &mut NewDefinitions,
    ) -> Result<(u32, u32), Problem> {
        let inst = &code.insts()[at];
        let name = code.opcode(at).and_then(|number| names.get(usize::from(number)));
        let instruction = self.instruction(inst, name.map(String::as_str), added)?;
        let shape = match code.addresses(inst) {
            _ if inst.width == 0 => Shape::None,
            Addresses::List(_) => Shape::List,
            Addresses::Strided { stride, .. } => Shape::Strided(stride),
        };
        let next = self.steps.len() as u32;
        let step = *self.steps.entry((instruction, inst.mask, shape)).or_insert(next);
        if step == next {
            added.steps.0 += 1;
            let out = &mut added.steps.1;
            put(out, instruction.into());
            put(out, (!inst.mask).into());
            put(
                out,
                match shape {
                    Shape::None => 0,
                    Shape::List => 1,
                    Shape::Strided(stride) => 2 + zigzag(stride.into()),
                },
            );
        }
        Ok((step, instruction))
    }

    /// Returns the number of an instruction, keeping its traced opcode if it has one.
    fn instruction(
        &mut self,
        inst: &Inst,
        name: Option<&str>,
        added: &mut NewDefinitions,
    ) -> Result<u32, Problem> {
        let formatted = opcode::format_opcode(inst.op, inst.width);
        let accesses = inst.width > 0;
        let space = |name: &str| match accel::op_of(name, inst.dst, accesses) {
            op if op == inst.op => Some(0),
            _ => SPACES.iter().position(|&op| op == inst.op && accesses).map(|at| at as u8 + 1),
        };
        let chosen = name.into_iter().chain([formatted.as_str()]).find_map(|name| Some((name, space(name)?)));
        let (name, space) = chosen.ok_or(damaged("an instruction that has no spelling"))?;
        let opcode = self.opcode(name, accesses, added);
        let key = Instruction { opcode, space, dst: inst.dst, src: inst.src, width: inst.width };
        let next = self.instructions.len() as u32;
        let number = *self.instructions.entry(key).or_insert(next);
        if number == next {
            added.instructions.0 += 1;
            let used =
                inst.src.iter().rposition(|&register| register != NO_REGISTER).map_or(0, |last| last + 1);
            let out = &mut added.instructions.1;
            put(out, opcode.into());
            out.extend([space, inst.dst, inst.width, used as u8]);
            out.extend(&inst.src[..used]);
        }
        Ok(number)
    }

    fn opcode(&mut self, name: &str, accesses: bool, added: &mut NewDefinitions) -> u16 {
        let next = self.opcodes.len() as u16;
        let number = *self.opcodes.entry((name.to_owned(), accesses)).or_insert(next);
        if number == next {
            added.opcodes.0 += 1;
            put(&mut added.opcodes.1, (name.len() as u64) << 1 | u64::from(accesses));
            added.opcodes.1.extend(name.as_bytes());
        }
        number
    }
}

impl Table {
    /// Returns the number of instructions.
    pub(super) fn instructions(&self) -> usize {
        self.instructions.len()
    }

    /// Decodes a frame's definitions.
    pub(super) fn read(&mut self, bytes: &[u8], cursor: &mut Cursor) -> Result<(), Problem> {
        for _ in 0..cursor.below(bytes, MAX_DEFINITIONS, "a frame adds too many opcodes")? {
            self.read_opcode(bytes, cursor)?;
        }
        for _ in 0..cursor.below(bytes, MAX_DEFINITIONS, "a frame adds too many instructions")? {
            self.read_instruction(bytes, cursor)?;
        }
        for _ in 0..cursor.below(bytes, MAX_DEFINITIONS, "a frame adds too many steps")? {
            self.read_step(bytes, cursor)?;
        }
        Ok(())
    }

    fn read_opcode(&mut self, bytes: &[u8], cursor: &mut Cursor) -> Result<(), Problem> {
        let head = cursor.below(bytes, 512, "an opcode is longer than 255 bytes")?;
        let name = (0..head >> 1).map(|_| cursor.byte(bytes)).collect::<Result<Vec<u8>, _>>()?;
        let name = String::from_utf8(name).map_err(|_| damaged("an opcode is no text"))?;
        let known = self.opcodes.names().len();
        match self.opcodes.intern(&name, head & 1 == 1)? {
            number if usize::from(number) == known => Ok(()),
            _ => Err(damaged("an opcode comes twice")),
        }
    }

    fn read_instruction(&mut self, bytes: &[u8], cursor: &mut Cursor) -> Result<(), Problem> {
        let opcodes = self.opcodes.names();
        let opcode =
            cursor.below(bytes, opcodes.len() as u64, "an instruction has an opcode that is not defined")?;
        let (space, dst) = (cursor.byte(bytes)?, cursor.byte(bytes)?);
        let (width, used) = (cursor.byte(bytes)?, cursor.byte(bytes)?);
        if usize::from(space) > SPACES.len() || width > 64 || used > 4 {
            return Err(damaged("an instruction's space, width or number of sources is out of range"));
        }
        let mut src = [NO_REGISTER; 4];
        for register in &mut src[..usize::from(used)] {
            *register = cursor.byte(bytes)?;
        }
        let op = match usize::from(space).checked_sub(1) {
            Some(space) => SPACES[space],
            None => accel::op_of(&opcodes[opcode as usize], dst, width > 0),
        };
        self.instructions.push((Instruction { opcode: opcode as u16, space, dst, src, width }, op));
        Ok(())
    }

    fn read_step(&mut self, bytes: &[u8], cursor: &mut Cursor) -> Result<(), Problem> {
        let known = self.instructions.len() as u64;
        let instruction = cursor.below(bytes, known, "a step has an instruction that is not defined")?;
        let mask = !(cursor.below(bytes, 1 << 32, "a mask has more than 32 bits")? as u32);
        let shape = match cursor.number(bytes)? {
            0 => Shape::None,
            1 => Shape::List,
            stride => Shape::Strided(
                i32::try_from(unzigzag(stride - 2)).map_err(|_| damaged("a stride has more than 32 bits"))?,
            ),
        };
        let (Instruction { opcode, dst, src, width, .. }, op) = self.instructions[instruction as usize];
        if (shape == Shape::None) != (width == 0) {
            return Err(damaged("a step has addresses and no width, or a width and no addresses"));
        }
        let stride = if let Shape::Strided(stride) = shape { stride } else { 0 };
        let columns = opcode::columns(&self.opcodes.names()[usize::from(opcode)]);
        let inst = Inst::new(op, dst, &src).masked(mask).at(0, stride, width).of_columns(columns);
        self.steps.push(Step { inst, shape, instruction: instruction as u32, opcode });
        Ok(())
    }
}
