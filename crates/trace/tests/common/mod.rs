//! Kernels read to their ends, so that two of them can be compared.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses some of it")]

use buddy_trace::{Addresses, At, Code, Error, Inst, Kernel, Launch, NO_REGISTER, Op};

/// A warp's instructions, each with the addresses of its active lanes.
pub type Warp = Vec<(Inst, Vec<u64>)>;
/// The same without how its addresses were written down.
pub type PlainWarp = Vec<(Op, u32, u8, [u8; 4], u8, Vec<u64>)>;

/// Every warp of a kernel, in one piece each.
pub fn warps(kernel: &mut dyn Kernel) -> Result<Vec<Warp>, Error> {
    let (blocks, per_block) = (kernel.launch().blocks(), kernel.launch().warps());
    let mut all = Vec::new();
    for block in 0..blocks {
        for warp in 0..per_block {
            let mut insts = Vec::new();
            for step in 0.. {
                let mut code = Code::default();
                kernel.fill(At { block, warp, step }, &mut code)?;
                if code.insts().is_empty() {
                    break;
                }
                insts.extend(code.insts().iter().map(|inst| (*inst, flatten(&code, inst))));
            }
            all.push(insts);
        }
    }
    Ok(all)
}

/// The addresses of the active lanes, one by one.
pub fn flatten(code: &Code, inst: &Inst) -> Vec<u64> {
    if inst.width == 0 {
        return Vec::new();
    }
    match code.addresses(inst) {
        Addresses::List(list) => list.to_vec(),
        Addresses::Strided { base, stride } => {
            let first = inst.mask.trailing_zeros();
            let lanes = (0..32).filter(|lane| inst.mask >> lane & 1 == 1);
            lanes.map(|lane| base.wrapping_add_signed(i64::from(stride) * i64::from(lane - first))).collect()
        }
    }
}

/// Everything but where a piece keeps its lists.
pub fn exact(all: Vec<Warp>) -> Vec<Vec<(Inst, Vec<u64>)>> {
    let same = |(inst, addresses): (Inst, Vec<u64>)| {
        // Shown, a list begins somewhere in its piece; any place will do.
        let listed = format!("{inst:?}").contains("listed: true");
        (
            if listed {
                Inst::new(inst.op, inst.dst, &inst.src).masked(inst.mask).at(0, -1, 127)
            } else {
                inst
            },
            addresses,
        )
    };
    all.into_iter().map(|warp| warp.into_iter().map(same).collect()).collect()
}

/// What a warp executes, without how its addresses were written down.
pub fn plain(all: Vec<Warp>) -> Vec<PlainWarp> {
    let fields = |(i, addresses): (Inst, Vec<u64>)| (i.op, i.mask, i.dst, i.src, i.width, addresses);
    all.into_iter().map(|warp| warp.into_iter().map(fields).collect()).collect()
}

/// One strided load by lanes that are not neighbours.
pub struct Gaps(pub Launch);

impl Kernel for Gaps {
    fn launch(&self) -> &Launch {
        &self.0
    }
    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        if at.step == 0 {
            code.push(
                Inst::new(Op::Atomic, NO_REGISTER, &[NO_REGISTER, 3]).at(0x100, -4, 4).masked(0x8000_0051),
            );
        }
        Ok(())
    }
}
