//! What a kernel is: a grid of thread blocks, and the instructions of each warp on demand.

use std::collections::BTreeMap;

use crate::{Code, Error, Problem, WARP_LANES};

/// The most threads a block may have.
pub const MAX_BLOCK_THREADS: u64 = 1024;

/// The shape of a kernel and what one of its blocks needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Name of the kernel in reports; not unique in a program.
    pub name: String,
    /// Thread blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Registers of a thread.
    pub registers: u32,
}

impl Launch {
    /// A one-dimensional launch with 32 registers and no shared memory.
    pub fn linear(name: &str, blocks: u32, threads: u32) -> Self {
        Self {
            name: name.to_owned(),
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: 0,
            registers: 32,
        }
    }

    /// How many blocks the grid has; the largest number where they pass 64 bits.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().fold(1, |all: u64, &n| all.saturating_mul(u64::from(n)))
    }

    /// How many threads a block has.
    pub fn threads(&self) -> u64 {
        self.block.iter().fold(1, |all: u64, &n| all.saturating_mul(u64::from(n)))
    }

    /// How many warps a block has.
    pub fn warps(&self) -> u32 {
        self.threads().div_ceil(u64::from(WARP_LANES)) as u32
    }
}

/// Checks that a launch is one that a GPU could run.
pub(crate) fn check_launch(launch: &Launch) -> Result<(), Problem> {
    let range = |what, found, range, ok| if ok { Ok(()) } else { Err(Problem::Range { what, found, range }) };
    let (blocks, threads) = (launch.blocks(), launch.threads());
    range("the number of blocks", blocks, "from 1 to 2^32", (1..=1 << 32).contains(&blocks))?;
    let few = (1..=MAX_BLOCK_THREADS).contains(&threads);
    range("the number of threads in a block", threads, "from 1 to 1024", few)?;
    let registers = u64::from(launch.registers);
    range("nregs", registers, "at most 255", registers <= 255)?;
    let shared = u64::from(launch.shared_bytes);
    range("shmem", shared, "at most 1 MiB", shared <= 1 << 20)
}

/// A piece of a kernel's work: which block in launch order, which warp of it, and the how-manieth piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// The block, counted in the order of launching.
    pub block: u64,
    /// The warp within its block.
    pub warp: u32,
    /// The piece, from 0 on.
    pub step: u32,
}

/// A source of warp instructions.
pub trait Kernel {
    /// Grid, block and resources of the launch; the same for the kernel's whole life.
    fn launch(&self) -> &Launch;

    /// Puts the next piece of a warp into `code`, which comes empty; it stays empty at the end of the warp.
    ///
    /// Blocks are asked for in order: block `n` not before every warp of the blocks before it has been asked
    /// for its first piece. The pieces of one warp are asked for in order as well.
    ///
    /// # Errors
    /// [`Error`] where the pieces come from a file that is not a trace.
    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error>;

    /// The names that [`Code::opcode`] numbers; more of them may come as the kernel is read.
    fn opcodes(&self) -> &[String] {
        &[]
    }

    /// How often opcodes were handed out so far whose timing is a guess, by name: what is not known counts as an
    /// integer instruction, and with addresses as a load or a store.
    fn unknown(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// What a program does, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Copies bytes from the host to device memory.
    Copy {
        /// First device address that is written.
        address: u64,
        /// Bytes that cross the link.
        bytes: u64,
    },
    /// Runs the kernel of this file.
    Kernel(std::path::PathBuf),
    /// Something else, which is not simulated: the line of the list.
    Other(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_threads_and_warps() {
        let launch = Launch { grid: [3, 4, 5], block: [33, 2, 1], ..Launch::linear("k", 1, 1) };
        assert_eq!((launch.blocks(), launch.threads(), launch.warps()), (60, 66, 3));
        let huge = Launch { grid: [u32::MAX, 2, 1], ..launch };
        assert_eq!(huge.blocks(), 2 * u64::from(u32::MAX));
    }
}
