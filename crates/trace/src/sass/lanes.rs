//! Cross-lane instructions.

use super::{
    decode::{Decoded, Flag},
    exec::{Work, lanes},
    operand::TRUE,
    state::Value,
};

impl Work<'_> {
    /// `SHFL`: reads a register of another lane.
    pub(super) fn shuffle(&mut self) {
        let (destination, sources) = (self.instruction.destination, &self.instruction.sources);
        let values: Vec<Value> = (0..32).map(|lane| self.int(*sources.first()?, lane)).collect();
        for lane in lanes(self.mask) {
            let from = || {
                let (by, limits) = (self.int(*sources.get(1)?, lane)?, self.int(*sources.get(2)?, lane)?);
                let (lane, by, segment, clamp) = (lane as u32, by & 31, limits >> 8 & 31, limits & 31);
                let (low, high) = (lane & segment, (lane & segment) | (clamp & !segment));
                let i = self.instruction;
                let from = match () {
                    () if i.has(Flag::Idx) => low | by & !segment,
                    () if i.has(Flag::Up) => lane.wrapping_sub(by),
                    () if i.has(Flag::Down) => lane + by,
                    () => lane ^ by,
                };
                let inside = if i.has(Flag::Up) { from as i32 >= high as i32 } else { from <= high };
                Some(if inside { from } else { lane })
            };
            let value = from().and_then(|from| values[from as usize & 31]);
            self.write(destination, lane, value);
        }
    }

    /// `VOTE`: combines a predicate over the lanes.
    pub(super) fn vote(&mut self) {
        let Decoded { outputs, inputs, destination, .. } = self.instruction;
        let input = inputs.last().copied().unwrap_or(TRUE);
        let votes = lanes(self.mask).map(|lane| Some((lane, self.state.predicate(input, lane)?)));
        let votes: Option<Vec<(usize, bool)>> = votes.collect();
        let ballot =
            votes.map(|votes| votes.iter().fold(0u32, |sum, &(lane, vote)| sum | u32::from(vote) << lane));
        let mask = self.mask;
        let result =
            ballot.map(|ballot| if self.instruction.has(Flag::All) { ballot == mask } else { ballot != 0 });
        for lane in lanes(mask) {
            self.write(*destination, lane, ballot);
            outputs.iter().for_each(|&output| self.state.set_predicate(output, lane, result));
        }
    }

    /// `REDUX.SUM`: sums a register over the lanes.
    pub(super) fn sum(&mut self) {
        let (destination, sources) = (self.instruction.destination, &self.instruction.sources);
        let values: Option<Vec<u32>> =
            lanes(self.mask).map(|lane| self.int(*sources.first()?, lane)).collect();
        let sum = values.filter(|_| self.instruction.has(Flag::Sum));
        let sum = sum.map(|values| values.iter().fold(0u32, |sum, &value| sum.wrapping_add(value)));
        self.write(destination, 0, sum);
    }
}
