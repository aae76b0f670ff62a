//! When the registers of an SM's warps are ready (RAW and WAW).

/// Registers that a warp can name, and a few more: 33 lines of the host's memory. At 32 the same register of all warps would
/// compete for a few places of the host's caches.
const REGISTERS: usize = 256 + GROUP;
/// Registers that share a line of the host's memory.
const GROUP: usize = 8;

/// The time of every register of every warp: the cycle, doubled, plus one if memory makes it.
#[derive(Debug)]
pub(super) struct Scoreboard {
    ready: Vec<[u64; REGISTERS]>,
    /// Groups in which anything was ever written, one bit each.
    used: u32,
}

/// Where a register stands. "No register", the last, comes first, beside those that are used most.
#[inline]
fn place(register: u8) -> usize {
    usize::from(register.wrapping_add(1))
}

impl Scoreboard {
    pub(super) fn new(slots: usize) -> Self {
        Self { ready: vec![[0; REGISTERS]; slots], used: 0 }
    }

    /// When each register of a warp is ready; "no register" always is, since nothing writes it.
    #[inline]
    pub(super) fn of(&self, slot: usize) -> impl Fn(u8) -> u64 {
        let registers = &self.ready[slot];
        move |register| registers[place(register)]
    }

    #[inline]
    pub(super) fn set(&mut self, slot: usize, register: u8, ready: u64) {
        self.used |= 1 << (place(register) / GROUP);
        self.ready[slot][place(register)] = ready;
    }

    /// Forgets what a warp that was there before has written.
    pub(super) fn clear(&mut self, slot: usize) {
        let (groups, _) = self.ready[slot].as_chunks_mut::<GROUP>();
        let mut used = self.used;
        while used != 0 {
            groups[used.trailing_zeros() as usize] = [0; GROUP];
            used &= used - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_register_of_every_warp_has_a_place_of_its_own() {
        let mut board = Scoreboard::new(3);
        let time = |slot: usize, register: u8| 1 + 1000 * slot as u64 + u64::from(register);
        let all = || (0..3).flat_map(|slot| (0..255).map(move |register| (slot, register)));
        all().for_each(|(slot, register)| board.set(slot, register, time(slot, register)));
        assert!(all().all(|(slot, register)| board.of(slot)(register) == time(slot, register)));
        assert_eq!(board.of(1)(255), 0, "no register is always ready");
        board.clear(1);
        assert!(all().all(|(slot, register)| (board.of(slot)(register) == 0) == (slot == 1)));
    }
}
