//! Any bytes as a packed trace and as Accel-Sim's text: instructions, or an error. Checksums are made right first, so
//! that what lies behind them is reached.
#![no_main]

use std::io::Cursor;

use buddy_trace::{At, Code, Kernel, accel, packed};
use libfuzzer_sys::fuzz_target;

/// Warps that are read of one input: a few bytes may stand for billions.
const WARPS: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    reseal(&mut bytes);
    if let Ok(mut kernel) = packed::Reader::new("fuzz", Cursor::new(bytes.clone())) {
        read(&mut kernel);
    }
    if let Ok(mut kernel) = accel::Reader::new("fuzz", Cursor::new(bytes)) {
        read(&mut kernel);
    }
});

fn read(kernel: &mut dyn Kernel) {
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
        let sum = crc32fast::hash(frame);
        bytes[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        at += 8 + length;
    }
}
