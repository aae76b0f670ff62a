//! Thread blocks: launch, barriers and retirement.

use buddy_trace::At;

use super::{Sm, SmContext};
use crate::{Error, crew::lock};

/// A resident thread block.
#[derive(Debug, Default)]
pub(super) struct Block {
    slots: Vec<u16>,
    /// Warps that have not exited.
    live: u32,
    /// Live warps that wait at the barrier.
    pub(super) arrived: u32,
}

impl Sm {
    /// Launches the next block of the kernel, if one is left.
    pub(crate) fn launch(&mut self, from: u64, out: &mut SmContext<'_, '_>) -> Result<(), Error> {
        // Once no block is left, none comes.
        if lock(out.dispatch).is_empty() {
            return Ok(());
        }
        out.turns.wait(self.number);
        let Some((number, from)) = lock(out.dispatch).next(out.floor, from, out.params.block_interval) else {
            return Ok(());
        };
        self.live_blocks += 1;
        let block = self.blocks.iter().position(|block| block.live == 0).unwrap_or_else(|| {
            self.blocks.push(Block::default());
            self.blocks.len() - 1
        });
        let warps = out.launch.warps();
        let mut slots = std::mem::take(&mut self.blocks[block].slots);
        slots.clear();
        slots.extend((0..warps).map(|_| self.take_slot()));
        self.blocks[block] = Block { slots, live: warps, arrived: 0 };
        for warp in 0..warps {
            let slot = usize::from(self.blocks[block].slots[warp as usize]);
            self.start_warp(slot, block, At { block: number, warp, step: 0 }, from, out)?;
        }
        Ok(())
    }

    /// Takes a warp slot from the scheduler with the most free slots.
    fn take_slot(&mut self) -> u16 {
        let emptiest = self.scheds.iter_mut().rev().max_by_key(|sched| sched.free_slots.len());
        let slot = emptiest.and_then(|sched| sched.take_slot(&mut self.ranks));
        slot.expect("blocks are placed where their warps fit")
    }

    /// Retires a warp. The last warp of a block frees it and launches the next block.
    pub(super) fn retire(&mut self, slot: usize, now: u64, out: &mut SmContext<'_, '_>) -> Result<(), Error> {
        self.scheds[usize::from(self.sched_of[slot])].release(slot as u16, &mut self.ranks);
        self.last = self.last.max(now);
        let index = usize::from(self.warps[slot].block);
        self.blocks[index].live -= 1;
        if self.blocks[index].live > 0 {
            self.release_barrier(index, now + out.params.barrier);
            return Ok(());
        }
        self.live_blocks -= 1;
        self.counts.blocks += 1;
        self.launch(now + out.params.block_launch, out)
    }

    /// Releases a block's warps from cycle `from` on if all of them wait at the barrier.
    pub(super) fn release_barrier(&mut self, index: usize, from: u64) {
        let block = &mut self.blocks[index];
        if block.arrived < block.live || block.arrived == 0 {
            return;
        }
        block.arrived = 0;
        for position in 0..self.blocks[index].slots.len() {
            let slot = usize::from(self.blocks[index].slots[position]);
            if self.warps[slot].at_barrier && usize::from(self.warps[slot].block) == index {
                self.warps[slot].at_barrier = false;
                self.warps[slot].from = from;
                self.refresh(slot);
                self.wake(slot);
            }
        }
    }
}
