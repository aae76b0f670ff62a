//! Memory accesses: address computation, data transfer and trace output.

use super::{
    decode::Flag,
    exec::{WarpContext, Work, lanes},
    kernel::Warp,
    memory::{Memory, Shared},
    operand::{Address, Location, Operand, ZERO},
    parse::Instruction,
    state::{State, Value},
};
use crate::{Code, Inst, Problem, opcode};

/// Returns the address operand of a memory instruction. `LDC` and similar read constants.
pub(super) fn address_of(instruction: &Instruction) -> Option<Address> {
    instruction.operands.iter().find_map(|operand| match operand {
        Operand::Address(address) => Some(*address),
        _ => None,
    })
}

/// Executes a memory access and appends the instruction with its addresses.
pub(super) fn access(
    instruction: &Instruction,
    inst: Inst,
    context: &WarpContext<'_>,
    warp: &mut Warp,
    memory: &mut Memory,
    shared: &mut Shared,
) -> Result<(), Problem> {
    let unknowable =
        |what| Problem::Unknowable { pc: instruction.pc, opcode: instruction.opcode.clone(), what };
    let address = address_of(instruction).ok_or_else(|| unknowable("an address"))?;
    let width = opcode::width(&instruction.opcode);
    let mut list = Vec::with_capacity(32);
    for lane in lanes(inst.mask) {
        let at = lane_address(&warp.state, address, lane).ok_or_else(|| unknowable("a known address"))?;
        if inst.op.is_global() && !memory.holds(at, width.into()) {
            return Err(unknowable("an address inside an array"));
        }
        list.push(at);
    }
    let work = Work { instruction: &instruction.decoded, state: &mut warp.state, context, mask: inst.mask };
    let space = AddressSpace { global: inst.op.is_global(), memory, shared };
    transfer(work, instruction.base(), width, &list, space);
    push(&mut warp.code, inst, width, &list);
    Ok(())
}

/// Returns the address of one lane.
fn lane_address(state: &State, address: Address, lane: usize) -> Option<u64> {
    let low = u64::from(state.register(address.register, lane)?);
    let high = if address.wide && address.register != ZERO {
        u64::from(state.register(address.register.wrapping_add(1), lane)?)
    } else {
        0
    };
    let mut at = (high << 32 | low) << address.scale;
    if let Some(number) = address.uniform {
        at = at.wrapping_add(state.uniform(number)?.into());
    }
    Some(at.wrapping_add_signed(address.offset))
}

/// Memories that an access can reach.
struct AddressSpace<'a> {
    global: bool,
    memory: &'a mut Memory,
    shared: &'a mut Shared,
}

impl AddressSpace<'_> {
    fn load(&mut self, at: u64) -> Value {
        if self.global { self.memory.load(at) } else { self.shared.load(at) }
    }

    fn store(&mut self, at: u64, value: Value) {
        if self.global { self.memory.store(at, value) } else { self.shared.store(at, value) }
    }
}

/// Transfers words between registers and memory, lane by lane.
fn transfer(work: Work<'_>, base: &str, width: u8, list: &[u64], mut to: AddressSpace<'_>) {
    let i = work.instruction;
    let dst = if let Some(Location::Register(number)) = i.destination { number } else { ZERO };
    let words = u64::from(width / 4);
    let data = i.sources.last().copied();
    for (lane, &at) in lanes(work.mask).zip(list) {
        if base.starts_with("LD") {
            for word in 0..words.max(1) {
                let value = if words == 0 { None } else { to.load(at + 4 * word) };
                work.state.set_register(
                    dst.saturating_add(if dst == ZERO { 0 } else { word as u8 }),
                    lane,
                    value,
                );
            }
        } else if base.starts_with("ST") {
            for word in 0..words {
                let value = match data.map(|source| source.location) {
                    Some(Location::Register(ZERO)) => Some(0),
                    Some(Location::Register(number)) => {
                        work.state.register(number.saturating_add(word as u8), lane)
                    }
                    _ => None,
                };
                to.store(at + 4 * word, value);
            }
        } else {
            // Atomics: additions are computed, the results of others are unknown.
            let old = to.load(at);
            let added =
                if i.has(Flag::Inc) { Some(1) } else { data.and_then(|source| work.int(source, lane)) };
            let sum = i.has(Flag::Add) || i.has(Flag::Popc);
            to.store(at, old.zip(added).filter(|_| sum).map(|(old, added)| old.wrapping_add(added)));
            work.state.set_register(dst, lane, old);
        }
    }
}

/// Appends an access, strided if its addresses are.
fn push(code: &mut Code, inst: Inst, width: u8, list: &[u64]) {
    let step = match list {
        [first, second, ..] => second.wrapping_sub(*first) as i64,
        _ => 0,
    };
    let run = inst.mask.checked_shr(inst.mask.trailing_zeros()).unwrap_or(0);
    let even = list.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) as i64 == step);
    match i32::try_from(step) {
        Ok(stride) if even && run & run.wrapping_add(1) == 0 => {
            code.push(inst.at(list.first().copied().unwrap_or_default(), stride, width));
        }
        _ => code.push_list(inst, width, list),
    }
}
