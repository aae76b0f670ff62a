//! Parser of `nvdisasm -c` output: the instructions of one kernel.

use std::collections::HashMap;

use super::{
    decode::Decoded,
    operand::{self, Location, Operand, Predicate, Source, TRUE, ZERO},
};
use crate::{NO_REGISTER, Problem};

/// One instruction.
#[derive(Debug, Clone)]
pub(super) struct Instruction {
    pub(super) pc: u64,
    pub(super) guard: Predicate,
    /// Opcode with suffixes.
    pub(super) opcode: String,
    pub(super) operands: Vec<Operand>,
    /// Decoded form.
    pub(super) decoded: Decoded,
    /// Branch target: an instruction index.
    pub(super) target: Option<usize>,
}

/// The machine code of a kernel.
#[derive(Debug, Clone)]
pub struct Program {
    /// Kernel name.
    pub name: String,
    /// Architecture number: 90 for `sm_90`.
    pub architecture: u32,
    pub(super) instructions: Vec<Instruction>,
}

impl Instruction {
    /// Returns the opcode without suffixes.
    pub(super) fn base(&self) -> &str {
        self.opcode.split('.').next().unwrap_or_default()
    }

    /// Returns the destination register that a trace lists.
    pub(super) fn traced_destination(&self) -> u8 {
        match self.decoded.destination {
            Some(Location::Register(number)) => number,
            _ => NO_REGISTER,
        }
    }

    /// Returns the source registers that a trace lists: at most four, without RZ.
    pub(super) fn traced_sources(&self) -> Vec<u8> {
        let first = destination(&self.opcode, &self.operands).map_or(0, |index| index + 1);
        let registers = self.operands[first..].iter().filter_map(|operand| match operand {
            Operand::Source(Source { location: Location::Register(number), .. }) => Some(*number),
            Operand::Address(address) => Some(address.register),
            _ => None,
        });
        registers.filter(|&number| number != ZERO).take(4).collect()
    }
}

impl Program {
    /// Parses a kernel from the output of `nvdisasm -c`.
    ///
    /// # Errors
    /// [`Problem`] if the text has no such kernel or no architecture.
    pub fn parse(text: &str, name: &str) -> Result<Self, Problem> {
        let target =
            text.lines().find_map(|line| line.trim().strip_prefix(".target")?.trim().strip_prefix("sm_"));
        let digits = target.map(|target| target.trim_end_matches(|letter: char| !letter.is_ascii_digit()));
        let architecture = digits.and_then(|digits| digits.parse().ok());
        let architecture = architecture.ok_or(Problem::Header(".target"))?;
        let start = format!(".text.{name}:");
        let body = text.lines().skip_while(|line| line.trim() != start).skip(1);
        let body = body.take_while(|line| !line.starts_with("//---"));
        let (mut instructions, mut labels) = (Vec::new(), HashMap::new());
        for line in body {
            let line = line.trim();
            if let Some(label) = line.strip_suffix(':') {
                labels.insert(label.to_owned(), instructions.len());
            } else if let Some(instruction) = instruction(line) {
                instructions.push(instruction);
            }
        }
        if instructions.is_empty() {
            return Err(Problem::expected("the machine code of the kernel", name));
        }
        for instruction in &mut instructions {
            let label = instruction.operands.iter().find_map(|operand| match operand {
                Operand::Label(label) => labels.get(label).copied(),
                _ => None,
            });
            instruction.target = label;
        }
        Ok(Self { name: name.to_owned(), architecture, instructions })
    }
}

/// Parses `/*0010*/ @!P0 IADD3 R0, R1, 0x1, RZ ;`.
fn instruction(line: &str) -> Option<Instruction> {
    let (pc, rest) = line.strip_prefix("/*")?.split_once("*/")?;
    let pc = u64::from_str_radix(pc, 16).ok()?;
    let rest = rest.split(';').next()?.trim();
    let (guard, rest) = match rest.strip_prefix('@') {
        Some(rest) => {
            let (guard, rest) = rest.split_once(' ')?;
            (operand::predicate(guard)?, rest.trim())
        }
        None => (TRUE, rest),
    };
    let (opcode, operands) = rest.split_once(' ').unwrap_or((rest, ""));
    let operands = operands.split(',').map(str::trim).filter(|operand| !operand.is_empty());
    // `RET.REL.NODEC R2 `(kernel)` has two operands without a comma.
    let operands = operands.flat_map(|operand| operand.split(" `").map(str::to_owned).collect::<Vec<_>>());
    let operands: Vec<Operand> = operands.map(|operand| operand::parse(&operand)).collect();
    let decoded = Decoded::new(opcode, &operands, destination(opcode, &operands));
    let opcode = opcode.to_owned();
    (!opcode.is_empty()).then_some(Instruction { pc, guard, opcode, operands, decoded, target: None })
}

/// Returns the index of the destination operand; `None` for stores, comparisons and branches.
fn destination(opcode: &str, operands: &[Operand]) -> Option<usize> {
    let base = opcode.split('.').next().unwrap_or_default();
    let stores = base.starts_with("ST") || base.starts_with("RED") && base != "REDUX";
    let none = ["BRA", "BAR", "EXIT", "RET", "FCHK", "PLOP3", "UPLOP3"].contains(&base);
    if stores || none || base.contains("SETP") {
        return None;
    }
    let first = operands.iter().position(|operand| !matches!(operand, Operand::Predicate(_)))?;
    let is_register = |location| matches!(location, Location::Register(_) | Location::Uniform(_));
    matches!(&operands[first], Operand::Source(source) if is_register(source.location)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\t.target\tsm_90\n//----- .text.k ----\n.text.k:\n        /*0000*/  LDC R1, c[0x0][0x28] ;\n\
        .L_x_0:\n        /*0010*/  @!P0 IMAD.WIDE R2, R5.reuse, 0x4, R2 ;\n        /*0020*/  @P1 BRA `(.L_x_0);\n\
        /*0030*/  STG.E desc[UR4][R2.64], R7 ;\n        /*0040*/  LOP3.LUT P0, RZ, R3, 0x1f, RZ, 0xc0, !PT ;\n\
        /*0050*/  EXIT ;\n.L_x_1:\n//---- .text.other";

    #[test]
    fn a_small_kernel_parses_as_written() {
        let program = Program::parse(TEXT, "k").unwrap();
        assert_eq!((program.architecture, program.instructions.len()), (90, 6));
        let traced = |index: usize| {
            let one: &Instruction = &program.instructions[index];
            (one.pc, one.opcode.as_str(), one.traced_destination(), one.traced_sources())
        };
        assert_eq!(traced(1), (0x10, "IMAD.WIDE", 2, vec![5, 2]));
        assert_eq!(traced(3), (0x30, "STG.E", NO_REGISTER, vec![2, 7]));
        assert_eq!(traced(4), (0x40, "LOP3.LUT", NO_REGISTER, vec![3]));
        assert_eq!(program.instructions[2].target, Some(1));
        assert!(program.instructions[1].guard.not);
        assert!(Program::parse(TEXT, "nothing").is_err());
    }
}
