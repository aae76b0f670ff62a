//! A warp instruction in 24 bytes, and the buffer that holds a warp's instructions.

/// Lanes of a warp.
pub const WARP_LANES: u32 = 32;
/// No register; SASS's RZ, which reads as zero and never causes a dependency.
pub const NO_REGISTER: u8 = 255;

/// Instruction class, which determines unit and latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Op {
    /// Integer, logic, moves, comparisons of any type, conversions of addresses.
    Int,
    /// Integer multiply-add, on a pipe separate from [`Op::Int`].
    Imad,
    /// Single-precision arithmetic (FADD, FMUL, FFMA).
    Fp32,
    /// Double-precision arithmetic (DADD, DMUL, DFMA).
    Fp64,
    /// Half-precision arithmetic, two at a time.
    Fp16,
    /// Special functions and conversions.
    Sfu,
    /// Tensor-core matrix products.
    Tensor,
    /// Votes, special registers and other instructions that only take an issue slot.
    Control,
    /// A branch: waits for the last comparison, and its successor must be fetched.
    Branch,
    /// A load from the constant bank.
    LoadConstant,
    /// A load from global or local memory.
    LoadGlobal,
    /// A load that bypasses L1.
    LoadStrong,
    /// A store to global or local memory.
    StoreGlobal,
    /// A load from shared memory.
    LoadShared,
    /// A store to shared memory.
    StoreShared,
    /// An atomic in shared memory.
    AtomicShared,
    /// A shuffle between the lanes of a warp, through the shared-memory crossbar.
    Shuffle,
    /// An atomic at L2 that returns the old value.
    Atomic,
    /// An atomic at L2 that returns nothing.
    Reduce,
    /// A barrier of the thread block.
    Barrier,
    /// Exit of the lanes in its mask.
    Exit,
    /// An unknown opcode without memory access: timed as [`Op::Int`] and counted.
    Unknown,
}

impl Op {
    /// All classes, in numeric order.
    pub const ALL: [Self; 22] = [
        Self::Int,
        Self::Imad,
        Self::Fp32,
        Self::Fp64,
        Self::Fp16,
        Self::Sfu,
        Self::Tensor,
        Self::Control,
        Self::Branch,
        Self::LoadConstant,
        Self::LoadGlobal,
        Self::LoadStrong,
        Self::StoreGlobal,
        Self::LoadShared,
        Self::StoreShared,
        Self::AtomicShared,
        Self::Shuffle,
        Self::Atomic,
        Self::Reduce,
        Self::Barrier,
        Self::Exit,
        Self::Unknown,
    ];

    /// Returns whether it accesses global memory.
    #[inline]
    pub fn is_global(self) -> bool {
        use Op::*;
        matches!(self, LoadGlobal | LoadStrong | StoreGlobal | Atomic | Reduce)
    }

    /// Returns whether it accesses shared memory.
    #[inline]
    pub fn is_shared(self) -> bool {
        matches!(self, Self::LoadShared | Self::StoreShared | Self::AtomicShared)
    }
}

/// One instruction of one warp. Address lists are kept in its [`Code`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inst {
    base: u64,
    /// Stride in bytes, or for a list the index of its first address, or for a product of a warpgroup
    /// the columns of its result.
    stride: i32,
    /// Active mask: lanes that are not predicated off.
    pub mask: u32,
    /// Instruction class.
    pub op: Op,
    /// Destination register or [`NO_REGISTER`]. A load wider than four bytes also writes those
    /// after it.
    pub dst: u8,
    /// Source registers; unused ones are [`NO_REGISTER`].
    pub src: [u8; 4],
    /// Bytes per lane; 0 without a memory access.
    pub width: u8,
    listed: bool,
}

/// Addresses of an instruction, one per active lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses<'a> {
    /// The first active lane accesses `base`, each following lane `stride` bytes further.
    Strided {
        /// Address of the first active lane.
        base: u64,
        /// Bytes between consecutive lanes.
        stride: i32,
    },
    /// One address per active lane, in lane order.
    List(&'a [u64]),
}

impl Inst {
    /// Returns whether it loads a constant at an address from a register.
    #[inline]
    pub fn is_indexed_constant(&self) -> bool {
        self.op == Op::LoadConstant && self.src[0] != NO_REGISTER
    }

    /// Creates an instruction without memory access, for all lanes, with at most four sources.
    #[inline]
    pub fn new(op: Op, dst: u8, sources: &[u8]) -> Self {
        let mut src = [NO_REGISTER; 4];
        src[..sources.len()].copy_from_slice(sources);
        Self { base: 0, stride: 0, mask: u32::MAX, op, dst, src, width: 0, listed: false }
    }

    /// Adds an access of `width` bytes per lane, `stride` bytes apart.
    #[inline]
    pub fn at(mut self, base: u64, stride: i32, width: u8) -> Self {
        (self.base, self.stride, self.width) = (base, stride, width);
        self
    }

    /// Sets the columns of a warpgroup product's result; 0 for any other instruction without access.
    #[inline]
    pub(crate) fn of_columns(mut self, columns: u16) -> Self {
        if self.op == Op::Tensor && self.width == 0 {
            self.stride = columns.into();
        }
        self
    }

