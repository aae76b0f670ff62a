//! Instruction issue.

use buddy_trace::{Inst, NO_REGISTER, Op};

use super::{NEVER, PendingLoad, Sm, SmContext, lsu::Access};
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
        same_warp: bool,
        now: u64,
        out: &mut SmContext<'_, '_>,
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
                // A warpgroup product of 64 x N: each of its warps computes 16 rows, two columns a cycle.
                let product = inst.columns() / 2;
                interval = interval.max(product);
                if interval < out.params.read_cycles && inst.src[1] != NO_REGISTER {
                    interval =
                        interval.max(self.read_cycles(slot, &inst, same_warp, out.params.register_banks));
                }
                self.scheds[sched].unit_free[unit(op)] = now + interval;
                let latency = out.params.latency[index].max(product);
                self.write(slot, inst.dst, inst.written(), (now + latency) << 1);
                // A comparison writes a predicate register, which traces do not name.
                if inst.dst == NO_REGISTER && op != Op::Control {
                    self.warps[slot].predicate = now + out.params.predicate;
                }
            }
        }
        self.advance(slot, now + 1, out)
    }

    /// Returns the cycles to read an instruction's registers: the most in one bank. Registers that
    /// the previous instruction read are reused if the warp issues back to back.
    #[inline]
    fn read_cycles(&self, slot: usize, inst: &Inst, same_warp: bool, banks: u32) -> u64 {
        let warp = &self.warps[slot];
        let previous = match warp.position {
            position if same_warp && position > 0 => warp.code.insts()[position as usize - 1].src,
            _ => [NO_REGISTER; 4],
        };
        let mut reads = [0u64; MAX_BANKS];
        for (index, register) in inst.src.iter().enumerate() {
            let read = *register != NO_REGISTER
                && !previous.contains(register)
                && !inst.src[..index].contains(register);
            reads[(u32::from(*register) % banks) as usize] += u64::from(read);
        }
        reads.into_iter().max().unwrap_or(0)
    }

    /// Sets the ready time of the written registers.
    #[inline]
    pub(super) fn write(&mut self, slot: usize, dst: u8, written: u8, ready: u64) {
        for register in dst..dst.saturating_add(written) {
            self.scoreboard.set(slot, register, ready);
        }
    }

    fn issue_global(
        &mut self,
        sched: usize,
        slot: usize,
        inst: &Inst,
        now: u64,
        out: &mut SmContext<'_, '_>,
    ) {
        let at = self.send_to_lsu(sched, now, out);
        let mut transactions = std::mem::take(&mut self.lsu.transactions);
        let addresses = self.warps[slot].code.addresses(inst);
        coalesce(inst, addresses, &mut transactions);
        if matches!(inst.op, Op::Atomic | Op::Reduce) {
            count_passes(inst, addresses, &mut transactions);
        }
        self.counts.accesses += 1;
        let returns = matches!(inst.op, Op::LoadGlobal | Op::LoadStrong | Op::Atomic);
        let load_id = if returns { self.begin_load(slot, inst, transactions.len() as u16) } else { u32::MAX };
        for transaction in &transactions {
            let (sectors, full) = (transaction.sectors(), transaction.full_sectors_or_passes());
            self.access(Access { line: transaction.line, at, load_id, op: inst.op, sectors, full }, out);
        }
        self.lsu.transactions = transactions;
        self.limit_memory(now, out);
    }

    fn issue_shared(
        &mut self,
        sched: usize,
        slot: usize,
        inst: &Inst,
        now: u64,
        out: &mut SmContext<'_, '_>,
    ) {
        let at = self.send_to_lsu(sched, now, out);
        let cycles = bank_conflict_cycles(inst, self.warps[slot].code.addresses(inst));
        self.counts.shared += 1;
        self.counts.bank_conflicts += u64::from(cycles) - 1;
        let returns = inst.op != Op::StoreShared && inst.dst != NO_REGISTER;
        let load_id = if returns { self.begin_load(slot, inst, 1) } else { u32::MAX };
        let line = u64::from(cycles);
        self.access(Access { line, at, load_id, op: inst.op, sectors: 0, full: 0 }, out);
        self.limit_memory(now, out);
    }

    /// Issues a shuffle, which occupies the shared-memory crossbar for a cycle.
    fn issue_shuffle(
        &mut self,
        sched: usize,
        slot: usize,
        inst: &Inst,
        now: u64,
        out: &mut SmContext<'_, '_>,
    ) {
        let at = self.send_to_lsu(sched, now, out);
        let load_id = self.begin_load(slot, inst, 1);
        self.access(Access { line: 1, at, load_id, op: inst.op, sectors: 0, full: 0 }, out);
        self.limit_memory(now, out);
    }

    /// Issues an indexed constant load. The SM's constant cache delivers one word at a time; a
    /// warp's next load waits for its last.
    fn issue_constant(&mut self, slot: usize, inst: &Inst, now: u64, out: &SmContext<'_, '_>) {
        let index = inst.op as usize;
        let words = count_words(inst, self.warps[slot].code.addresses(inst));
        let last = now.max(self.constant_free) + (words - 1) * out.params.interval[index];
        self.constant_free = last + out.params.interval[index];
        let ready = last + out.params.latency[index];
        self.constant_ready[slot] = ready;
        self.write(slot, inst.dst, inst.written(), ready << 1);
    }

    /// Sends a memory instruction to the load-store unit; returns its arrival cycle.
    #[inline]
    fn send_to_lsu(&mut self, sched: usize, now: u64, out: &SmContext<'_, '_>) -> u64 {
        let at = self.memory_issue_time(sched, now);
        self.hold_memory_until(sched, at + out.params.lsu_issue, out.params.lsu_ahead);
        at
    }

    /// Allocates a load of `requests` requests and blocks its destination registers.
    fn begin_load(&mut self, slot: usize, inst: &Inst, requests: u16) -> u32 {
        self.warps[slot].pending += 1;
        let (dst, written) = (inst.dst, inst.written());
        self.write(slot, dst, written, NEVER);
        self.allocate_load(PendingLoad { done: 0, requests_left: requests, slot: slot as u16, dst, written })
    }

    /// Issues a barrier arrival. Arrivals are serialized, and the scheduler's later memory
    /// instructions follow it.
    fn issue_barrier(
        &mut self,
        sched: usize,
        slot: usize,
        now: u64,
        out: &mut SmContext<'_, '_>,
    ) -> Result<(), Error> {
        let at = self.memory_issue_time(sched, now).max(self.barrier_free);
        self.hold_memory_until(sched, at + 1, out.params.lsu_ahead);
        self.warps[slot].at_barrier = true;
        self.advance(slot, now + 1, out)?;
        let block = usize::from(self.warps[slot].block);
        self.blocks[block].arrived += 1;
        self.barrier_free = at + out.params.arrival;
        self.release_barrier(block, self.barrier_free + out.params.barrier);
        Ok(())
    }
}
