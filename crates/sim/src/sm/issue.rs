//! Issuing one instruction.

use buddy_trace::{Inst, NO_REGISTER, Op};

use super::{NEVER, Outside, REGISTERS, Sm, Ticket, lsu::Access};
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
                self.write(slot, &inst, (now + out.params.latency[index]) << 1);
            }
        }
        self.advance(slot, now + 1, out)
    }

    /// Notes when the registers that an instruction writes are ready.
    #[inline]
    fn write(&mut self, slot: usize, inst: &Inst, ready: u64) {
        if inst.dst != NO_REGISTER {
            let first = slot * REGISTERS + usize::from(inst.dst);
            self.registers[first..first + usize::from(inst.written())].fill(ready);
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
            self.lsu.queue.push_back(Access {
                line: touch.line,
                at: now,
                ticket,
                op: inst.op,
                sectors,
                full,
            });
        }
        self.lsu.touched = touched;
        self.advance_lsu(out.requests.end(), out);
    }

    fn issue_shared(&mut self, slot: usize, inst: &Inst, now: u64, out: &mut Outside<'_>) {
        let cycles = bank_cycles(inst, self.warps[slot].code.addresses(inst));
        self.counts.shared += 1;
        self.counts.bank_conflicts += u64::from(cycles) - 1;
        let ticket = if inst.op == Op::LoadShared { self.expect(slot, inst, 1) } else { u32::MAX };
        let line = u64::from(cycles);
        self.lsu.queue.push_back(Access { line, at: now, ticket, op: inst.op, sectors: 0, full: 0 });
        self.advance_lsu(out.requests.end(), out);
    }

    /// Opens a ticket for a load of so many parts; its registers wait.
    fn expect(&mut self, slot: usize, inst: &Inst, parts: u16) -> u32 {
        self.write(slot, inst, NEVER);
        self.warps[slot].pending += 1;
        let (dst, written) = (inst.dst, inst.written());
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
