//! Rows of a table selected by indices, as in word embeddings.

use super::Array;
use crate::{At, Code, Error, Inst, Kernel, Launch, NO_REGISTER, Op, WARP_LANES};

/// Copies rows of a table to an array, or adds an array to the rows by atomics. One block per
/// index.
#[derive(Debug, Clone)]
pub struct Rows {
    launch: Launch,
    numbers: Array,
    table: Array,
    values: Array,
    columns: u64,
    row: fn(u64) -> u64,
    adds: bool,
}

impl Rows {
    /// Creates the copy; arrays are the indices, the table and the copied rows of `columns`
    /// elements. `row` returns the row of an index.
    pub fn new(
        name: &str,
        [numbers, table, values]: [Array; 3],
        count: u64,
        columns: u64,
        row: fn(u64) -> u64,
    ) -> Self {
        let blocks = u32::try_from(count).expect("fewer than 2^32 rows");
        let launch = Launch::linear(name, blocks, 256);
        Self { launch, numbers, table, values, columns, row, adds: false }
    }

    /// Makes the kernel add the values to the rows instead.
    pub fn accumulating(mut self) -> Self {
        self.adds = true;
        self
    }

    /// Returns the warp instructions of a whole run.
    pub fn instructions(&self) -> u64 {
        self.launch.blocks() * self.columns.div_ceil(u64::from(WARP_LANES)) * 4
    }
}

impl Kernel for Rows {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        let warp = u64::from(at.warp) + u64::from(at.step) * u64::from(self.launch.warps());
        let column = warp * u64::from(WARP_LANES);
        if column >= self.columns {
            return Ok(());
        }
        let mask = super::lanes_for(self.columns - column);
        let access = |op, dst, source: &[u8], array: Array, row: u64| {
            let place = array.address(row * self.columns + column);
            Inst::new(op, dst, source)
                .at(place, i32::from(array.element_bytes), array.element_bytes)
                .masked(mask)
        };
        let row = (self.row)(at.block);
        let number = self.numbers.element_bytes;
        code.push(Inst::new(Op::LoadGlobal, 4, &[2]).at(self.numbers.address(at.block), 0, number));
        code.push(Inst::new(Op::Int, 6, &[4]));
        if self.adds {
            code.push(access(Op::LoadGlobal, 8, &[2], self.values, at.block));
            code.push(access(Op::Reduce, NO_REGISTER, &[6, 8], self.table, row));
        } else {
            code.push(access(Op::LoadGlobal, 8, &[6], self.table, row));
            code.push(access(Op::StoreGlobal, NO_REGISTER, &[2, 8], self.values, at.block));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Addresses;

    #[test]
    fn a_block_copies_the_row_of_its_index() {
        let array = |base| Array { base, element_bytes: 4 };
        let mut rows =
            Rows::new("rows", [array(0), array(1 << 20), array(1 << 30)], 9, 300, |number| number * 7);
        let mut code = Code::default();
        rows.fill(At { block: 3, warp: 1, step: 1 }, &mut code).unwrap();
        // Warp 1 of 8 in its second step: columns 288 to 299 are left.
        let [number, _, load, store] = code.insts() else { panic!("four instructions") };
        assert_eq!(code.addresses(number), Addresses::Strided { base: 12, stride: 0 });
        assert_eq!(
            code.addresses(load),
            Addresses::Strided { base: (1 << 20) + 4 * (21 * 300 + 288), stride: 4 }
        );
        assert_eq!(
            code.addresses(store),
            Addresses::Strided { base: (1 << 30) + 4 * (3 * 300 + 288), stride: 4 }
        );
        assert_eq!((load.lanes(), store.lanes()), (12, 12));
    }
}
