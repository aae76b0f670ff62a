//! Reads any bytes as a packed trace, as Accel-Sim text, as `.xz` and as `.tracez`: instructions or
//! an error, in bounded memory. Checksums of packed traces are corrected first, so that later checks
//! are reached.

use std::io::Cursor;

use buddy_trace::{At, Code, Kernel, accel, packed};

/// Limit on warps per input, since a few bytes may declare billions.
const WARPS: usize = 64;

pub(crate) fn read(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    reseal(&mut bytes);
    if let Ok(mut kernel) = packed::Reader::new("fuzz", Cursor::new(bytes.clone())) {
        fill(&mut kernel);
    }
    if let Ok(mut kernel) = accel::Reader::new("fuzz", Cursor::new(bytes)) {
        fill(&mut kernel);
    }
}

pub(crate) fn xz(bytes: &[u8]) {
    if let Ok(mut kernel) = accel::Reader::new_xz("fuzz", Cursor::new(bytes.to_vec())) {
        let _ = kernel.fill(At { block: 0, warp: 0, step: 0 }, &mut Code::default());
    }
}

pub(crate) fn tracez(bytes: &[u8]) {
    if let Ok(mut kernel) = accel::Reader::new_tracez("fuzz", Cursor::new(bytes.to_vec())) {
        let _ = kernel.fill(At { block: 0, warp: 0, step: 0 }, &mut Code::default());
    }
}

fn fill(kernel: &mut dyn Kernel) {
    let (blocks, warps) = (kernel.launch().blocks(), kernel.launch().warps());
    let all = (0..blocks).flat_map(|block| (0..warps).map(move |warp| At { block, warp, step: 0 }));
    let mut code = Code::default();
    for at in all.take(WARPS) {
        code.clear();
        if kernel.fill(at, &mut code).is_err() {
            return;
        }
        for (index, inst) in code.insts().iter().enumerate() {
            code.addresses(inst);
            assert!(code.opcode(index).is_some_and(|opcode| usize::from(opcode) < kernel.opcodes().len()));
        }
    }
}

fn reseal(bytes: &mut [u8]) {
    let mut at = 12;
    while let Some(head) = bytes.get(at..at + 4) {
        let length = u32::from_le_bytes(head.try_into().expect("four bytes")) as usize;
        let Some(frame) = bytes.get(at + 8..).and_then(|rest| rest.get(..length)) else { return };
        let sum = buddy_core::checksum(frame);
        bytes[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        at += 8 + length;
    }
}
