//! Execution of instructions without memory access.

use super::{
    bits,
    decode::{Decoded, Flag, Kind},
    float,
    operand::{Location, Predicate, Source, TRUE},
    state::{State, Value},
};

/// Inputs of a warp other than its registers.
pub(super) struct WarpContext<'a> {
    /// Constant bank 0, by word: block and grid sizes, and the kernel's arguments.
    pub(super) constants: &'a [Value],
    pub(super) block: [u32; 3],
    pub(super) block_size: [u32; 3],
    pub(super) first_thread: u32,
}

impl WarpContext<'_> {
    /// Returns a word of a constant bank.
    #[inline]
    pub(super) fn constant(&self, bank: u8, offset: u32) -> Value {
        if bank == 0 { self.constants.get(offset as usize / 4).copied().flatten() } else { None }
    }

    /// Returns the value of a special register.
    fn special(&self, name: &str, lane: usize) -> Value {
        let thread = self.first_thread + lane as u32;
        let [x, y, _] = self.block_size;
        Some(match name {
            "SR_TID.X" => thread % x,
            "SR_TID.Y" => thread / x % y,
            "SR_TID.Z" => thread / x / y,
            "SR_CTAID.X" => self.block[0],
            "SR_CTAID.Y" => self.block[1],
            "SR_CTAID.Z" => self.block[2],
            "SR_LANEID" => lane as u32,
            "SR_CgaCtaId" | "SRZ" => 0,
            _ => return None,
        })
    }
}

/// One instruction in execution.
pub(super) struct Work<'a> {
    pub(super) instruction: &'a Decoded,
    pub(super) state: &'a mut State,
    pub(super) context: &'a WarpContext<'a>,
    /// Active lanes.
    pub(super) mask: u32,
}

/// Iterates over the lanes of a mask.
pub(super) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| mask >> lane & 1 == 1)
}

