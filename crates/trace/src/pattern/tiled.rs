//! A tiled matrix product through shared memory, for matrices in any layout.

use super::{
    Operand,
    gemm::{DEPTH, TILE, fill_product, tiles},
};
use crate::{At, Code, Error, Inst, Kernel, Launch, NO_REGISTER, Op};

/// `C = A B`, summed over the depth, with four-byte elements.
///
/// A block of 256 threads computes a tile of 64 by 64 and steps along the depth by 16. It loads a
/// tile of each input to shared memory, waits, and multiplies, 4 by 4 outputs per thread. With
/// [`Images`](super::Images) as an input it is an implicit-GEMM convolution. Consecutive lanes load
/// consecutive elements.
#[derive(Debug, Clone)]
pub struct Tiled {
    launch: Launch,
    a: Operand,
    b: Operand,
    /// Output; its side is A's, its depth B's.
    c: Operand,
    size: [u64; 3],
    splits: u64,
    kept: u64,
    adds: bool,
}

/// Consecutive steps that are kept or skipped together: two lines of a row.
const RUN: u64 = 4;
/// Loads per thread for one input tile.
const PARTS: u64 = TILE * DEPTH / 256;

impl Tiled {
    /// Creates the product; `size` is the sides of A and B, and the depth.
    pub fn new(name: &str, [a, b, c]: [Operand; 3], size: [u64; 3]) -> Self {
        let launch = tiles(name, size[0], size[1]);
        Self { launch, a, b, c, size, splits: 1, kept: size[2].div_ceil(DEPTH), adds: false }
    }

    /// Makes the kernel accumulate into C.
    pub fn accumulating(mut self) -> Self {
        self.adds = true;
        self
    }

    /// Split-K: divides the depth between `splits` blocks, which add their results by atomics.
    pub fn split(mut self, splits: u64) -> Self {
        self.splits = splits.clamp(1, self.kept);
        self.launch.grid[2] = u32::try_from(self.splits).expect("fewer than 2^32 splits");
        self.kept = self.kept.div_ceil(self.splits);
        self
    }

    /// Samples a share of each block's steps, in short runs evenly spread over the depth.
    pub fn sample_depth(mut self, share: f64) -> Self {
        let wanted = ((self.kept as f64 * share).ceil() as u64).next_multiple_of(RUN);
        self.kept = wanted.clamp(1, self.kept);
        self
    }

    /// Returns the blocks of the launch.
    pub fn blocks(&self) -> u64 {
        self.launch.blocks()
    }

    /// Returns the warp instructions of a whole run, counting edges and padding as interior.
    pub fn instructions(&self) -> u64 {
        let step = 3 + 4 * PARTS + DEPTH * 18;
        let result = TILE * TILE / 256 * if self.adds { 2 } else { 1 };
        self.blocks() * u64::from(self.launch.warps()) * (self.kept * step + result)
    }

    /// Returns the depth at which a step begins, `None` past the end.
    fn depth(&self, split: u64, step: u64) -> Option<u64> {
        let steps = self.size[2].div_ceil(DEPTH).div_ceil(self.splits);
        let (runs, kept) = (steps.div_ceil(RUN), self.kept.div_ceil(RUN));
        let within = step / RUN * runs / kept * RUN + step % RUN;
        (step < self.kept && within < steps).then_some((split * steps + within) * DEPTH)
    }

    /// Loads an input tile to shared memory.
    fn fill_tile(
        &self,
        operand: &Operand,
        side: [u64; 2],
        depth: u64,
        at: At,
        register: u8,
        code: &mut Code,
    ) {
        let [first, end] = side;
        for part in 0..PARTS {
            let (mut mask, mut addresses) = (0u32, Vec::with_capacity(32));
            for lane in 0..32 {
                let element = (u64::from(at.warp) * PARTS + part) * 32 + lane;
                let [along, down] = if operand.is_contiguous_along_depth() {
                    [element / DEPTH, element % DEPTH]
                } else {
                    [element % TILE, element / TILE]
                };
                let (along, down) = (first + along, depth + down);
                if along < end
                    && down < self.size[2]
                    && let Some(address) = operand.address(along, down)
                {
                    mask |= 1 << lane;
                    addresses.push(address);
                }
            }
            if mask != 0 {
                let load = Inst::new(Op::LoadGlobal, register + part as u8, &[2]).masked(mask);
                code.push_list(load, 4, &addresses);
            }
        }
    }

    fn fill_step(&self, at: At, row: u64, column: u64, depth: u64, code: &mut Code) {
        code.push(Inst::new(Op::Int, 2, &[2]));
        self.fill_tile(&self.a, [row, self.size[0]], depth, at, 16, code);
        self.fill_tile(&self.b, [column, self.size[1]], depth, at, 20, code);
        code.push(Inst::new(Op::Barrier, NO_REGISTER, &[]));
        for (tile, part) in [0, 1].into_iter().flat_map(|tile| (0..PARTS).map(move |part| (tile, part))) {
            let place = tile * 4096 + (u64::from(at.warp) * PARTS + part) * 128;
            let register = 16 + (4 * tile + part) as u8;
            code.push(Inst::new(Op::StoreShared, NO_REGISTER, &[3, register]).at(place, 4, 4));
        }
        code.push(Inst::new(Op::Barrier, NO_REGISTER, &[]));
        fill_product(code);
    }

