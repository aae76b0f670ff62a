//! A warp: its place in its code, and when its next instruction can be issued.

use buddy_trace::{At, Code, Inst, Op};

use super::{NEVER, Outside, Sm};
use crate::{Error, params::UNIT_EXIT, stats::StallReason};

/// A resident warp: its code, where it is in it, and what it waits for besides registers. Two lines of the host's memory,
/// which it fetches together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Warp {
    pub(super) code: Code,
    pub(super) position: u32,
    pub(super) block: u16,
    pub(super) at_barrier: bool,
    pub(super) finished: bool,
    /// Not before this cycle, whatever the registers say.
    pub(super) from: u64,
    /// Loads on their way, and when the last known one ends.
    pub(super) pending: u32,
    pub(super) loaded: u64,
    /// When the last comparison is done.
    pub(super) predicate: u64,
    /// The next piece of its code.
    block_number: u64,
    warp_number: u32,
    step: u32,
}

const _: () = assert!(size_of::<Warp>() == 128);

impl Warp {
    /// The instruction that it issues next.
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
        out: &mut Outside<'_>,
    ) -> Result<(), Error> {
        let warp = &mut self.warps[slot];
        let code = std::mem::take(&mut warp.code);
        let At { block: block_number, warp: warp_number, step } = at;
        let block = block as u16;
        *warp = Warp { code, block, block_number, warp_number, step, from, ..Warp::default() };
        self.scoreboard.clear(slot);
        self.constants[slot] = 0;
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
        if warp.position as usize == warp.code.insts().len() {
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
        let at = At { block: warp.block_number, warp: warp.warp_number, step: warp.step };
        out.kernel.fill(at, &mut warp.code)?;
        warp.step += 1;
        warp.finished = warp.code.insts().is_empty();
        Ok(())
    }

    /// Computes when the warp's next instruction can be issued: every register that it reads or writes is
    /// ready.
    #[inline]
    pub(super) fn refresh(&mut self, slot: usize) {
        let (ready, unit, cause) = self.warp_issue(slot);
        let sched = &mut self.scheds[usize::from(self.sched_of[slot])];
        // What memory delays is looked at when its time comes; the rest is worth a look each time.
        let asleep = cause == StallReason::Memory && ready > self.warps[slot].from;
        if asleep && ready != NEVER {
            sched.sleep(slot as u16, ready);
        }
        sched.note(self.places[slot], ready, unit, cause, ready != NEVER && !asleep);
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
        let inst = warp.next();
        let ready = self.scoreboard.of(slot);
        let mut latest = inst.src.iter().fold(warp.from << 1, |latest, &source| latest.max(ready(source)));
        latest = latest.max(ready(inst.dst));
        // An access of more than four bytes writes more than one register.
        if inst.width > 4 {
            let all = inst.dst..inst.dst.saturating_add(inst.written());
            latest = all.fold(latest, |latest, written| latest.max(ready(written)));
        }
        if inst.op == Op::Branch {
            latest = latest.max(warp.predicate << 1);
        }
        if inst.is_indexed_constant() {
            latest = latest.max(self.constants[slot] << 1);
        }
        let cause = if latest & 1 == 1 { StallReason::Memory } else { StallReason::Arithmetic };
        (if latest == NEVER { NEVER } else { latest >> 1 }, crate::params::unit(inst.op), cause)
    }
}
