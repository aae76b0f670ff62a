//! One warp instruction in 24 bytes, and the buffer that a warp's instructions are handed over in.

/// Lanes of a warp.
pub const WARP_LANES: u32 = 32;
/// Stands for "no register"; in SASS it is RZ, which reads as zero and is never waited for.
pub const NO_REGISTER: u8 = 255;

/// What an instruction does, as far as time depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Op {
    /// Integer, logic, moves, comparisons of any type, conversions of addresses.
    Int,
    /// Integer multiply-add, which has a pipe of its own beside [`Op::Int`].
    Imad,
    /// Single-precision arithmetic (FADD, FMUL, FFMA).
    Fp32,
    /// Double-precision arithmetic (DADD, DMUL, DFMA).
    Fp64,
    /// Half precision, two at a time.
    Fp16,
    /// Special functions and conversions.
    Sfu,
    /// Matrix products of a tensor core.
    Tensor,
    /// Votes, special registers and whatever else only takes an issue slot.
    Control,
    /// A branch: it waits for the last comparison, and the instruction after it has to be fetched.
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
    /// An exchange between the lanes of a warp, through the crossbar of shared memory.
    Shuffle,
    /// An atomic at L2 that returns the old value.
    Atomic,
    /// An atomic at L2 that returns nothing.
    Reduce,
    /// A barrier of the thread block.
    Barrier,
    /// The end of the lanes in its mask.
    Exit,
    /// An instruction whose opcode is not known and that accesses no memory: timed as [`Op::Int`], and counted.
    Unknown,
}

impl Op {
    /// Every kind, in the order of their numbers.
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

    /// Whether its addresses go to global memory.
    #[inline]
    pub fn is_global(self) -> bool {
        use Op::*;
        matches!(self, LoadGlobal | LoadStrong | StoreGlobal | Atomic | Reduce)
    }

    /// Whether its addresses go to shared memory.
    #[inline]
    pub fn is_shared(self) -> bool {
        matches!(self, Self::LoadShared | Self::StoreShared | Self::AtomicShared)
    }
}

/// One instruction of one warp. The addresses of a gather lie beside it, in its [`Code`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inst {
    base: u64,
    /// The stride in bytes, or for a list the index of its first address.
    stride: i32,
    /// The lanes that take part.
    pub mask: u32,
    /// Kind of instruction: it decides the unit, the latency and where its addresses go.
    pub op: Op,
    /// The register it writes, or [`NO_REGISTER`]. A load of more than four bytes writes those after it as well.
    pub dst: u8,
    /// The registers it reads; unused places hold [`NO_REGISTER`].
    pub src: [u8; 4],
    /// Bytes that each lane accesses; 0 where there is no access.
    pub width: u8,
    listed: bool,
}

/// The addresses of an instruction, one for each lane in its mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses<'a> {
    /// The first active lane accesses `base`, each lane after it `stride` bytes further.
    Strided {
        /// Address of the first active lane.
        base: u64,
        /// Bytes from lane to lane.
        stride: i32,
    },
    /// One address for each active lane, in lane order.
    List(&'a [u64]),
}

impl Inst {
    /// Whether it loads a constant whose place a register says, not the instruction itself.
    #[inline]
    pub fn is_indexed_constant(&self) -> bool {
        self.op == Op::LoadConstant && self.src[0] != NO_REGISTER
    }

    /// An instruction without memory access, for all lanes. At most four sources.
    #[inline]
    pub fn new(op: Op, dst: u8, sources: &[u8]) -> Self {
        let mut src = [NO_REGISTER; 4];
        src[..sources.len()].copy_from_slice(sources);
        Self { base: 0, stride: 0, mask: u32::MAX, op, dst, src, width: 0, listed: false }
    }

    /// The same with an access of `width` bytes by each lane, `stride` bytes apart.
    #[inline]
    pub fn at(mut self, base: u64, stride: i32, width: u8) -> Self {
        (self.base, self.stride, self.width) = (base, stride, width);
        self
    }

    /// The same access from another address on.
    #[inline]
    pub(crate) fn from(mut self, base: u64) -> Self {
        self.base = base;
        self
    }

    /// The same for some lanes only.
    #[inline]
    pub fn masked(mut self, mask: u32) -> Self {
        self.mask = mask;
        self
    }

    /// How many lanes take part.
    #[inline]
    pub fn lanes(&self) -> u32 {
        // Most often all: counting them is not one instruction on every machine.
        if self.mask == u32::MAX { WARP_LANES } else { self.mask.count_ones() }
    }

    /// How many registers it writes, from [`Inst::dst`] on.
    #[inline]
    pub fn written(&self) -> u8 {
        match (self.dst, self.width) {
            (NO_REGISTER, _) => 0,
            (dst, width) => (width / 4).max(1).min(NO_REGISTER - dst),
        }
    }
}

/// A piece of a warp's instructions, with the lists of addresses that some of them need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Code {
    insts: Vec<Inst>,
    lists: Vec<u64>,
    /// For each instruction its opcode's number with its kernel; empty where they have none.
    opcodes: Vec<u16>,
}

impl Code {
    /// Appends an instruction without a list of addresses.
    #[inline]
    pub fn push(&mut self, inst: Inst) {
        self.insts.push(inst);
    }

    /// Appends an access of `width` bytes at each of these addresses, one per lane of the instruction's mask.
    ///
    /// # Panics
    /// If there are not as many addresses as lanes.
    #[inline]
    pub fn push_list(&mut self, inst: Inst, width: u8, addresses: &[u64]) {
        assert_eq!(addresses.len(), inst.lanes() as usize, "one address for each active lane");
        let first = i32::try_from(self.lists.len()).expect("a piece of a warp's code holds few addresses");
        self.lists.extend_from_slice(addresses);
        self.insts.push(Inst { base: 0, stride: first, width, listed: true, ..inst });
    }

    /// Gives the last instruction the opcode of this number: either all of a piece have one, or none.
    #[inline]
    pub(crate) fn name_last(&mut self, opcode: u16) {
        debug_assert_eq!(self.opcodes.len() + 1, self.insts.len());
        self.opcodes.push(opcode);
    }

    /// The number of an instruction's opcode among those of its kernel, for an instruction that was read.
    #[inline]
    pub fn opcode(&self, index: usize) -> Option<u16> {
        self.opcodes.get(index).copied()
    }

    /// The instructions in order.
    #[inline]
    pub fn insts(&self) -> &[Inst] {
        &self.insts
    }

    /// The addresses of one of its instructions.
    #[inline]
    pub fn addresses(&self, inst: &Inst) -> Addresses<'_> {
        if inst.listed {
            let first = inst.stride as usize;
            Addresses::List(&self.lists[first..first + inst.lanes() as usize])
        } else {
            Addresses::Strided { base: inst.base, stride: inst.stride }
        }
    }

    /// Forgets everything but keeps the room.
    #[inline]
    pub fn clear(&mut self) {
        self.insts.clear();
        self.lists.clear();
        self.opcodes.clear();
    }

    /// Bytes that it holds on the heap.
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
    fn addresses_come_back() {
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
    fn a_wide_load_writes_its_registers() {
        let load = |dst, width| Inst::new(Op::LoadGlobal, dst, &[]).at(0, 16, width).written();
        assert_eq!([load(4, 1), load(4, 4), load(4, 8), load(4, 16)], [1, 1, 2, 4]);
        assert_eq!([load(253, 16), load(NO_REGISTER, 16)], [2, 0]);
    }
}