    /// Stores the output tile, 16 elements per thread.
    fn fill_result(&self, at: At, row: u64, column: u64, code: &mut Code) {
        for part in 0..16u64 {
            let (mut mask, mut addresses) = (0u32, Vec::with_capacity(32));
            for lane in 0..32 {
                let element = (u64::from(at.warp) * 16 + part) * 32 + lane;
                let (long, short) = (element % TILE, element / TILE);
                let (side, depth) = if self.c.is_contiguous_along_depth() {
                    (row + short, column + long)
                } else {
                    (row + long, column + short)
                };
                if side < self.size[0] && depth < self.size[1] {
                    mask |= 1 << lane;
                    addresses.extend(self.c.address(side, depth));
                }
            }
            if mask != 0 {
                self.fill_store(part as u8, mask, &addresses, code);
            }
        }
    }

    fn fill_store(&self, part: u8, mask: u32, addresses: &[u64], code: &mut Code) {
        let sum = 32 + part;
        let op = if self.splits > 1 { Op::Reduce } else { Op::StoreGlobal };
        if self.adds && self.splits == 1 {
            code.push_list(Inst::new(Op::LoadGlobal, 16, &[2]).masked(mask), 4, addresses);
            code.push(Inst::new(Op::Fp32, sum, &[sum, 16]));
        }
        code.push_list(Inst::new(op, NO_REGISTER, &[2, sum]).masked(mask), 4, addresses);
    }
}

impl Kernel for Tiled {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        let [columns, rows, _] = self.launch.grid.map(u64::from);
        let (tile, split) = (at.block % (columns * rows), at.block / (columns * rows));
        let (row, column) = (tile / columns * TILE, tile % columns * TILE);
        if u64::from(at.step) > self.kept {
            return Ok(());
        }
        match self.depth(split, u64::from(at.step)) {
            Some(depth) => self.fill_step(at, row, column, depth, code),
            None if u64::from(at.step) == self.kept => self.fill_result(at, row, column, code),
            // Past the end of the depth: no loads, but the chunk must not be empty.
            None => code.push(Inst::new(Op::Control, NO_REGISTER, &[])),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::{Addresses, pattern::Array};

    fn array(base: u64) -> Array {
        Array { base, element_bytes: 4 }
    }

    /// Counts accesses by address and instruction class.
    fn accesses(kernel: &mut Tiled) -> HashMap<(Op, u64), u32> {
        let (mut counts, mut code) = (HashMap::new(), Code::default());
        for block in 0..kernel.blocks() {
            for (warp, step) in (0..8).flat_map(|warp| (0..100).map(move |step| (warp, step))) {
                code.clear();
                kernel.fill(At { block, warp, step }, &mut code).unwrap();
                for inst in code.insts().iter().filter(|inst| inst.op.is_global()) {
                    let Addresses::List(list) = code.addresses(inst) else { panic!("only lists") };
                    list.iter().for_each(|&address| *counts.entry((inst.op, address)).or_default() += 1);
                }
            }
        }
        counts
    }

    #[test]
    fn each_element_is_read_once_per_tile() {
        let size = [100, 70, 40];
        let operands = [
            Operand::rows(array(0), size[2]),
            Operand::columns(array(1 << 20), size[1]),
            Operand::rows(array(1 << 21), size[1]),
        ];
        for splits in [1, 3] {
            let counts = accesses(&mut Tiled::new("product", operands, size).split(splits));
            let of = |op, base: u64, count: u64| -> Vec<u32> {
                (0..count).map(|index| counts.get(&(op, base + 4 * index)).copied().unwrap_or(0)).collect()
            };
            assert_eq!(of(Op::LoadGlobal, 0, 100 * 40), vec![2; 4000]);
            assert_eq!(of(Op::LoadGlobal, 1 << 20, 40 * 70), vec![2; 2800]);
            let op = if splits > 1 { Op::Reduce } else { Op::StoreGlobal };
            assert_eq!(of(op, 1 << 21, 100 * 70), vec![splits as u32; 7000]);
            assert_eq!(counts.len(), 4000 + 2800 + 7000);
        }
    }

    #[test]
    fn a_sampled_product_reads_a_share_of_its_depth_and_writes_all() {
        let size = [64, 64, 1600];
        let operands = [
            Operand::rows(array(0), size[2]),
            Operand::rows(array(1 << 20), size[2]),
            Operand::rows(array(1 << 21), size[1]),
        ];
        let whole = Tiled::new("product", operands, size);
        let mut thin = whole.clone().sample_depth(0.2);
        let counts = accesses(&mut thin);
        let loads = counts.keys().filter(|(op, _)| *op == Op::LoadGlobal).count();
        assert_eq!(loads, 2 * 64 * 1600 / 5);
        assert_eq!(counts.len() - loads, 64 * 64);
        let ratio = whole.instructions() as f64 / thin.instructions() as f64;
        assert!((4.8..5.0).contains(&ratio), "{ratio}");
    }
}
