//! A warp: its place in its code, and when its next instruction can be issued.

use buddy_trace::{At, Code, Op};

use super::{NEVER, Outside, Sm};
use crate::{
    Error,
    params::{UNIT_EXIT, UNIT_MEMORY},
    stats::StallReason,
};

/// A resident warp: its code, where it is in it, and what it waits for besides registers.
#[derive(Debug, Default)]
pub(super) struct Warp {
    pub(super) code: Code,
    pub(super) position: usize,
    pub(super) block: usize,
    at: Option<At>,
    /// Not before this cycle, whatever the registers say.
    pub(super) from: u64,
    /// Loads on their way, and when the last known one ends.
    pub(super) pending: u32,
    pub(super) loaded: u64,
    /// When the last comparison is done.
    pub(super) predicate: u64,
    /// When the last constant is there whose place a register says.
    pub(super) constant: u64,
    pub(super) at_barrier: bool,
    pub(super) finished: bool,
}

impl Sm {
    /// Starts a warp in a free slot.
    pub(super) fn start_warp(
        &mut self,
        slot: usize,
        block: usize,
        at: At,
        from: u64,
        out: &mut Outside<'_>,
    ) -> Result<(), Error> {
        let warp = &mut self.warps[slot];
        let code = std::mem::take(&mut warp.code);
        *warp = Warp { code, block, at: Some(at), from, ..Warp::default() };
        self.scoreboard[slot].fill(0);
        self.refill(slot, out)?;
        self.refresh(slot);
        self.wake(slot);
        Ok(())
    }

    /// Goes on to the warp's next instruction, not before cycle `from`.
    #[inline]
    pub(super) fn advance(&mut self, slot: usize, from: u64, out: &mut Outside<'_>) -> Result<(), Error> {
        let warp = &mut self.warps[slot];
        warp.from = from;
        warp.position += 1;
        if warp.position == warp.code.insts().len() {
            self.refill(slot, out)?;
        }
        self.refresh(slot);
        Ok(())
    }

    /// Gets the next piece of the warp's code.
    fn refill(&mut self, slot: usize, out: &mut Outside<'_>) -> Result<(), Error> {
        let warp = &mut self.warps[slot];
        warp.code.clear();
        warp.position = 0;
        if let Some(at) = &mut warp.at {
            out.kernel.fill(*at, &mut warp.code)?;
            at.step += 1;
        }
        warp.finished = warp.code.insts().is_empty();
        Ok(())
    }

    /// Computes when the warp's next instruction can be issued: every register that it reads or writes is
    /// ready.
    #[inline]
    pub(super) fn refresh(&mut self, slot: usize) {
        let (ready, unit, cause) = self.warp_issue(slot);
        (self.ready[slot], self.unit[slot], self.cause[slot]) = (ready, unit as u8, cause as u8);
        let sched = &mut self.scheds[usize::from(self.sched_of[slot])];
        // What memory delays is looked at when its time comes; the rest is worth a look each time.
        let asleep = cause == StallReason::Memory && ready > self.warps[slot].from;
        if asleep && ready != NEVER {
            sched.sleep(slot as u16, ready);
        }
        sched.note(self.places[slot], ready != NEVER && !asleep, unit == UNIT_MEMORY);
    }

    /// When the next instruction of a warp can be issued, on which unit, and what it waits for until then.
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
        let inst = &warp.code.insts()[warp.position];
        let registers = &self.scoreboard[slot];
        // Register 255 is none: nothing writes it, so that it is always ready.
        let mut latest = warp.from << 1;
        for source in inst.src {
            latest = latest.max(registers[usize::from(source)]);
        }
        for written in inst.dst..inst.dst.saturating_add(inst.written()) {
            latest = latest.max(registers[usize::from(written)]);
        }
        if inst.op == Op::Branch {
            latest = latest.max(warp.predicate << 1);
        }
        if inst.is_indexed_constant() {
            latest = latest.max(warp.constant << 1);
        }
        let cause = if latest & 1 == 1 { StallReason::Memory } else { StallReason::Arithmetic };
        (if latest == NEVER { NEVER } else { latest >> 1 }, crate::params::unit(inst.op), cause)
    }
}
