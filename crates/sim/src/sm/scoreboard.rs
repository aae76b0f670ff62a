//! Scoreboard: when each register of each warp is ready (RAW and WAW hazards).

/// Registers per warp, padded to 33 host cache lines: with 32, the same register of all warps would
/// map to few sets of the host's caches.
const REGISTERS: usize = 256 + GROUP;
/// Registers per host cache line.
const GROUP: usize = 8;

/// Ready times of all registers: the cycle doubled, plus one if a memory access writes it.
#[derive(Debug)]
pub(super) struct Scoreboard {
    ready: Vec<[u64; REGISTERS]>,
    /// Bit mask of groups that were ever written.
    written_groups: u32,
}

/// Index of a register. `NO_REGISTER`, 255, wraps to 0, next to the most used registers.
#[inline]
fn index(register: u8) -> usize {
    usize::from(register.wrapping_add(1))
}

impl Scoreboard {
    pub(super) fn new(slots: usize) -> Self {
        Self { ready: vec![[0; REGISTERS]; slots], written_groups: 0 }
    }

    /// Returns the ready time of each register of a warp; `NO_REGISTER` is always ready, since
    /// nothing writes it.
    #[inline]
    pub(super) fn ready_times(&self, slot: usize) -> impl Fn(u8) -> u64 {
        let registers = &self.ready[slot];
        move |register| registers[index(register)]
    }

    #[inline]
    pub(super) fn set(&mut self, slot: usize, register: u8, ready: u64) {
        self.written_groups |= 1 << (index(register) / GROUP);
        self.ready[slot][index(register)] = ready;
    }

    /// Clears the registers of a slot for a new warp.
    pub(super) fn clear(&mut self, slot: usize) {
        let (groups, _) = self.ready[slot].as_chunks_mut::<GROUP>();
        let mut written_groups = self.written_groups;
        while written_groups != 0 {
            groups[written_groups.trailing_zeros() as usize] = [0; GROUP];
            written_groups &= written_groups - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_of_all_warps_are_independent() {
        let mut board = Scoreboard::new(3);
        let time = |slot: usize, register: u8| 1 + 1000 * slot as u64 + u64::from(register);
        let all = || (0..3).flat_map(|slot| (0..255).map(move |register| (slot, register)));
        all().for_each(|(slot, register)| board.set(slot, register, time(slot, register)));
        assert!(all().all(|(slot, register)| board.ready_times(slot)(register) == time(slot, register)));
        assert_eq!(board.ready_times(1)(255), 0, "no register is always ready");
        board.clear(1);
        assert!(all().all(|(slot, register)| (board.ready_times(slot)(register) == 0) == (slot == 1)));
    }
}
