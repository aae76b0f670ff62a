//! The blocks of a file that have been read and not yet been taken by every warp.

use std::collections::VecDeque;

use crate::{At, Code};

/// The room of so many warps is kept for those to come.
const SPARE: usize = 256;

/// Blocks in memory, the oldest first; taken warps are empty.
#[derive(Default)]
pub(crate) struct Pending {
    blocks: VecDeque<Vec<Option<Code>>>,
    /// Ordinal of the first block in memory.
    first: u64,
    /// Rooms that were given back.
    spare: Vec<Code>,
}

impl Pending {
    /// How many blocks have been read.
    pub(crate) fn read(&self) -> u64 {
        self.first + self.blocks.len() as u64
    }

    /// An empty room for a warp.
    pub(crate) fn room(&mut self) -> Code {
        self.spare.pop().unwrap_or_default()
    }

    /// Appends the next block.
    pub(crate) fn push(&mut self, warps: Vec<Option<Code>>) {
        self.blocks.push_back(warps);
    }

    /// Gives a warp its code, and keeps the room of what `code` held before.
    pub(crate) fn take(&mut self, at: At, code: &mut Code) {
        let place = at.block.checked_sub(self.first).and_then(|index| self.blocks.get_mut(index as usize));
        if let Some(taken) = place.and_then(|warps| warps.get_mut(at.warp as usize)).and_then(Option::take) {
            let mut before = std::mem::replace(code, taken);
            before.clear();
            if self.spare.len() < SPARE {
                self.spare.push(before);
            }
        }
        while self.blocks.front().is_some_and(|warps| warps.iter().all(Option::is_none)) {
            self.blocks.pop_front();
            self.first += 1;
        }
    }

    /// Bytes of instructions in memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.blocks.iter().flatten().flatten().map(Code::heap_bytes).sum()
    }
}
