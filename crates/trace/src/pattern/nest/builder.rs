//! Lowers a body to instructions: registers, addresses and loop control.

use super::{Access, Slot};
use crate::{
    Inst, NO_REGISTER, Op,
    pattern::{Affine, Array, Body, body::Part},
};

/// Largest offset, in elements, that fits the instruction's immediate.
const REACH: i64 = 8;

/// Register allocation: loop counter, addresses and indices, loaded values, accumulators.
const COUNTER: u8 = 2;
const ADDRESSES: [u8; 2] = [4, 12];
const LOADED: [u8; 2] = [16, 184];
const SUMS: u8 = 192;

/// Lowers the operations of a body to instructions.
#[derive(Debug, Default)]
pub(super) struct Builder {
    slots: Vec<Slot>,
    /// Last affine access of each array.
    near: Vec<(Array, Affine)>,
    addresses: u8,
    /// Number of loads so far; the last ones' values are in registers.
    loads: u32,
    stores: u8,
    chains: u8,
    number: u8,
}

impl Builder {
    /// Returns the instructions of one step.
    pub(super) fn build(mut self, body: &Body) -> Vec<Slot> {
        self.chains = 1;
        for part in &body.parts {
            self.add(part);
        }
        self.push(Inst::new(Op::Int, COUNTER, &[COUNTER]), Access::None);
        self.push(Inst::new(Op::Int, NO_REGISTER, &[COUNTER]), Access::None);
        self.push(Inst::new(Op::Control, NO_REGISTER, &[]), Access::None);
        self.slots
    }

    fn push(&mut self, inst: Inst, access: Access) {
        self.slots.push(Slot { inst, access });
    }

    fn add(&mut self, part: &Part) {
        match part {
            Part::Even { op, array, place } => {
                let address = self.address(*array, *place);
                self.access(*op, address, Access::Even { array: *array, place: *place });
            }
            Part::Index(index) => {
                let address = self.address(index.array, index.place);
                let (array, place) = (index.array, index.place);
                self.number = self.next_address();
                let access = match &index.rows {
                    Some(rows) => Access::Row { array, place, rows: rows.clone() },
                    None => Access::Even { array, place },
                };
                self.push(Inst::new(Op::LoadGlobal, self.number, &[address]), access);
            }
            Part::Listed { op, array, index, scale, first } => {
                let address = self.next_address();
                self.push(Inst::new(Op::Int, address, &[self.number]), Access::None);
                let (index, scale, first) = (index.clone(), *scale, *first);
                self.access(*op, address, Access::Listed { array: *array, index, scale, first });
            }
            Part::Shared { op, width } => self.access(*op, COUNTER, Access::Shared { width: *width }),
            Part::Work { op, count, chains } => self.work(*op, *count, *chains),
            Part::Barrier => self.push(Inst::new(Op::Barrier, NO_REGISTER, &[]), Access::None),
        }
    }

    fn next_address(&mut self) -> u8 {
        self.addresses = (self.addresses + 1) % (ADDRESSES[1] - ADDRESSES[0]);
        ADDRESSES[0] + self.addresses
    }

    /// Returns the register of an address, computing it unless a nearby one is available.
    fn address(&mut self, array: Array, place: Affine) -> u8 {
        let near = |(of, last): &(Array, Affine)| {
            let same = (*of, last.along, last.step) == (array, place.along, place.step);
            same && (last.first - place.first).abs() <= REACH
        };
        if self.near.iter().any(near) {
            return ADDRESSES[0] + self.addresses;
        }
        let address = self.next_address();
        self.push(Inst::new(Op::Int, address, &[COUNTER]), Access::None);
        self.near.push((array, place));
        address
    }

    /// Appends a load into the next register, or a store of the next accumulator.
    fn access(&mut self, op: Op, address: u8, access: Access) {
        let inst = if matches!(op, Op::StoreGlobal | Op::StoreShared) {
            self.stores = (self.stores + 1) % self.chains;
            Inst::new(op, NO_REGISTER, &[address, SUMS + 2 * self.stores])
        } else {
            let register = self.loaded(self.loads);
            self.loads += 1;
            Inst::new(op, register, &[address])
        };
        self.push(inst, access);
    }

    fn loaded(&self, load: u32) -> u8 {
        let registers = u32::from(LOADED[1] - LOADED[0]) / 2;
        LOADED[0] + 2 * (load % registers) as u8
    }

    fn work(&mut self, op: Op, count: u32, chains: u8) {
        self.chains = chains;
        for number in 0..count {
            let sum = SUMS + 2 * (number % u32::from(chains)) as u8;
            let value = if self.loads == 0 { COUNTER } else { self.loaded(number % self.loads) };
            self.push(Inst::new(op, sum, &[sum, value]), Access::None);
        }
    }
}
