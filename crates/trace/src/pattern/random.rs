//! Random gathers: every lane loads one sector, the worst case for a memory system.

use super::scramble;
use crate::{At, Code, Error, Inst, Kernel, Launch, Op};

/// Each warp makes `loads` gathers of 32 random sectors from a range, with three instructions per
/// address.
#[derive(Debug, Clone)]
pub struct RandomSectors {
    launch: Launch,
    base: u64,
    sectors: u64,
    loads: u32,
}

impl RandomSectors {
    /// Creates the kernel over `bytes` bytes from `base`.
    pub fn new(blocks: u32, threads: u32, base: u64, bytes: u64, loads: u32) -> Self {
        assert!(bytes >= 32, "{bytes} bytes hold no sector");
        Self { launch: Launch::linear("random", blocks, threads), base, sectors: bytes / 32, loads }
    }
}

impl Kernel for RandomSectors {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        if at.step >= self.loads {
            return Ok(());
        }
        let warp = at.block * u64::from(self.launch.warps()) + u64::from(at.warp);
        let seed = (warp * u64::from(self.loads) + u64::from(at.step)) * 32;
        let sector =
            |lane: u64| ((u128::from(scramble(seed + lane)) * u128::from(self.sectors)) >> 64) as u64;
        let addresses: [u64; 32] = std::array::from_fn(|lane| self.base + sector(lane as u64) * 32);
        // Generator state, index and address.
        code.push(Inst::new(Op::Int, 2, &[2]));
        code.push(Inst::new(Op::Int, 3, &[2]));
        code.push(Inst::new(Op::Int, 4, &[3]));
        code.push_list(Inst::new(Op::LoadGlobal, 8 + (at.step % 8) as u8, &[4]), 4, &addresses);
        Ok(())
    }
}
