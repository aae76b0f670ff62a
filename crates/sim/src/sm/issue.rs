//! Issuing one instruction.

use buddy_trace::{Inst, Op};

use super::{NEVER, Outside, Sm, Ticket, lsu::Access};
use crate::{
    Error,
    coalesce::{bank_cycles, touches},
    params::unit,
};

impl Sm {
    /// Issues the next instruction of a warp.
    #[inline]
    pub(super) fn issue(
        &mut self,
        sched: usize,
        slot: usize,
        now: u64,
        out: &mut Outside<'_>,
    ) -> Result<(), Error> {
        let warp = &self.warps[slot];
        let inst = warp.code.insts()[warp.position];
        self.counts.instructions += 1;
        self.counts.lanes += u64::from(inst.lanes());
        match inst.op {
            op if op.is_global() && inst.width > 0 && inst.mask != 0 => {
                self.issue_global(slot, &inst, now, out)
            }
            op if op.is_shared() && inst.width > 0 && inst.mask != 0 => {
                self.issue_shared(slot, &inst, now, out)
            }
            Op::Barrier => return self.issue_barrier(slot, now, out),
            op => {
                let index = op as usize;
                self.scheds[sched].unit_free[unit(op)] = now + out.params.interval[index];
                self.write(slot, inst.dst, inst.written(), (now + out.params.latency[index]) << 1);
            }
        }
        self.advance(slot, now + 1, out)
    }

    /// Notes when registers are ready.
    #[inline]
    pub(super) fn write(&mut self, slot: usize, dst: u8, written: u8, ready: u64) {
        let registers = &mut self.registers[slot];
        for register in dst..dst.saturating_add(written) {
            registers[usize::from(register)] = ready;
        }
    }

    fn issue_global(&mut self, slot: usize, inst: &Inst, now: u64, out: &mut Outside<'_>) {
        let mut touched = std::mem::take(&mut self.lsu.touched);
        touches(inst, self.warps[slot].code.addresses(inst), &mut touched);
        self.counts.accesses += 1;
        let returns = matches!(inst.op, Op::LoadGlobal | Op::LoadStrong | Op::Atomic);
        let ticket = if returns { self.expect(slot, inst, touched.len() as u16) } else { u32::MAX };
        for touch in &touched {
            let (sectors, full) = (touch.sectors(), touch.full());
            self.access(Access { line: touch.line, at: now, ticket, op: inst.op, sectors, full }, out);
        }
        self.lsu.touched = touched;
        self.limit_memory(now, out);
    }

    fn issue_shared(&mut self, slot: usize, inst: &Inst, now: u64, out: &mut Outside<'_>) {
        let cycles = bank_cycles(inst, self.warps[slot].code.addresses(inst));
        self.counts.shared += 1;
        self.counts.bank_conflicts += u64::from(cycles) - 1;
        let ticket = if inst.op == Op::LoadShared { self.expect(slot, inst, 1) } else { u32::MAX };
        let line = u64::from(cycles);
        self.access(Access { line, at: now, ticket, op: inst.op, sectors: 0, full: 0 }, out);
        self.limit_memory(now, out);
    }

    /// Opens a ticket for a load of so many parts; its registers wait.
    fn expect(&mut self, slot: usize, inst: &Inst, parts: u16) -> u32 {
        self.warps[slot].pending += 1;
        let (dst, written) = (inst.dst, inst.written());
        self.write(slot, dst, written, NEVER);
        self.new_ticket(Ticket { done: 0, parts, slot: slot as u16, dst, written })
    }

    fn issue_barrier(&mut self, slot: usize, now: u64, out: &mut Outside<'_>) -> Result<(), Error> {
        self.warps[slot].at_barrier = true;
        self.advance(slot, now + 1, out)?;
        let block = self.warps[slot].block;
        self.blocks[block].arrived += 1;
        self.release_barrier(block, now + out.params.barrier);
        Ok(())
    }
}
