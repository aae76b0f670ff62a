//! Blocks that were read from a file but not yet consumed by every warp.

use std::collections::VecDeque;

use crate::{At, Code};

/// Maximum number of spare buffers.
const MAX_SPARE: usize = 256;

/// Buffered blocks, oldest first; consumed warps are `None`.
#[derive(Default)]
pub(crate) struct BlockQueue {
    blocks: VecDeque<Vec<Option<Code>>>,
    /// Number of the first buffered block.
    first: u64,
    /// Buffers to reuse.
    spare: Vec<Code>,
}

impl BlockQueue {
    /// Returns the number of blocks read.
    pub(crate) fn blocks_read(&self) -> u64 {
        self.first + self.blocks.len() as u64
    }

    /// Returns an empty buffer for a warp.
    pub(crate) fn buffer(&mut self) -> Code {
        self.spare.pop().unwrap_or_default()
    }

    /// Appends the next block.
    pub(crate) fn push(&mut self, warps: Vec<Option<Code>>) {
        self.blocks.push_back(warps);
    }

    /// Moves a warp's instructions into `code` and recycles its previous buffer.
    pub(crate) fn take(&mut self, at: At, code: &mut Code) {
        let block = at.block.checked_sub(self.first).and_then(|index| self.blocks.get_mut(index as usize));
        if let Some(instructions) =
            block.and_then(|warps| warps.get_mut(at.warp as usize)).and_then(Option::take)
        {
            let mut old = std::mem::replace(code, instructions);
            old.clear();
            if self.spare.len() < MAX_SPARE {
                self.spare.push(old);
            }
        }
        while self.blocks.front().is_some_and(|warps| warps.iter().all(Option::is_none)) {
            self.blocks.pop_front();
            self.first += 1;
        }
    }

    /// Returns the bytes of buffered instructions.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.blocks.iter().flatten().flatten().map(Code::heap_bytes).sum()
    }
}
