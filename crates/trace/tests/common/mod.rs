//! Reads whole kernels for comparison.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses some of it")]

use buddy_trace::{Addresses, At, Code, Error, Inst, Kernel, Launch, NO_REGISTER, Op};

/// A warp's instructions, each with the addresses of its active lanes.
pub type Warp = Vec<(Inst, Vec<u64>)>;
/// A warp's instructions independent of the address representation.
pub type PlainWarp = Vec<(Op, u32, u8, [u8; 4], u8, Vec<u64>)>;

/// Returns every warp of a kernel, each in one piece.
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

/// Returns the addresses of the active lanes.
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

/// Returns the instructions without the position of their address lists.
pub fn exact(all: Vec<Warp>) -> Vec<Vec<(Inst, Vec<u64>)>> {
    let same = |(inst, addresses): (Inst, Vec<u64>)| {
        // The debug output contains the list's start in its chunk; normalize it.
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

/// Returns the instructions independent of the address representation.
pub fn plain(all: Vec<Warp>) -> Vec<PlainWarp> {
    let fields = |(i, addresses): (Inst, Vec<u64>)| (i.op, i.mask, i.dst, i.src, i.width, addresses);
    all.into_iter().map(|warp| warp.into_iter().map(fields).collect()).collect()
}

/// A strided load by non-consecutive lanes.
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
