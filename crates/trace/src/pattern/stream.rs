//! Sequential access to whole arrays, as in copies, vector sums and element-wise layers.

use super::{Array, lanes_for};
use crate::{At, Code, Error, Inst, Kernel, Launch, Op, WARP_LANES};

/// Reads one element of each input, computes, and writes one of each output, for every index.
///
/// A grid-stride loop: one step of a warp handles 32 consecutive indices. As in compiled code,
/// every access computes its address and every step tests for the end.
#[derive(Debug, Clone)]
pub struct Stream {
    launch: Launch,
    inputs: Vec<Array>,
    outputs: Vec<Array>,
    elements: u64,
    arithmetic: u32,
}

impl Stream {
    /// Creates the kernel, with `arithmetic` instructions between loads and stores.
    pub fn new(launch: Launch, inputs: &[Array], outputs: &[Array], elements: u64, arithmetic: u32) -> Self {
        assert!(inputs.len() <= 16, "{} inputs: at most 16", inputs.len());
        Self { launch, inputs: inputs.to_vec(), outputs: outputs.to_vec(), elements, arithmetic }
    }

    /// Returns the warp instructions of a whole run.
    pub fn instructions(&self) -> u64 {
        let accesses = (self.inputs.len() + self.outputs.len()) as u64;
        self.elements.div_ceil(u64::from(WARP_LANES)) * (3 + 2 * accesses + u64::from(self.arithmetic))
    }
}

impl Kernel for Stream {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        const INDEX: u8 = 2;
        let warps = u64::from(self.launch.warps());
        let number =
            at.block * warps + u64::from(at.warp) + u64::from(at.step) * self.launch.blocks() * warps;
        let first = number * u64::from(WARP_LANES);
        if first >= self.elements {
            return Ok(());
        }
        let mask = lanes_for(self.elements - first);
        code.push(Inst::new(Op::Int, INDEX, &[INDEX]));
        for (load, array) in self.inputs.iter().enumerate() {
            let (address, data) = (96 + 2 * load as u8, 16 + 4 * load as u8);
            code.push(Inst::new(Op::Int, address, &[INDEX]));
            let access = Inst::new(Op::LoadGlobal, data, &[address]).masked(mask);
            code.push(access.at(array.address(first), i32::from(array.element_bytes), array.element_bytes));
        }
        for index in 0..self.arithmetic {
            let load = 16 + 4 * (index as usize % self.inputs.len().max(1)) as u8;
            code.push(Inst::new(Op::Fp32, 4, &[4, load]));
        }
        for array in &self.outputs {
            code.push(Inst::new(Op::Int, 6, &[INDEX]));
            let access = Inst::new(Op::StoreGlobal, crate::NO_REGISTER, &[6, 4]).masked(mask);
            code.push(access.at(array.address(first), i32::from(array.element_bytes), array.element_bytes));
        }
        code.push(Inst::new(Op::Int, crate::NO_REGISTER, &[INDEX]));
        code.push(Inst::new(Op::Control, crate::NO_REGISTER, &[]));
        Ok(())
    }
}