impl Work<'_> {
    /// Executes the instruction; an unsupported one makes its destination unknown.
    pub(super) fn run(&mut self) {
        let i = self.instruction;
        match i.kind {
            Kind::Shfl => return self.shuffle(),
            Kind::Vote | Kind::Voteu => return self.vote(),
            Kind::Redux => return self.sum(),
            _ => {}
        }
        let mask = if i.uniform { self.mask & self.mask.wrapping_neg() } else { self.mask };
        for lane in lanes(mask) {
            self.lane(lane, i.destination, &i.sources);
        }
    }

    fn lane(&mut self, lane: usize, destination: Option<Location>, sources: &[Source]) {
        let i = self.instruction;
        match i.kind {
            Kind::Isetp | Kind::Fsetp => return self.compare(lane, sources),
            Kind::Plop3 => return self.logic(lane),
            Kind::Imad if i.has(Flag::Wide) => return self.wide(lane, destination, sources),
            Kind::Iadd3 => return self.add(lane, destination, sources),
            Kind::Lea => return self.scaled_add(lane, destination, sources),
            Kind::Ldc | Kind::Uldc | Kind::Ldcu | Kind::Cs2r => {
                return self.words(lane, destination, sources);
            }
            Kind::Other => return self.mark_unknown(lane, destination),
            _ => {}
        }
        let value = self.value(lane, sources);
        self.write(destination, lane, value);
        if i.kind == Kind::Lop3 {
            let is_set = value.map(|value| value != 0);
            i.outputs.iter().for_each(|&output| self.state.set_predicate(output, lane, is_set));
        }
    }

    /// Computes a 32-bit result of a lane.
    fn value(&self, lane: usize, sources: &[Source]) -> Value {
        let i = self.instruction;
        let int = |index: usize| self.int(*sources.get(index)?, lane);
        let signed = |index: usize| int(index).map(|value| value as i32);
        let last = || self.state.predicate(i.inputs.last().copied().unwrap_or(TRUE), lane);
        Some(match i.kind {
            Kind::Mov | Kind::Mov32i | Kind::R2ur => int(0)?,
            Kind::S2r | Kind::S2ur => self.context.special(i.special.as_ref()?, lane)?,
            Kind::Imad if i.has(Flag::Hi) => {
                let product = u64::from(int(0)?) * u64::from(int(1)?);
                (product.wrapping_add(self.pair(sources[2], lane)?) >> 32) as u32
            }
            Kind::Imad => {
                let carry = if i.has(Flag::X) { u32::from(last()?) } else { 0 };
                int(0)?.wrapping_mul(int(1)?).wrapping_add(int(2)?).wrapping_add(carry)
            }
            Kind::Viadd => int(0)?.wrapping_add(int(1)?),
            Kind::Lop3 => bits::lut(int(0)?, int(1)?, int(2)?, int(3)?),
            Kind::Shf => {
                let signed = i.has(Flag::S32) || i.has(Flag::S64);
                let long = i.has(Flag::U64) || i.has(Flag::S64);
                bits::funnel([int(0)?, int(1)?, int(2)?], i.has(Flag::Right), (long, signed), i.has(Flag::Hi))
            }
            Kind::Sel | Kind::Fsel => {
                if last()? {
                    int(0)?
                } else {
                    int(1)?
                }
            }
            Kind::Imnmx | Kind::Vimnmx => self.min(int(0)?, int(1)?, last()?),
            Kind::Viaddmnmx => self.min(int(0)?.wrapping_add(int(1)?), int(2)?, last()?),
            Kind::Vimnmx3 => self.min(self.min(int(0)?, int(1)?, last()?), int(2)?, last()?),
            Kind::Iabs => signed(0)?.unsigned_abs(),
            Kind::Popc => int(0)?.count_ones(),
            Kind::Flo => 31u32.wrapping_sub(int(0)?.leading_zeros()),
            Kind::Prmt => {
                let bytes = (u64::from(int(2)?) << 32 | u64::from(int(0)?)).to_le_bytes();
                let picks = int(1)?;
                (0..4).fold(0, |sum, byte| {
                    let pick = picks >> (4 * byte) & 15;
                    let value = bytes[pick as usize & 7];
                    let value =
                        if pick & 8 == 8 { if value & 0x80 == 0x80 { 0xff } else { 0 } } else { value };
                    sum | u32::from(value) << (8 * byte)
                })
            }
            Kind::Hfma2 => self.halves(sources)?,
            _ => return float::value(self, lane, sources),
        })
    }

    /// Returns the minimum or maximum of two numbers.
    fn min(&self, a: u32, b: u32, min: bool) -> u32 {
        let first = if self.instruction.has(Flag::U32) { a < b } else { (a as i32) < b as i32 };
        if first == min { a } else { b }
    }

    /// `HFMA2 R, -RZ, RZ, high, low`: a compiler idiom to load a constant.
    fn halves(&self, sources: &[Source]) -> Value {
        let zero = |source: &Source| source.location == Location::Register(super::operand::ZERO);
        let constant = |source: &Source| match source.location {
            Location::Float(value) => Some(bits::half(if source.negated { -value } else { value })),
            _ => None,
        };
        match sources {
            [a, b, high, low] if zero(a) && zero(b) => Some(constant(high)? << 16 | constant(low)?),
            _ => None,
        }
    }

    /// 64-bit product of two 32-bit numbers.
    fn wide(&mut self, lane: usize, destination: Option<Location>, sources: &[Source]) {
        let value = || {
            let (a, b) = (self.int(sources[0], lane)?, self.int(sources[1], lane)?);
            let product = if self.instruction.has(Flag::U32) {
                u64::from(a) * u64::from(b)
            } else {
                (i64::from(a as i32) * i64::from(b as i32)) as u64
            };
            Some(product.wrapping_add(self.pair(*sources.get(2)?, lane)?))
        };
        let value = if sources.len() < 3 { None } else { value() };
        self.write_pair(destination, lane, value);
    }

    /// Three-input addition with carries.
    fn add(&mut self, lane: usize, destination: Option<Location>, sources: &[Source]) {
        let Decoded { outputs, inputs, .. } = self.instruction;
        let sum = || {
            let carry = |at: usize| match inputs.get(at) {
                Some(input) if self.instruction.has(Flag::X) => {
                    self.state.predicate(*input, lane).map(u64::from)
                }
                _ => Some(0),
            };
            let mut sum = carry(0)? + carry(1)?;
            for source in sources {
                // A negated number is the complement plus one, which may carry.
                let raw = self.raw(*source, lane)?;
                sum += match (source.negated, source.inverted) {
                    (true, _) => u64::from(!raw) + 1,
                    (_, true) => u64::from(!raw),
                    _ => u64::from(raw),
                };
            }
            Some(sum)
        };
        let sum = sum();
        self.write(destination, lane, sum.map(|sum| sum as u32));
        self.carry_out(outputs, lane, sum);
    }

    /// `LEA`: a shifted number plus another, low or high word.
    fn scaled_add(&mut self, lane: usize, destination: Option<Location>, sources: &[Source]) {
        let Decoded { outputs, inputs, .. } = self.instruction;
        let (high, extends) = (self.instruction.has(Flag::Hi), self.instruction.has(Flag::Sx32));
        let sum = || {
            let int = |index: usize| self.int(*sources.get(index)?, lane);
            let carry = match inputs.last() {
                Some(input) if self.instruction.has(Flag::X) => {
                    u64::from(self.state.predicate(*input, lane)?)
                }
                _ => 0,
            };
            let shift = int(if high && !extends { 3 } else { 2 })? & 31;
            let shifted = match (high, extends) {
                (true, true) => ((i64::from(int(0)? as i32) << shift) as u64) >> 32,
                (true, false) => ((u64::from(int(2)?) << 32 | u64::from(int(0)?)) << shift) >> 32,
                _ => u64::from(int(0)? << shift),
            };
            Some(shifted + u64::from(int(1)?) + carry)
        };
        let sum = sum();
        self.write(destination, lane, sum.map(|sum| sum as u32));
        self.carry_out(outputs, lane, sum);
    }

    fn carry_out(&mut self, outputs: &[Predicate], lane: usize, sum: Option<u64>) {
        if let Some(&output) = outputs.first() {
            self.state.set_predicate(output, lane, sum.map(|sum| sum >> 32 != 0));
        }
    }

    /// `LDC` and similar: loads as many words as the opcode's width.
    fn words(&mut self, lane: usize, destination: Option<Location>, sources: &[Source]) {
        let i = self.instruction;
        let words = match () {
            () if i.has(Flag::B128) => 4,
            () if i.has(Flag::B64) || i.kind == Kind::Cs2r && !i.has(Flag::B32) => 2,
            () => 1,
        };
        let mut source = sources.first().copied();
        for word in 0..words {
            let value = match source {
                Some(source) => self.raw(source, lane),
                None => Some(0).filter(|_| i.special.as_deref() == Some("SRZ")),
            };
            self.write(destination.map(|location| offset_register(location, word)), lane, value);
            source = source.map(State::upper);
        }
    }

    /// Integer and single-precision comparisons.
    fn compare(&mut self, lane: usize, sources: &[Source]) {
        let i = self.instruction;
        let name = i.comparison.as_str();
        let input = |at: usize| self.state.predicate(i.inputs.get(at).copied().unwrap_or(TRUE), lane);
        let result = || {
            if i.kind == Kind::Fsetp {
                let (a, b) = (float::source(self, sources[0], lane)?, float::source(self, sources[1], lane)?);
                return bits::compare(name, a, b);
            }
            let (a, b) = (self.int(sources[0], lane)?, self.int(sources[1], lane)?);
            let plain = if i.has(Flag::U32) {
                bits::compare(name, a, b)
            } else {
                bits::compare(name, a as i32, b as i32)
            };
            // Upper half of a 64-bit comparison: if the halves are equal, the lower ones decide.
            if i.has(Flag::Ex) && a == b { input(1) } else { plain }
        };
        let result = if sources.len() < 2 { None } else { result() };
        let other = input(0);
        let joined = |result: Option<bool>| match () {
            () if i.has(Flag::Or) => {
                if result == Some(true) || other == Some(true) {
                    Some(true)
                } else {
                    Some(result? | other?)
                }
            }
            () if i.has(Flag::Xor) => Some(result? ^ other?),
            () => {
                if result == Some(false) || other == Some(false) {
                    Some(false)
                } else {
                    Some(result? & other?)
                }
            }
        };
        let (first, second) = (joined(result), joined(result.map(|result| !result)));
        for (output, value) in i.outputs.iter().zip([first, second]) {
            self.state.set_predicate(*output, lane, value);
        }
    }

    /// `PLOP3`: a lookup table of three predicates.
    fn logic(&mut self, lane: usize) {
        let Decoded { outputs, inputs, sources, .. } = self.instruction;
        let tables: Vec<u32> = sources.iter().filter_map(|source| self.int(*source, lane)).collect();
        let value = |at: usize| self.state.predicate(*inputs.get(at)?, lane).map(u32::from);
        let results: Vec<Option<bool>> = tables
            .iter()
            .map(|table| Some(table >> (value(0)? << 2 | value(1)? << 1 | value(2)?) & 1 == 1))
            .collect();
        for (output, result) in outputs.iter().zip(results) {
            self.state.set_predicate(*output, lane, result);
        }
    }

    /// Marks the results of an unsupported instruction as unknown.
    fn mark_unknown(&mut self, lane: usize, destination: Option<Location>) {
        // The most registers that any instruction writes; marking one too many is conservative.
        for word in 0..4 {
            self.write(destination.map(|location| offset_register(location, word)), lane, None);
        }
        self.instruction.outputs.iter().for_each(|&output| self.state.set_predicate(output, lane, None));
    }

    /// Returns a source's word without negation.
    #[inline]
    pub(super) fn raw(&self, source: Source, lane: usize) -> Value {
        self.state.location(source.location, lane, |bank, offset| self.context.constant(bank, offset))
    }

    /// Returns a source as an integer.
    #[inline]
    pub(super) fn int(&self, source: Source, lane: usize) -> Value {
        let value = self.raw(source, lane)?;
        let value = if source.inverted { !value } else { value };
        Some(if source.negated { value.wrapping_neg() } else { value })
    }

    /// Returns a 64-bit source.
    fn pair(&self, source: Source, lane: usize) -> Option<u64> {
        let (low, high) = (self.raw(source, lane)?, self.raw(State::upper(source), lane)?);
        let both = u64::from(high) << 32 | u64::from(low);
        Some(if source.negated { both.wrapping_neg() } else { both })
    }

    pub(super) fn write(&mut self, destination: Option<Location>, lane: usize, value: Value) {
        match destination {
            Some(Location::Register(number)) => self.state.set_register(number, lane, value),
            Some(Location::Uniform(number)) => self.state.set_uniform(number, value),
            _ => {}
        }
    }

    fn write_pair(&mut self, destination: Option<Location>, lane: usize, value: Option<u64>) {
        self.write(destination, lane, value.map(|value| value as u32));
        let high = value.map(|value| (value >> 32) as u32);
        self.write(destination.map(|location| offset_register(location, 1)), lane, high);
    }
}

/// Returns the register `words` after another.
fn offset_register(location: Location, words: u8) -> Location {
    match location {
        Location::Register(number) => Location::Register(number.saturating_add(words)),
        Location::Uniform(number) => Location::Uniform(number.saturating_add(words)),
        other => other,
    }
}
