//! Addresses as they are foretold: a warp's n-th access by an instruction lies as far from that of the warp before it as
//! the same warp's lay in the block before. Written down is only by how much that is wrong.

/// The addresses that one warp accessed, by instruction.
#[derive(Debug, Default)]
struct Trail {
    bases: Vec<Vec<u64>>,
    used: Vec<u32>,
}

/// Everything that foretelling needs to remember.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The present warp, the warp before it, and the first warp of the block before: which of the three is which
    /// changes, so that none is copied.
    trails: [Trail; 3],
    present: usize,
    before: usize,
    first: usize,
    /// For each warp of a block, by instruction: how far it lay from the warp before it.
    shifts: Vec<Vec<u64>>,
    /// The last address by instruction.
    last: Vec<u64>,
    warp: usize,
}

/// An address that was foretold, and what is needed to learn from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Foretold {
    pub(super) base: u64,
    learns: bool,
}

impl Trail {
    fn clear(&mut self) {
        for &instruction in &self.used {
            self.bases[instruction as usize].clear();
        }
        self.used.clear();
    }
}

impl Walk {
    /// Begins a warp of a kernel with so many instructions; a block's warps come in order.
    pub(super) fn begin(&mut self, warp: usize, instructions: usize) {
        self.warp = warp;
        self.before = if warp == 0 { self.first } else { self.present };
        self.present = (0..3).find(|&trail| trail != self.before && trail != self.first).unwrap_or(0);
        self.trails[self.present].clear();
        if self.shifts.len() <= warp {
            self.shifts.resize_with(warp + 1, Vec::new);
        }
        self.reserve(instructions);
    }

    /// Ends a warp.
    pub(super) fn end(&mut self) {
        if self.warp == 0 {
            self.first = self.present;
        }
    }

    /// Makes room for so many instructions.
    pub(super) fn reserve(&mut self, instructions: usize) {
        if self.shifts[self.warp].len() >= instructions {
            return;
        }
        self.last.resize(self.last.len().max(instructions), 0);
        let warp = &mut self.shifts[self.warp];
        warp.resize(warp.len().max(instructions), 0);
        for trail in &mut self.trails {
            trail.bases.resize_with(trail.bases.len().max(instructions), Vec::new);
        }
    }

    /// Where an instruction's next access should be.
    #[inline]
    pub(super) fn foretell(&self, instruction: u32) -> Foretold {
        let index = instruction as usize;
        let here = &self.trails[self.present].bases[index];
        let there = &self.trails[self.before].bases[index];
        if let Some(base) = there.get(here.len()) {
            return Foretold { base: base.wrapping_add(self.shifts[self.warp][index]), learns: true };
        }
        let base = match here.as_slice() {
            [.., earlier, last] => last.wrapping_add(last.wrapping_sub(*earlier)),
            _ => self.last[index],
        };
        Foretold { base, learns: false }
    }

    /// Learns where it was; gives the address.
    #[inline]
    pub(super) fn learn(&mut self, instruction: u32, foretold: Foretold, wrong_by: u64) -> u64 {
        let index = instruction as usize;
        let base = foretold.base.wrapping_add(wrong_by);
        if foretold.learns && wrong_by != 0 {
            let shift = &mut self.shifts[self.warp][index];
            *shift = shift.wrapping_add(wrong_by);
        }
        let trail = &mut self.trails[self.present];
        if trail.bases[index].is_empty() {
            trail.used.push(instruction);
        }
        trail.bases[index].push(base);
        self.last[index] = base;
        base
    }
}