    /// Returns the columns of a warpgroup product's result; 0 for all other instructions.
    #[inline]
    pub fn columns(&self) -> u64 {
        if self.op == Op::Tensor && self.width == 0 { u64::from(self.stride.unsigned_abs()) } else { 0 }
    }

    /// Moves the access to another base address.
    #[inline]
    pub(crate) fn from(mut self, base: u64) -> Self {
        self.base = base;
        self
    }

    /// Sets the active mask.
    #[inline]
    pub fn masked(mut self, mask: u32) -> Self {
        self.mask = mask;
        self
    }

    /// Returns the number of active lanes.
    #[inline]
    pub fn lanes(&self) -> u32 {
        // All lanes is the common case, and not every host has a popcount instruction.
        if self.mask == u32::MAX { WARP_LANES } else { self.mask.count_ones() }
    }

    /// Returns the number of registers written, from [`Inst::dst`] on.
    #[inline]
    pub fn written(&self) -> u8 {
        match (self.dst, self.width) {
            (NO_REGISTER, _) => 0,
            (dst, width) => (width / 4).max(1).min(NO_REGISTER - dst),
        }
    }
}

/// A chunk of a warp's instructions, with their address lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Code {
    insts: Vec<Inst>,
    lists: Vec<u64>,
    /// Opcode number of each instruction; empty if the kernel has none.
    opcodes: Vec<u16>,
}

impl Code {
    /// Appends an instruction without a list of addresses.
    #[inline]
    pub fn push(&mut self, inst: Inst) {
        self.insts.push(inst);
    }

    /// Appends an access of `width` bytes at these addresses, one per active lane.
    ///
    /// # Panics
    /// If the number of addresses is not the number of active lanes.
    #[inline]
    pub fn push_list(&mut self, inst: Inst, width: u8, addresses: &[u64]) {
        assert_eq!(addresses.len(), inst.lanes() as usize, "one address for each active lane");
        let first = i32::try_from(self.lists.len()).expect("a chunk holds fewer than 2^31 addresses");
        self.lists.extend_from_slice(addresses);
        self.insts.push(Inst { base: 0, stride: first, width, listed: true, ..inst });
    }

    /// Sets the opcode of the last instruction: either all of a chunk have one, or none.
    #[inline]
    pub(crate) fn name_last(&mut self, opcode: u16) {
        debug_assert_eq!(self.opcodes.len() + 1, self.insts.len());
        self.opcodes.push(opcode);
    }

    /// Returns an instruction's opcode number in its kernel, if it was traced.
    #[inline]
    pub fn opcode(&self, index: usize) -> Option<u16> {
        self.opcodes.get(index).copied()
    }

    /// Returns the instructions in order.
    #[inline]
    pub fn insts(&self) -> &[Inst] {
        &self.insts
    }

    /// Returns the addresses of one of its instructions.
    #[inline]
    pub fn addresses(&self, inst: &Inst) -> Addresses<'_> {
        if inst.listed {
            let first = inst.stride as usize;
            Addresses::List(&self.lists[first..first + inst.lanes() as usize])
        } else {
            Addresses::Strided { base: inst.base, stride: inst.stride }
        }
    }

    /// Removes all instructions but keeps the capacity.
    #[inline]
    pub fn clear(&mut self) {
        self.insts.clear();
        self.lists.clear();
        self.opcodes.clear();
    }

    /// Returns the heap bytes.
    pub fn heap_bytes(&self) -> usize {
        self.insts.capacity() * size_of::<Inst>()
            + self.lists.capacity() * size_of::<u64>()
            + self.opcodes.capacity() * size_of::<u16>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_takes_24_bytes() {
        assert_eq!(size_of::<Inst>(), 24);
        assert!(Op::ALL.iter().enumerate().all(|(index, &op)| op as usize == index));
    }

    #[test]
    fn pushed_addresses_are_returned() {
        let mut code = Code::default();
        code.push(Inst::new(Op::LoadGlobal, 4, &[2]).at(0x1000, -8, 8));
        code.push_list(Inst::new(Op::LoadGlobal, 5, &[2]).masked(0b101), 4, &[7, 9]);
        code.push_list(Inst::new(Op::LoadGlobal, 5, &[2]).masked(0b1), 4, &[11]);
        let [strided, gather, last] = code.insts() else { panic!() };
        assert_eq!(code.addresses(strided), Addresses::Strided { base: 0x1000, stride: -8 });
        assert_eq!(code.addresses(gather), Addresses::List(&[7, 9]));
        assert_eq!(code.addresses(last), Addresses::List(&[11]));
    }

    #[test]
    fn a_wide_load_writes_consecutive_registers() {
        let load = |dst, width| Inst::new(Op::LoadGlobal, dst, &[]).at(0, 16, width).written();
        assert_eq!([load(4, 1), load(4, 4), load(4, 8), load(4, 16)], [1, 1, 2, 4]);
        assert_eq!([load(253, 16), load(NO_REGISTER, 16)], [2, 0]);
    }
}
