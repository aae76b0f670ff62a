//! Dependent multiply-adds in registers: measures the pipelines and the scheduler.

use crate::{At, Code, Error, Inst, Kernel, Launch, Op};

/// Each warp runs `steps` chunks of 16 instructions of one class, in `chains` independent chains.
#[derive(Debug, Clone)]
pub struct Arithmetic {
    launch: Launch,
    op: Op,
    steps: u32,
    chains: u8,
}

impl Arithmetic {
    /// Creates the kernel; `chains` is 1 to 64.
    pub fn new(blocks: u32, threads: u32, op: Op, steps: u32, chains: u8) -> Self {
        assert!((1..=64).contains(&chains), "{chains} chains: use 1 to 64");
        Self { launch: Launch::linear("arithmetic", blocks, threads), op, steps, chains }
    }
}

impl Kernel for Arithmetic {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        if at.step < self.steps {
            for index in 0..16u32 {
                let chain = ((at.step * 16 + index) % u32::from(self.chains)) as u8;
                code.push(Inst::new(self.op, 8 + chain, &[1, 2, 8 + chain]));
            }
        }
        Ok(())
    }
}
