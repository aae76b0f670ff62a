//! A nest of loops: threads over a box of points, each of which runs some bodies for some steps.
//!
//! Most kernels of scientific programs are one: streams, stencils over any number of arrays, solves along
//! lines, gathers by a list.
//!
//! The instructions that a compiler adds are made by rule. Every access has its address computed by one integer
//! instruction, unless it lies within [`REACH`] elements of the access before it in the same array, where the
//! offset is part of the instruction. Every step has one to count, one to compare and a branch.

use super::{Array, Body, Index, List, Place, body::Part, lanes_for};
use crate::{At, Code, Error, Inst, Kernel, Launch, NO_REGISTER, Op, WARP_LANES};

/// How far an offset reaches that needs no instruction, in elements.
const REACH: i64 = 8;
/// Warps of a block.
const WARPS: u32 = 4;
/// Instructions that are made at a time: a warp keeps no more in memory.
const PIECE: usize = 48;

/// Registers: one counts, some hold addresses and numbers of lists, most hold what was loaded, the last the sums.
const COUNTER: u8 = 2;
const ADDRESSES: [u8; 2] = [4, 12];
const LOADED: [u8; 2] = [16, 184];
const SUMS: u8 = 192;

/// A kernel of nested loops.
#[derive(Debug, Clone)]
pub struct Nest {
    launch: Launch,
    /// Threads along each axis; those along the first are neighbours in a warp.
    size: [u64; 4],
    phases: Vec<Phase>,
}

/// A body that is repeated, cut into pieces.
#[derive(Debug, Clone)]
struct Phase {
    steps: u32,
    pieces: Vec<Vec<Slot>>,
}

/// An instruction, and how its addresses follow from the thread and the step.
#[derive(Debug, Clone)]
struct Slot {
    inst: Inst,
    access: Access,
}

#[derive(Debug, Clone)]
enum Access {
    None,
    /// Bytes from lane to lane, and the place in bytes.
    Even {
        array: Array,
        place: Place,
    },
    Listed {
        array: Array,
        index: Index,
        scale: i64,
        first: i64,
    },
    Row {
        array: Array,
        place: Place,
        rows: List,
    },
    Shared {
        width: u8,
    },
}

impl Nest {
    /// Threads over a box of `size` points; `registers` of each thread decide how many fit an SM.
    pub fn new(name: &str, size: [usize; 4], registers: u32) -> Self {
        let size = size.map(|side| side as u64);
        let warps = size[0].div_ceil(u64::from(WARP_LANES)) * size[1] * size[2] * size[3];
        let blocks = u32::try_from(warps.div_ceil(u64::from(WARPS))).expect("at most 2^39 threads");
        let launch = Launch { registers, ..Launch::linear(name, blocks, WARPS * WARP_LANES) };
        Self { launch, size, phases: Vec::new() }
    }

    /// Adds a body that every thread runs for `steps`, after those added before.
    pub fn phase(mut self, steps: usize, body: &Body) -> Self {
        let slots = Builder::default().build(body);
        if slots.iter().any(|slot| slot.inst.op.is_shared()) {
            self.launch.shared_bytes = WARPS * WARP_LANES * 16;
        }
        let pieces = slots.chunks(PIECE).map(<[Slot]>::to_vec).collect();
        let steps = u32::try_from(steps).expect("at most 2^32 steps");
        self.phases.push(Phase { steps, pieces });
        self
    }

    /// Warp instructions of a whole run, before lanes that rest are left out.
    pub fn instructions(&self) -> u64 {
        let warps = self.size[0].div_ceil(u64::from(WARP_LANES)) * self.size[1] * self.size[2] * self.size[3];
        let per_warp = |phase: &Phase| {
            u64::from(phase.steps) * phase.pieces.iter().map(|piece| piece.len() as u64).sum::<u64>()
        };
        warps * self.phases.iter().map(per_warp).sum::<u64>()
    }

