//! Every case is traced for three architectures, without a GPU. Needs NVRTC and nvdisasm; reports a
//! skip without them.

use std::time::Instant;

use buddy_trace::{At, Code, Kernel};

use super::*;
use crate::micro::{cases::Card, disassemble::disassemble};

/// A GPU with fewer SMs and a smaller L2, so that the test is short.
const CARD: Card = Card { multiprocessors: 4, l2_bytes: 1 << 20 };

#[test]
fn every_case_is_traced_on_every_architecture() {
    for architecture in [80, 90, 100] {
        for source in micro_sources() {
            let image = match source.compile(&format!("sm_{architecture}")) {
                Ok(image) => image,
                Err(buddy_cuda::Error::NoCompiler { .. }) => {
                    return println!("skipped: there is no NVRTC here");
                }
                Err(error) => panic!("{error}"),
            };
            let Ok(text) = disassemble(&image, &format!("{architecture}-{}", source.name)) else {
                return println!("skipped: there is no nvdisasm here");
            };
            for case in cases::all(CARD).iter().filter(|case| case.file == source.name) {
                check(&text, case, architecture);
            }
        }
    }
}

fn check(text: &str, case: &Case, architecture: u32) {
    let start = Instant::now();
    let base = |index: usize| 0x7f00_0000_0000 + ((index as u64) << 32);
    let array = |(index, (bytes, holds)): (usize, &(u64, cases::Holds))| Array {
        base: base(index),
        bytes: *bytes,
        content: content(*holds, base(index), *bytes),
    };
    let arrays = case.arrays.iter().enumerate().map(array).collect();
    let mut kernel = trace(text, case, arrays, (32, 0)).unwrap();
    let (mut code, mut count) = (Code::default(), 0);
    // A few blocks cover every path; the last one covers the ends of arrays.
    let blocks = kernel.launch().blocks().min(64);
    for (block, warp) in
        (0..blocks).flat_map(|block| (0..case.threads.div_ceil(32)).map(move |warp| (block, warp)))
    {
        code.clear();
        let filled = kernel.fill(At { block, warp, step: 0 }, &mut code);
        filled.unwrap_or_else(|error| panic!("{} on sm_{architecture}: {error}", case.name));
        count += code.insts().len();
        assert!(!code.insts().is_empty(), "{}", case.name);
    }
    let unknown = kernel.unknown();
    assert!(unknown.is_empty(), "{} on sm_{architecture}: {unknown:?}", case.name);
    println!("sm_{architecture} {:<28} {count:>9} {:>8.1?}", case.name, start.elapsed());
}
