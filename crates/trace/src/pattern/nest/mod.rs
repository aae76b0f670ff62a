//! A loop nest: a grid of threads over a box of points, each running some bodies for some steps.
//!
//! Covers most kernels of scientific programs: streams, stencils over any number of arrays, line
//! solves, gathers by an index list.
//!
//! Compiler-generated instructions are added by rule. Each access computes its address with one
//! integer instruction, unless it is within eight elements of an earlier access to the same array.
//! Each step adds an increment, a comparison and a branch.

mod builder;
#[cfg(test)]
mod tests;

use super::{Affine, Array, Body, Index, List, lanes_for};
use crate::{At, Code, Error, Inst, Kernel, Launch, WARP_LANES};
use builder::Builder;

/// Warps per block.
const WARPS: u32 = 4;
/// Instructions per chunk.
const PIECE: usize = 48;

/// A loop-nest kernel.
#[derive(Debug, Clone)]
pub struct Nest {
    launch: Launch,
    /// Threads along each axis; those along the first are consecutive in a warp.
    size: [u64; 4],
    phases: Vec<Phase>,
}

/// A repeated body, cut into chunks.
#[derive(Debug, Clone)]
struct Phase {
    steps: u32,
    pieces: Vec<Vec<Slot>>,
}

/// An instruction, and its addresses as a function of thread and step.
#[derive(Debug, Clone)]
struct Slot {
    inst: Inst,
    access: Access,
}

#[derive(Debug, Clone)]
enum Access {
    None,
    Even { array: Array, place: Affine },
    Listed { array: Array, index: Index, scale: i64, first: i64 },
    Row { array: Array, place: Affine, rows: List },
    Shared { width: u8 },
}

impl Nest {
    /// Creates a nest of `size` threads; `registers` per thread limits the occupancy.
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

    /// Returns the warp instructions of a whole run, including those whose lanes are all predicated
    /// off.
    pub fn instructions(&self) -> u64 {
        let warps = self.size[0].div_ceil(u64::from(WARP_LANES)) * self.size[1] * self.size[2] * self.size[3];
        let per_warp = |phase: &Phase| {
            u64::from(phase.steps) * phase.pieces.iter().map(|piece| piece.len() as u64).sum::<u64>()
        };
        warps * self.phases.iter().map(per_warp).sum::<u64>()
    }

    /// Returns the slots of a chunk and its step.
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

    /// Returns the coordinates of a warp's first thread and its number of threads; `None` past the
    /// last.
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
                let place = Affine { first: index.place.first + index.place.step * step, ..index.place };
                push_listed(inst, *array, &place, at, each, code);
            }
        }
    }
}

/// Returns the list position of a row's entry for this step, if the row is that long.
#[inline]
fn in_row(rows: &[i32], row: usize, step: i64) -> Option<usize> {
    let number = i64::from(rows[row]) + step;
    (number < i64::from(rows[row + 1])).then_some(number as usize)
}

/// Appends an access by the lanes for which `element` returns one.
fn push_listed(
    inst: Inst,
    array: Array,
    place: &Affine,
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
