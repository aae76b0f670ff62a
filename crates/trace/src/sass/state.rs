//! The registers of a warp, and which of their bits are known.

use super::operand::{Place, Predicate, Source, ZERO};

/// A value, if it is known.
pub(super) type Value = Option<u32>;

/// Registers of one warp.
#[derive(Debug, Clone)]
pub(super) struct State {
    registers: Vec<[u32; 32]>,
    /// For each register the lanes whose value is not known.
    unknown: Vec<u32>,
    uniform: [Value; 64],
    predicates: [u32; 8],
    unknown_predicates: [u32; 8],
    uniform_predicates: [Option<bool>; 8],
    /// Where each lane stands: an instruction, or [`GONE`].
    pub(super) at: [usize; 32],
}

/// Where a lane stands that has ended.
pub(super) const GONE: usize = usize::MAX;

impl State {
    /// A warp whose first lanes, so many, are there.
    pub(super) fn new(lanes: u32) -> Self {
        let mut at = [GONE; 32];
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
        if let Some(place) = self.uniform.get_mut(usize::from(number)).filter(|_| number != 63) {
            *place = value;
        }
    }

    /// The value of a place that needs no memory, before negation; constants are looked up by `constant`.
    #[inline]
    pub(super) fn place(&self, place: Place, lane: usize, constant: impl Fn(u8, u32) -> Value) -> Value {
        match place {
            Place::Register(number) => self.register(number, lane),
            Place::Uniform(number) => self.uniform(number),
            Place::Immediate(value) => Some(value),
            Place::Float(value) => Some((value as f32).to_bits()),
            Place::Constant(bank, offset, added) => {
                constant(bank, offset.wrapping_add(self.register(added, lane)?))
            }
            Place::Other => None,
        }
    }

    /// The place behind this one, which holds the upper half of a pair.
    pub(super) fn upper(source: Source) -> Source {
        let place = match source.place {
            Place::Register(number) if number != ZERO => Place::Register(number.wrapping_add(1)),
            Place::Uniform(number) if number < 63 => Place::Uniform(number + 1),
            Place::Constant(bank, offset, added) => Place::Constant(bank, offset + 4, added),
            Place::Immediate(value) => Place::Immediate(if (value as i32) < 0 { u32::MAX } else { 0 }),
            other => other,
        };
        Source { place, ..source }
    }

    /// A predicate, if it is known.
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
