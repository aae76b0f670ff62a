//! A warp: its program position and the issue time of its next instruction.

use buddy_trace::{At, Code, Inst, Op};

use super::{NEVER, Sm, SmContext};
use crate::{Error, crew::lock, params::UNIT_EXIT, stats::StallReason};

/// A resident warp: its code, position and dependencies other than registers. Fills two host cache
/// lines, which are fetched as a pair.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Warp {
    pub(super) code: Code,
    pub(super) position: u32,
    pub(super) block: u16,
    pub(super) at_barrier: bool,
    pub(super) finished: bool,
    /// Earliest issue cycle, regardless of registers.
    pub(super) from: u64,
    /// Loads in flight, and the latest known completion.
    pub(super) pending: u32,
    pub(super) loaded: u64,
    /// Cycle at which the last comparison's predicate is ready.
    pub(super) predicate: u64,
    /// Position of the next chunk of code.
    block_number: u64,
    warp_number: u32,
    step: u32,
}

const _: () = assert!(size_of::<Warp>() == 128);

impl Warp {
    /// Returns the next instruction to issue.
    #[inline]
    pub(super) fn next(&self) -> &Inst {
        &self.code.insts()[self.position as usize]
    }
}

impl Sm {
    /// Starts a warp in a free slot.
    pub(super) fn start_warp(
        &mut self,
        slot: usize,
        block: usize,
        at: At,
        from: u64,
        out: &mut SmContext<'_, '_>,
    ) -> Result<(), Error> {
        let warp = &mut self.warps[slot];
        let code = std::mem::take(&mut warp.code);
        let At { block: block_number, warp: warp_number, step } = at;
        let block = block as u16;
        *warp = Warp { code, block, block_number, warp_number, step, from, ..Warp::default() };
        self.scoreboard.clear(slot);
        self.constant_ready[slot] = 0;
        self.refill(slot, out)?;
        self.refresh(slot);
        self.wake(slot);
        Ok(())
    }

    /// Advances to the next instruction, which issues no earlier than cycle `from`.
    #[inline]
    pub(super) fn advance(
        &mut self,
        slot: usize,
        from: u64,
        out: &mut SmContext<'_, '_>,
    ) -> Result<(), Error> {
        let warp = &mut self.warps[slot];
        warp.from = from;
        warp.position += 1;
        if warp.position as usize == warp.code.insts().len() {
            self.refill(slot, out)?;
        }
        self.refresh(slot);
        Ok(())
    }

    /// Fetches the warp's next chunk of code.
    fn refill(&mut self, slot: usize, out: &mut SmContext<'_, '_>) -> Result<(), Error> {
        let warp = &mut self.warps[slot];
        warp.code.clear();
        warp.position = 0;
        let at = At { block: warp.block_number, warp: warp.warp_number, step: warp.step };
        lock(out.dispatch).kernel.fill(at, &mut warp.code)?;
        warp.step += 1;
        warp.finished = warp.code.insts().is_empty();
        Ok(())
    }

    /// Updates the scheduler's view of the warp: its next instruction waits for every register that
    /// it reads or writes.
    #[inline]
    pub(super) fn refresh(&mut self, slot: usize) {
        let (ready, unit, cause) = self.warp_issue(slot);
        let sched = &mut self.scheds[usize::from(self.sched_of[slot])];
        // Warps that wait for memory sleep until their wake-up cycle; the others are polled.
        let asleep = cause == StallReason::Memory && ready > self.warps[slot].from;
        if asleep && ready != NEVER {
            sched.sleep(slot as u16, ready);
        }
        sched.set_warp(self.ranks[slot], ready, unit, cause, ready != NEVER && !asleep);
    }

    /// Returns the issue cycle of the warp's next instruction, its unit and its stall reason.
    #[inline]
    fn warp_issue(&self, slot: usize) -> (u64, usize, StallReason) {
        let warp = &self.warps[slot];
        if warp.at_barrier {
            return (NEVER, 0, StallReason::Barrier);
        }
        if warp.finished {
            let ready = if warp.pending == 0 { warp.from.max(warp.loaded) } else { NEVER };
            return (ready, UNIT_EXIT, StallReason::Memory);
        }
        let inst = warp.next();
        let ready = self.scoreboard.ready_times(slot);
        let mut latest = inst.src.iter().fold(warp.from << 1, |latest, &source| latest.max(ready(source)));
        latest = latest.max(ready(inst.dst));
        // An access wider than four bytes writes several registers.
        if inst.width > 4 {
            let all = inst.dst..inst.dst.saturating_add(inst.written());
            latest = all.fold(latest, |latest, written| latest.max(ready(written)));
        }
        if inst.op == Op::Branch {
            latest = latest.max(warp.predicate << 1);
        }
        if inst.is_indexed_constant() {
            latest = latest.max(self.constant_ready[slot] << 1);
        }
        let cause = if latest & 1 == 1 { StallReason::Memory } else { StallReason::Arithmetic };
        (if latest == NEVER { NEVER } else { latest >> 1 }, crate::params::unit(inst.op), cause)
    }
}
