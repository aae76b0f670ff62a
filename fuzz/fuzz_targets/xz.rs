//! Any bytes as the `.xz` of a trace: a kernel, or an error, in bounded memory.
#![no_main]

use std::io::Cursor;

use buddy_trace::{At, Code, Kernel, accel};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(mut kernel) = accel::Reader::new_xz("fuzz", Cursor::new(bytes.to_vec())) {
        let _ = kernel.fill(At { block: 0, warp: 0, step: 0 }, &mut Code::default());
    }
});