    /// The slots of a piece and the step they belong to.
    fn piece(&self, number: u32) -> Option<(&[Slot], i64)> {
        let mut number = number as usize;
        for phase in &self.phases {
            let pieces = phase.pieces.len() * phase.steps as usize;
            if number < pieces {
                let step = number / phase.pieces.len();
                return Some((&phase.pieces[number % phase.pieces.len()], step as i64));
            }
            number -= pieces;
        }
        None
    }

    /// Where the first thread of a warp is, and how many threads the warp has; none past the last.
    fn place(&self, warp: u64) -> Option<([i64; 4], u64)> {
        let [nx, ny, nz, nw] = self.size;
        let row = nx.div_ceil(u64::from(WARP_LANES));
        let (x, line) = (warp % row * u64::from(WARP_LANES), warp / row);
        let at = [x, line % ny, line / ny % nz, line / ny / nz];
        (at[3] < nw).then(|| (at.map(|part| part as i64), nx - x))
    }
}

impl Kernel for Nest {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        let warp = at.block * u64::from(WARPS) + u64::from(at.warp);
        let (Some((slots, step)), Some((place, left))) = (self.piece(at.step), self.place(warp)) else {
            return Ok(());
        };
        let mask = lanes_for(left);
        for slot in slots {
            slot.push(place, step, at.warp, mask, code);
        }
        Ok(())
    }
}

impl Slot {
    #[inline]
    fn push(&self, at: [i64; 4], step: i64, warp: u32, mask: u32, code: &mut Code) {
        let inst = self.inst.masked(mask);
        match &self.access {
            Access::None => code.push(inst),
            Access::Even { array, place } => {
                let stride = place.along[0] * i64::from(array.element_bytes);
                let base = array.address(place.element(at, step) as u64);
                code.push(inst.at(base, stride as i32, array.element_bytes));
            }
            Access::Shared { width } => {
                let base = u64::from(warp * WARP_LANES) * u64::from(*width);
                code.push(inst.at(base, i32::from(*width), *width));
            }
            Access::Row { array, place, rows } => {
                let each = |item: usize| in_row(rows, item, step).map(|number| number as i64);
                push_listed(inst, *array, place, at, each, code);
            }
            Access::Listed { array, index, scale, first } => {
                let each = |item: usize| {
                    let number = match &index.rows {
                        Some(rows) => in_row(rows, item, step)?,
                        None => item,
                    };
                    Some(first + scale * i64::from(index.list[number]))
                };
                let place = Place { first: index.place.first + index.place.step * step, ..index.place };
                push_listed(inst, *array, &place, at, each, code);
            }
        }
    }
}

/// Where a row has its number of this step, if it is that long.
#[inline]
fn in_row(rows: &[i32], row: usize, step: i64) -> Option<usize> {
    let number = i64::from(rows[row]) + step;
    (number < i64::from(rows[row + 1])).then_some(number as usize)
}

/// An access of the lanes for which `element` finds one.
fn push_listed(
    inst: Inst,
    array: Array,
    place: &Place,
    at: [i64; 4],
    element: impl Fn(usize) -> Option<i64>,
    code: &mut Code,
) {
    let (mut addresses, mut active, mut mask) = ([0; WARP_LANES as usize], 0, 0);
    let item = place.element(at, 0);
    for lane in 0..inst.lanes() {
        if let Some(element) = element((item + place.along[0] * i64::from(lane)) as usize) {
            addresses[active] = array.address(element as u64);
            active += 1;
            mask |= 1 << lane;
        }
    }
    if mask != 0 {
        code.push_list(inst.masked(mask), array.element_bytes, &addresses[..active]);
    }
}

/// Turns the parts of a body into instructions.
#[derive(Debug, Default)]
struct Builder {
    slots: Vec<Slot>,
    /// The last access of each array, as far as it was even.
    near: Vec<(Array, Place)>,
    addresses: u8,
    /// Loads so far; what they loaded lies in the registers of the last of them.
    loads: u32,
    stores: u8,
    chains: u8,
    number: u8,
}

