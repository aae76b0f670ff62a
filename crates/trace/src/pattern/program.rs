//! Named programs: one kernel of each pattern over arrays of a chosen footprint.

use super::{Arithmetic, Array, Csr, Gemm, Lattice, RandomSectors, Stencil, Stream, scramble};
use crate::{Kernel, Launch, Op};

/// A generated program: its kernels in order, and its memory.
pub struct Program {
    /// Kernels in execution order.
    pub kernels: Vec<Box<dyn Kernel>>,
    /// Base and length of each array.
    pub allocations: Vec<(u64, u64)>,
}

/// Program names.
pub const PROGRAMS: [&str; 7] = ["arithmetic", "stream", "stencil", "csr", "lattice", "gemm", "random"];

/// Base of the first array; the others follow, aligned to 2 MiB.
const BASE: u64 = 1 << 32;

/// Returns a program that uses about `bytes` of memory; `None` for an unknown name.
///
/// # Panics
/// If `bytes` is under 1 MiB or over 1 TiB.
pub fn program(name: &str, bytes: u64) -> Option<Program> {
    assert!((1 << 20..=1 << 40).contains(&bytes), "{bytes} bytes: use 1 MiB to 1 TiB");
    let mut layout = Layout { next: BASE, allocations: Vec::new() };
    let kernel: Box<dyn Kernel> = match name {
        "arithmetic" => Box::new(Arithmetic::new(448, 256, Op::Fp32, (bytes >> 20) as u32, 4)),
        "stream" => {
            let elements = bytes / 12;
            let [a, b, c] = [4, 4, 4].map(|size| layout.array(elements, size));
            let launch = Launch::linear("stream", (elements / 2048).clamp(1, 4096) as u32, 256);
            Box::new(Stream::new(launch, &[a, b], &[c], elements, 1))
        }
        "stencil" => {
            let side = (bytes as f64 / 8.0).cbrt() as u32;
            let points = u64::from(side).pow(3);
            let [from, to] = [4, 4].map(|size| layout.array(points, size));
            Box::new(Stencil::new(from, to, [side; 3], &Stencil::star(2)))
        }
        "csr" => {
            // 16 entries of 12 bytes per row, and two vectors of 8 bytes.
            let rows = bytes / (16 * 12 + 16);
            let arrays = [(16, 8), (16, 4), (1, 8), (1, 8)].map(|(n, size)| layout.array(rows * n, size));
            Box::new(Csr::new(arrays, rows, 16, |row, entry, rows| scramble(row * 16 + entry) % rows))
        }
        "lattice" => {
            let cells = bytes / (19 * 20);
            let arrays = [4, 8, 8].map(|size| layout.array(19 * cells, size));
            Box::new(Lattice::new(arrays, cells, 19, |cell, direction, cells| {
                // Most neighbours are near; one in eight is random.
                let far = scramble(cell * 19 + direction);
                if far.is_multiple_of(8) { far / 8 % cells } else { (cell + direction * 7) % cells }
            }))
        }
        "gemm" => {
            let side = ((bytes / 12) as f64).sqrt() as u64 / 64 * 64;
            let [a, b, c] = [4, 4, 4].map(|size| layout.array(side * side, size));
            Box::new(Gemm::new(a, b, c, [side; 3]))
        }
        "random" => {
            let array = layout.array(bytes / 4, 4);
            Box::new(RandomSectors::new(448, 256, array.base, bytes, (bytes >> 22).max(1) as u32))
        }
        _ => return None,
    };
    Some(Program { kernels: vec![kernel], allocations: layout.allocations })
}

struct Layout {
    next: u64,
    allocations: Vec<(u64, u64)>,
}

impl Layout {
    fn array(&mut self, elements: u64, element_bytes: u8) -> Array {
        let (base, bytes) = (self.next, elements * u64::from(element_bytes));
        self.allocations.push((base, bytes.max(1)));
        self.next += bytes.next_multiple_of(2 << 20).max(2 << 20);
        Array { base, element_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Addresses, At, Code};

    #[test]
    fn programs_access_only_their_arrays() {
        for name in PROGRAMS {
            let mut program = program(name, 1 << 20).unwrap();
            let inside = |address: u64| {
                program.allocations.iter().any(|&(base, bytes)| (base..base + bytes).contains(&address))
            };
            let kernel = &mut program.kernels[0];
            let last = kernel.launch().blocks() - 1;
            for (block, step) in [(0, 0), (0, 1), (last, 0)] {
                let mut code = Code::default();
                kernel.fill(At { block, warp: 0, step }, &mut code).unwrap();
                for inst in code.insts().iter().filter(|inst| inst.op.is_global()) {
                    match code.addresses(inst) {
                        Addresses::List(list) => {
                            assert!(list.iter().all(|&address| inside(address)), "{name}")
                        }
                        Addresses::Strided { base, .. } => assert!(inside(base), "{name} {base:#x}"),
                    }
                }
            }
        }
        assert!(program("none", 1 << 20).is_none());
    }
}
