//! A lattice-Boltzmann sweep over a list of fluid cells, with neighbours from an index array.

use super::{Array, lanes_for};
use crate::{At, Code, Error, Inst, Kernel, Launch, NO_REGISTER, Op, WARP_LANES};

/// For each cell and direction: reads the neighbour's index, gathers its distribution, collides,
/// and writes the cell's own distributions in order.
#[derive(Debug, Clone)]
pub struct Lattice {
    launch: Launch,
    list: Array,
    from: Array,
    to: Array,
    cells: u64,
    directions: u32,
    neighbour: fn(cell: u64, direction: u64, cells: u64) -> u64,
}

impl Lattice {
    /// Creates the sweep; arrays are the neighbour list, the distributions read and those written,
    /// each laid out by direction.
    pub fn new(arrays: [Array; 3], cells: u64, directions: u32, neighbour: fn(u64, u64, u64) -> u64) -> Self {
        const THREADS: u64 = 128;
        let blocks = u32::try_from(cells.div_ceil(THREADS)).expect("at most 2^39 cells");
        let launch = Launch { registers: 64, ..Launch::linear("lattice", blocks, THREADS as u32) };
        let [list, from, to] = arrays;
        Self { launch, list, from, to, cells, directions, neighbour }
    }

    fn fill_direction(&self, first: u64, mask: u32, direction: u64, code: &mut Code) {
        let (lanes, row) = (mask.count_ones() as usize, direction * self.cells);
        let bytes = self.list.element_bytes;
        let index = Inst::new(Op::LoadGlobal, 4, &[2]).masked(mask);
        code.push(index.at(self.list.address(row + first), i32::from(bytes), bytes));
        let mut addresses = [0; 32];
        for (lane, address) in addresses[..lanes].iter_mut().enumerate() {
            let cell = (self.neighbour)(first + lane as u64, direction, self.cells);
            *address = self.from.address(row + cell);
        }
        let gather = Inst::new(Op::LoadGlobal, 16 + 2 * (direction % 32) as u8, &[4]).masked(mask);
        code.push_list(gather, self.from.element_bytes, &addresses[..lanes]);
    }

    fn fill_collision(&self, first: u64, mask: u32, code: &mut Code) {
        for direction in 0..self.directions {
            code.push(Inst::new(Op::Fp64, 8, &[8, 16 + 2 * (direction % 32) as u8]).masked(mask));
        }
        let bytes = self.to.element_bytes;
        for direction in 0..u64::from(self.directions) {
            code.push(Inst::new(Op::Fp64, 10, &[8, 16 + 2 * (direction % 32) as u8]).masked(mask));
            let place = self.to.address(direction * self.cells + first);
            let store = Inst::new(Op::StoreGlobal, NO_REGISTER, &[2, 10]).masked(mask);
            code.push(store.at(place, i32::from(bytes), bytes));
        }
    }
}

impl Kernel for Lattice {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        let warp = at.block * u64::from(self.launch.warps()) + u64::from(at.warp);
        let first = warp * u64::from(WARP_LANES);
        if first >= self.cells || at.step > 0 {
            return Ok(());
        }
        let mask = lanes_for(self.cells - first);
        code.push(Inst::new(Op::Int, 2, &[2]));
        for direction in 0..u64::from(self.directions) {
            self.fill_direction(first, mask, direction, code);
        }
        self.fill_collision(first, mask, code);
        Ok(())
    }
}