impl Builder {
    fn build(mut self, body: &Body) -> Vec<Slot> {
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

    /// The register with an address, computed unless one near it is known.
    fn address(&mut self, array: Array, place: Place) -> u8 {
        let near = |(of, last): &(Array, Place)| {
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

    /// A load into the next register, or a store of the next sum.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Addresses;

    const A: Array = Array { base: 1 << 20, element_bytes: 8 };
    const B: Array = Array { base: 1 << 21, element_bytes: 4 };

    fn all(nest: &mut Nest) -> Vec<(u32, Code)> {
        let mut pieces = Vec::new();
        for block in 0..nest.launch().blocks() {
            for (warp, step) in (0..WARPS).flat_map(|warp| (0..64).map(move |step| (warp, step))) {
                let mut code = Code::default();
                nest.fill(At { block, warp, step }, &mut code).unwrap();
                pieces.push((step, code));
            }
        }
        pieces
    }

    fn accesses(nest: &mut Nest) -> Vec<(Op, u64, u32)> {
        let first = |code: &Code, inst: &Inst| match code.addresses(inst) {
            Addresses::Strided { base, .. } => base,
            Addresses::List(list) => list[0],
        };
        let of = |code: &Code| -> Vec<_> {
            let memory = code.insts().iter().filter(|inst| inst.width > 0);
            memory.map(|inst| (inst.op, first(code, inst), inst.mask)).collect()
        };
        all(nest).iter().flat_map(|(_, code)| of(code)).collect()
    }

    #[test]
    fn threads_and_steps_find_their_elements() {
        let place = Place::along([1, 40, 400, 0]).stepping(4000);
        let body = Body::default().load_each(A, place.plus(1), &[0, -1]).work(Op::Fp64, 2, 1).store(B, place);
        let mut nest = Nest::new("n", [40, 2, 1, 1], 32).phase(2, &body);
        let found = accesses(&mut nest);
        // Four warps: 32 and 8 threads of two rows; two steps of three accesses.
        assert_eq!(found.len(), 4 * 2 * 3);
        assert_eq!(found[0], (Op::LoadGlobal, A.address(1), u32::MAX));
        assert_eq!(found[5], (Op::StoreGlobal, B.address(4000), u32::MAX));
        assert_eq!(found[6], (Op::LoadGlobal, A.address(33), 0xff));
        assert_eq!(found[23], (Op::StoreGlobal, B.address(4072), 0xff));
        // Two addresses, two loads, two sums, a store, and three for the loop.
        assert_eq!(nest.instructions(), 4 * 2 * 10);
        let made: usize = all(&mut nest).iter().map(|(_, code)| code.insts().len()).sum();
        assert_eq!(made as u64, nest.instructions());
    }

    #[test]
    fn lists_are_followed_and_short_rows_rest() {
        let list = List::new(vec![5, 6, 7, 8, 9]);
        let rows = List::new(vec![0, 2, 2, 5]);
        let index = Index { array: B, list, place: Place::LINE, rows: Some(rows) };
        let body = Body::default().index(&index).gather(A, &index, 2, 1);
        let found = accesses(&mut Nest::new("n", [3, 1, 1, 1], 32).phase(3, &body));
        let lists = [(B.address(0), 0b101), (B.address(1), 0b101), (B.address(4), 0b100)];
        let gathered = [(A.address(11), 0b101), (A.address(13), 0b101), (A.address(19), 0b100)];
        let wanted = lists.iter().zip(&gathered).flat_map(|(list, gathered)| [*list, *gathered]);
        let wanted: Vec<_> = wanted.map(|(address, mask)| (Op::LoadGlobal, address, mask)).collect();
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_long_body_comes_in_pieces() {
        let mut nest = Nest::new("n", [1, 1, 1, 1], 32).phase(1, &Body::default().work(Op::Fp64, 100, 4));
        let pieces: Vec<usize> = all(&mut nest).iter().map(|(_, code)| code.insts().len()).collect();
        assert_eq!(pieces[..4], [48, 48, 7, 0]);
    }
}
