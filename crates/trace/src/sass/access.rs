//! Memory accesses: where they go, what they move, and how a trace notes them.

use super::{
    decode::Flag,
    exec::{Surroundings, Work, lanes},
    kernel::Warp,
    memory::{Memory, Shared},
    operand::{Address, Operand, Place, ZERO},
    parse::Instruction,
    state::{State, Value},
};
use crate::{Code, Inst, Problem, opcode};

/// The address of an instruction that accesses memory. `LDC` and its like read constants.
pub(super) fn address_of(instruction: &Instruction) -> Option<Address> {
    instruction.operands.iter().find_map(|operand| match operand {
        Operand::Address(address) => Some(*address),
        _ => None,
    })
}

/// Accesses memory, and appends the instruction with its addresses.
pub(super) fn access(
    instruction: &Instruction,
    inst: Inst,
    around: &Surroundings<'_>,
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
    let work = Work { instruction: &instruction.decoded, state: &mut warp.state, around, mask: inst.mask };
    let reaches = Reaches { global: inst.op.is_global(), memory, shared };
    transfer(work, instruction.base(), width, &list, reaches);
    push(&mut warp.code, inst, width, &list);
    Ok(())
}

/// Where one lane's access goes.
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

/// The memories that an access may go to.
struct Reaches<'a> {
    global: bool,
    memory: &'a mut Memory,
    shared: &'a mut Shared,
}

impl Reaches<'_> {
    fn load(&mut self, at: u64) -> Value {
        if self.global { self.memory.load(at) } else { self.shared.load(at) }
    }

    fn store(&mut self, at: u64, value: Value) {
        if self.global { self.memory.store(at, value) } else { self.shared.store(at, value) }
    }
}

/// Moves words between registers and memory, lane by lane.
fn transfer(work: Work<'_>, base: &str, width: u8, list: &[u64], mut to: Reaches<'_>) {
    let i = work.instruction;
    let dst = if let Some(Place::Register(number)) = i.destination { number } else { ZERO };
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
                let value = match data.map(|source| source.place) {
                    Some(Place::Register(ZERO)) => Some(0),
                    Some(Place::Register(number)) => {
                        work.state.register(number.saturating_add(word as u8), lane)
                    }
                    _ => None,
                };
                to.store(at + 4 * word, value);
            }
        } else {
            // Atomics: sums are computed, of others nothing is known.
            let old = to.load(at);
            let added =
                if i.has(Flag::Inc) { Some(1) } else { data.and_then(|source| work.int(source, lane)) };
            let sum = i.has(Flag::Add) || i.has(Flag::Popc);
            to.store(at, old.zip(added).filter(|_| sum).map(|(old, added)| old.wrapping_add(added)));
            work.state.set_register(dst, lane, old);
        }
    }
}

/// Appends an access, strided where it is.
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
