//! A warp: its place in its code, and when its next instruction can be issued.

use buddy_trace::{At, Code, NO_REGISTER};

use super::{NEVER, Outside, REGISTERS, Sm};
use crate::{Error, params::UNIT_RETIRE, stats::Cause};

/// A resident warp.
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
        self.registers[slot * REGISTERS..(slot + 1) * REGISTERS].fill(0);
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
        let warp = &self.warps[slot];
        if warp.at_barrier {
            (self.ready[slot], self.cause[slot]) = (NEVER, Cause::Barrier as u8);
            return;
        }
        if warp.finished {
            self.unit[slot] = UNIT_RETIRE as u8;
            self.cause[slot] = Cause::Memory as u8;
            self.ready[slot] = if warp.pending == 0 { warp.from.max(warp.loaded) } else { NEVER };
            return;
        }
        let inst = &warp.code.insts()[warp.position];
        let registers = &self.registers[slot * REGISTERS..(slot + 1) * REGISTERS];
        // Register 255 is none: nothing writes it, so that it is always ready.
        let mut latest = warp.from << 1;
        for source in inst.src {
            latest = latest.max(registers[usize::from(source)]);
        }
        if inst.dst != NO_REGISTER {
            let first = usize::from(inst.dst);
            for written in &registers[first..first + usize::from(inst.written())] {
                latest = latest.max(*written);
            }
        }
        self.unit[slot] = crate::params::unit(inst.op) as u8;
        self.cause[slot] = if latest & 1 == 1 { Cause::Memory as u8 } else { Cause::Arithmetic as u8 };
        self.ready[slot] = if latest == NEVER { NEVER } else { latest >> 1 };
    }
}
