//! The `Kernel` trait: a grid of thread blocks, with the instructions of each warp on demand.

use std::collections::BTreeMap;

use crate::{Code, Error, Problem, WARP_LANES};

/// Largest number of threads per block.
pub const MAX_BLOCK_THREADS: u64 = 1024;

/// Launch configuration of a kernel and resources per block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Name of the kernel in reports; not unique in a program.
    pub name: String,
    /// Thread blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of shared memory per block.
    pub shared_bytes: u32,
    /// Registers per thread.
    pub registers: u32,
}

impl Launch {
    /// Returns a one-dimensional launch with 32 registers and no shared memory.
    pub fn linear(name: &str, blocks: u32, threads: u32) -> Self {
        Self {
            name: name.to_owned(),
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: 0,
            registers: 32,
        }
    }

    /// Returns the number of blocks, saturating at `u64::MAX`.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().fold(1, |all: u64, &n| all.saturating_mul(u64::from(n)))
    }

    /// Returns the number of threads per block.
    pub fn threads(&self) -> u64 {
        self.block.iter().fold(1, |all: u64, &n| all.saturating_mul(u64::from(n)))
    }

    /// Returns the number of warps per block.
    pub fn warps(&self) -> u32 {
        self.threads().div_ceil(u64::from(WARP_LANES)) as u32
    }
}

/// Checks that a GPU could run the launch.
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

/// Position of a chunk in a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// Block number in launch order.
    pub block: u64,
    /// Warp number in its block.
    pub warp: u32,
    /// Chunk number in the warp, from 0.
    pub step: u32,
}

/// A source of warp instructions. The threads of a simulation share it, one at a time.
pub trait Kernel: Send {
    /// Returns the launch; constant over the kernel's life.
    fn launch(&self) -> &Launch;

    /// Fills `code`, which must be empty, with the next chunk of a warp; leaves it empty at the
    /// warp's end.
    ///
    /// Blocks are requested in order: block `n` only after the first chunk of every warp of earlier
    /// blocks. Chunks of a warp are requested in order.
    ///
    /// # Errors
    /// [`Error`] if the trace file is malformed.
    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error>;

    /// Returns the names of the opcode numbers of [`Code::opcode`]; the list may grow as the kernel
    /// is read.
    fn opcodes(&self) -> &[String] {
        &[]
    }

    /// Returns the executions of opcodes without a timing model so far, by name. They are timed as
    /// integer instructions, or with addresses as loads or stores.
    fn unknown(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// One item of a kernel list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Copies bytes from the host to device memory.
    Copy {
        /// Destination address in device memory.
        address: u64,
        /// Bytes copied.
        bytes: u64,
    },
    /// Runs the kernel in this file.
    Kernel(std::path::PathBuf),
    /// A line of the list that is not simulated.
    Other(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_count_blocks_threads_and_warps() {
        let launch = Launch { grid: [3, 4, 5], block: [33, 2, 1], ..Launch::linear("k", 1, 1) };
        assert_eq!((launch.blocks(), launch.threads(), launch.warps()), (60, 66, 3));
        let huge = Launch { grid: [u32::MAX, 2, 1], ..launch };
        assert_eq!(huge.blocks(), 2 * u64::from(u32::MAX));
    }
}
