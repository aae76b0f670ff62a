//! Address prediction: a warp's n-th access by an instruction is predicted from the previous
//! warp's, plus the offset between the two warps in the previous block. Only the residual is
//! stored.

/// Addresses that one warp accessed, by instruction.
#[derive(Debug, Default)]
struct History {
    bases: Vec<Vec<u64>>,
    touched: Vec<u32>,
}

/// Predictor state.
#[derive(Debug, Default)]
pub(super) struct AddressPredictor {
    /// History of the current warp, the previous warp and the first warp of the previous block. The
    /// three rotate to avoid copies.
    histories: [History; 3],
    current: usize,
    previous: usize,
    first: usize,
    /// Offset of each warp from the previous one, by instruction.
    shifts: Vec<Vec<u64>>,
    /// Last address, by instruction.
    last: Vec<u64>,
    warp: usize,
}

/// A predicted address, and whether to update the warp offset from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prediction {
    pub(super) base: u64,
    updates_shift: bool,
}

impl History {
    fn clear(&mut self) {
        for &instruction in &self.touched {
            self.bases[instruction as usize].clear();
        }
        self.touched.clear();
    }
}

impl AddressPredictor {
    /// Begins a warp of a kernel with `instructions` instructions; warps of a block are in order.
    pub(super) fn begin(&mut self, warp: usize, instructions: usize) {
        self.warp = warp;
        self.previous = if warp == 0 { self.first } else { self.current };
        self.current = (0..3).find(|&history| history != self.previous && history != self.first).unwrap_or(0);
        self.histories[self.current].clear();
        if self.shifts.len() <= warp {
            self.shifts.resize_with(warp + 1, Vec::new);
        }
        self.reserve(instructions);
    }

    /// Ends a warp.
    pub(super) fn end(&mut self) {
        if self.warp == 0 {
            self.first = self.current;
        }
    }

    /// Grows the state to `instructions` instructions.
    pub(super) fn reserve(&mut self, instructions: usize) {
        if self.shifts[self.warp].len() >= instructions {
            return;
        }
        self.last.resize(self.last.len().max(instructions), 0);
        let warp = &mut self.shifts[self.warp];
        warp.resize(warp.len().max(instructions), 0);
        for history in &mut self.histories {
            history.bases.resize_with(history.bases.len().max(instructions), Vec::new);
        }
    }

    /// Predicts the address of an instruction's next access.
    #[inline]
    pub(super) fn predict(&self, instruction: u32) -> Prediction {
        let index = instruction as usize;
        let own = &self.histories[self.current].bases[index];
        let others = &self.histories[self.previous].bases[index];
        if let Some(base) = others.get(own.len()) {
            return Prediction {
                base: base.wrapping_add(self.shifts[self.warp][index]),
                updates_shift: true,
            };
        }
        let base = match own.as_slice() {
            [.., earlier, last] => last.wrapping_add(last.wrapping_sub(*earlier)),
            _ => self.last[index],
        };
        Prediction { base, updates_shift: false }
    }

    /// Updates the state with the residual; returns the address.
    #[inline]
    pub(super) fn update(&mut self, instruction: u32, prediction: Prediction, residual: u64) -> u64 {
        let index = instruction as usize;
        let base = prediction.base.wrapping_add(residual);
        if prediction.updates_shift && residual != 0 {
            let shift = &mut self.shifts[self.warp][index];
            *shift = shift.wrapping_add(residual);
        }
        let history = &mut self.histories[self.current];
        if history.bases[index].is_empty() {
            history.touched.push(instruction);
        }
        history.bases[index].push(base);
        self.last[index] = base;
        base
    }
}
