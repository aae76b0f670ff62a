//! Registers of a warp, with unknown values tracked.

use super::operand::{Location, Predicate, Source, ZERO};

/// A value, if it is known.
pub(super) type Value = Option<u32>;

/// Registers of one warp.
#[derive(Debug, Clone)]
pub(super) struct State {
    registers: Vec<[u32; 32]>,
    /// Mask of lanes with unknown value, per register.
    unknown: Vec<u32>,
    uniform: [Value; 64],
    predicates: [u32; 8],
    unknown_predicates: [u32; 8],
    uniform_predicates: [Option<bool>; 8],
    /// PC of each lane: an instruction index or [`EXITED`].
    pub(super) at: [usize; 32],
}

/// PC of a lane that has exited.
pub(super) const EXITED: usize = usize::MAX;

impl State {
    /// Creates a warp with its first `lanes` lanes active.
    pub(super) fn new(lanes: u32) -> Self {
        let mut at = [EXITED; 32];
        at[..lanes as usize].fill(0);
        Self {
            registers: vec![[0; 32]; 256],
            unknown: vec![0; 256],
            uniform: [Some(0); 64],
            predicates: [0, 0, 0, 0, 0, 0, 0, u32::MAX],
            unknown_predicates: [0; 8],
            uniform_predicates: [
                Some(false),
                Some(false),
                Some(false),
                Some(false),
                Some(false),
                Some(false),
                Some(false),
                Some(true),
            ],
            at,
        }
    }

    #[inline]
    pub(super) fn register(&self, number: u8, lane: usize) -> Value {
        let number = usize::from(number);
        (self.unknown[number] >> lane & 1 == 0).then_some(self.registers[number][lane])
    }

    #[inline]
    pub(super) fn set_register(&mut self, number: u8, lane: usize, value: Value) {
        if number == ZERO {
            return;
        }
        let (number, bit) = (usize::from(number), 1 << lane);
        match value {
            Some(value) => {
                self.registers[number][lane] = value;
                self.unknown[number] &= !bit;
            }
            None => self.unknown[number] |= bit,
        }
    }

    #[inline]
    pub(super) fn uniform(&self, number: u8) -> Value {
        self.uniform.get(usize::from(number)).copied().unwrap_or(Some(0))
    }

    pub(super) fn set_uniform(&mut self, number: u8, value: Value) {
        if let Some(location) = self.uniform.get_mut(usize::from(number)).filter(|_| number != 63) {
            *location = value;
        }
    }

    /// Returns the value of a location other than memory, before negation; `constant` looks up
    /// constants.
    #[inline]
    pub(super) fn location(
        &self,
        location: Location,
        lane: usize,
        constant: impl Fn(u8, u32) -> Value,
    ) -> Value {
        match location {
            Location::Register(number) => self.register(number, lane),
            Location::Uniform(number) => self.uniform(number),
            Location::Immediate(value) => Some(value),
            Location::Float(value) => Some((value as f32).to_bits()),
            Location::Constant(bank, offset, added) => {
                constant(bank, offset.wrapping_add(self.register(added, lane)?))
            }
            Location::Other => None,
        }
    }

    /// Returns the location of the upper half of a pair.
    pub(super) fn upper(source: Source) -> Source {
        let location = match source.location {
            Location::Register(number) if number != ZERO => Location::Register(number.wrapping_add(1)),
            Location::Uniform(number) if number < 63 => Location::Uniform(number + 1),
            Location::Constant(bank, offset, added) => Location::Constant(bank, offset + 4, added),
            Location::Immediate(value) => Location::Immediate(if (value as i32) < 0 { u32::MAX } else { 0 }),
            other => other,
        };
        Source { location, ..source }
    }

    /// Returns a predicate, if known.
    #[inline]
    pub(super) fn predicate(&self, predicate: Predicate, lane: usize) -> Option<bool> {
        let number = usize::from(predicate.number);
        let value = if predicate.uniform {
            self.uniform_predicates[number]
        } else {
            let known = self.unknown_predicates[number] >> lane & 1 == 0;
            known.then_some(self.predicates[number] >> lane & 1 == 1)
        };
        value.map(|value| value != predicate.not)
    }

    pub(super) fn set_predicate(&mut self, predicate: Predicate, lane: usize, value: Option<bool>) {
        let number = usize::from(predicate.number);
        if number == 7 {
            return;
        }
        if predicate.uniform {
            self.uniform_predicates[number] = value;
            return;
        }
        let bit = 1 << lane;
        self.unknown_predicates[number] &= !bit;
        self.predicates[number] &= !bit;
        match value {
            Some(true) => self.predicates[number] |= bit,
            Some(false) => {}
            None => self.unknown_predicates[number] |= bit,
        }
    }
}
