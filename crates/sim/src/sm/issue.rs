//! Issuing one instruction.

use buddy_trace::{Inst, NO_REGISTER, Op};

use super::{NEVER, Outside, PendingLoad, Sm, lsu::Access};
use crate::{
    Error,
    coalesce::{bank_conflict_cycles, coalesce, count_passes, count_words},
    params::{MAX_BANKS, unit},
};

impl Sm {
    /// Issues the next instruction of a warp.
    #[inline]
    pub(super) fn issue(
        &mut self,
        sched: usize,
        slot: usize,
        again: bool,
        now: u64,
        out: &mut Outside<'_>,
    ) -> Result<(), Error> {
        let inst = *self.warps[slot].next();
        self.counts.instructions += 1;
        self.counts.lanes += u64::from(inst.lanes());
        self.counts.unknown += u64::from(inst.op == Op::Unknown);
        match inst.op {
            op if op.is_global() && inst.width > 0 && inst.mask != 0 => {
                self.issue_global(sched, slot, &inst, now, out)
            }
            op if op.is_shared() && inst.width > 0 && inst.mask != 0 => {
                self.issue_shared(sched, slot, &inst, now, out)
            }
            Op::Shuffle => self.issue_shuffle(sched, slot, &inst, now, out),
            Op::LoadConstant if inst.is_indexed_constant() => self.issue_constant(slot, &inst, now, out),
            Op::Barrier => return self.issue_barrier(sched, slot, now, out),
            Op::Branch => return self.advance(slot, now + out.params.branch, out),
            op => {
                let index = op as usize;
                let mut interval = out.params.interval[index];
                if interval < out.params.read_cycles && inst.src[1] != NO_REGISTER {
                    interval = interval.max(self.read_cycles(slot, &inst, again, out.params.register_banks));
                }
                self.scheds[sched].unit_free[unit(op)] = now + interval;
                self.write(slot, inst.dst, inst.written(), (now + out.params.latency[index]) << 1);
                // A comparison's result lies in a predicate, which traces do not name.
                if inst.dst == NO_REGISTER && op != Op::Control {
                    self.warps[slot].predicate = now + out.params.predicate;
                }
            }
        }
        self.advance(slot, now + 1, out)
    }

    /// Cycles in which an instruction's registers are read: the most that lie in one bank. What the instruction before
    /// it read as well is still there if its warp issues twice in a row.
    #[inline]
    fn read_cycles(&self, slot: usize, inst: &Inst, again: bool, banks: u32) -> u64 {
        let warp = &self.warps[slot];
        let before = match warp.position {
            position if again && position > 0 => warp.code.insts()[position as usize - 1].src,
            _ => [NO_REGISTER; 4],
        };
        let mut reads = [0u64; MAX_BANKS];
        for (place, register) in inst.src.iter().enumerate() {
            let read = *register != NO_REGISTER
                && !before.contains(register)
                && !inst.src[..place].contains(register);
            reads[(u32::from(*register) % banks) as usize] += u64::from(read);
        }
        reads.into_iter().max().unwrap_or(0)
    }

    /// Notes when registers are ready.
    #[inline]
    pub(super) fn write(&mut self, slot: usize, dst: u8, written: u8, ready: u64) {
        for register in dst..dst.saturating_add(written) {
            self.scoreboard.set(slot, register, ready);
        }
    }

    fn issue_global(&mut self, sched: usize, slot: usize, inst: &Inst, now: u64, out: &mut Outside<'_>) {
        let at = self.send(sched, now, out);
        let mut touched = std::mem::take(&mut self.lsu.touched);
        let addresses = self.warps[slot].code.addresses(inst);
        coalesce(inst, addresses, &mut touched);
        if matches!(inst.op, Op::Atomic | Op::Reduce) {
            count_passes(inst, addresses, &mut touched);
        }
        self.counts.accesses += 1;
        let returns = matches!(inst.op, Op::LoadGlobal | Op::LoadStrong | Op::Atomic);
        let load_id = if returns { self.expect(slot, inst, touched.len() as u16) } else { u32::MAX };
        for touch in &touched {
            let (sectors, full) = (touch.sectors(), touch.full_or_passes());
            self.access(Access { line: touch.line, at, load_id, op: inst.op, sectors, full }, out);
        }
        self.lsu.touched = touched;
        self.limit_memory(now, out);
    }

    fn issue_shared(&mut self, sched: usize, slot: usize, inst: &Inst, now: u64, out: &mut Outside<'_>) {
        let at = self.send(sched, now, out);
        let cycles = bank_conflict_cycles(inst, self.warps[slot].code.addresses(inst));
        self.counts.shared += 1;
        self.counts.bank_conflicts += u64::from(cycles) - 1;
        let returns = inst.op != Op::StoreShared && inst.dst != NO_REGISTER;
        let load_id = if returns { self.expect(slot, inst, 1) } else { u32::MAX };
        let line = u64::from(cycles);
        self.access(Access { line, at, load_id, op: inst.op, sectors: 0, full: 0 }, out);
        self.limit_memory(now, out);
    }

    /// An exchange between lanes takes the crossbar of shared memory for a cycle.
    fn issue_shuffle(&mut self, sched: usize, slot: usize, inst: &Inst, now: u64, out: &mut Outside<'_>) {
        let at = self.send(sched, now, out);
        let load_id = self.expect(slot, inst, 1);
        self.access(Access { line: 1, at, load_id, op: inst.op, sectors: 0, full: 0 }, out);
        self.limit_memory(now, out);
    }

    /// The constant cache of the SM gives one word after the other; a warp asks for the next one when it has the last.
    fn issue_constant(&mut self, slot: usize, inst: &Inst, now: u64, out: &Outside<'_>) {
        let index = inst.op as usize;
        let words = count_words(inst, self.warps[slot].code.addresses(inst));
        let last = now.max(self.constant_free) + (words - 1) * out.params.interval[index];
        self.constant_free = last + out.params.interval[index];
        let ready = last + out.params.latency[index];
        self.constants[slot] = ready;
        self.write(slot, inst.dst, inst.written(), ready << 1);
    }

    /// Sends a memory instruction to the memory unit; gives the cycle at which it gets there.
    #[inline]
    fn send(&mut self, sched: usize, now: u64, out: &Outside<'_>) -> u64 {
        let at = self.reach_memory(sched, now);
        self.hold_memory(sched, at + out.params.lsu_issue, out.params.lsu_ahead);
        at
    }

    /// Opens a load of so many parts; its registers wait.
    fn expect(&mut self, slot: usize, inst: &Inst, parts: u16) -> u32 {
        self.warps[slot].pending += 1;
        let (dst, written) = (inst.dst, inst.written());
        self.write(slot, dst, written, NEVER);
        self.new_pending_load(PendingLoad { done: 0, parts, slot: slot as u16, dst, written })
    }

    /// A barrier takes its arrivals one by one; what its scheduler has for memory comes after it.
    fn issue_barrier(
        &mut self,
        sched: usize,
        slot: usize,
        now: u64,
        out: &mut Outside<'_>,
    ) -> Result<(), Error> {
        let at = self.reach_memory(sched, now).max(self.barrier_free);
        self.hold_memory(sched, at + 1, out.params.lsu_ahead);
        self.warps[slot].at_barrier = true;
        self.advance(slot, now + 1, out)?;
        let block = usize::from(self.warps[slot].block);
        self.blocks[block].arrived += 1;
        self.barrier_free = at + out.params.arrival;
        self.release_barrier(block, self.barrier_free + out.params.barrier);
        Ok(())
    }
}
