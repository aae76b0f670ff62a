//! Tries shapes of the fused examples on this GPU, and prints the results.
//!
//!     cargo run --release -p buddy-gpu-lab --example tune [stencil | spmv]... [first]
//!
//! With `first`, only the first shape of each: for a profiler.

use buddy_cuda::Gpu;
use buddy_gpu_lab::{Example, Shapes, SpmvShape, StencilShape, tune};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gpu = Gpu::open(0)?;
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let most = if asked.iter().any(|asked| asked == "first") { 1 } else { usize::MAX };
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    if wanted("stencil") {
        for [deep, threads, planes] in [[2, 640, 256], [2, 640, 128], [1, 1024, 171]].into_iter().take(most) {
            let shapes = Shapes { stencil: StencilShape { deep, threads, planes }, ..Shapes::default() };
            print(&gpu, Example::Stencil, shapes, &format!("{:?}", shapes.stencil));
        }
    }
    if wanted("spmv") {
        for (short_rows, long_rows) in [(8, 32), (4, 16), (16, 8)].into_iter().take(most) {
            let shapes = Shapes { spmv: SpmvShape { short_rows, long_rows }, ..Shapes::default() };
            print(&gpu, Example::Spmv, shapes, &format!("{:?}", shapes.spmv));
        }
    }
    Ok(())
}

/// A shape that fails prints a line too.
fn print(gpu: &Gpu, example: Example, shapes: Shapes, shape: &str) {
    match tune(gpu, example, shapes) {
        Ok(rows) => {
            for row in rows {
                let overlapped =
                    row.overlapped_us.map_or(String::new(), |us| format!(", {us:.1} us overlapped"));
                println!(
                    "{shape}\n    {}: {:.1} us fused{overlapped}, {:.1} us {}, twin {:.1} us, {:.3}x, {:.2} of memory, overflow {:.6}",
                    row.what,
                    row.fused_us,
                    row.against_us,
                    row.against,
                    row.twin_us,
                    row.ratio(),
                    row.of_memory,
                    row.overflow
                );
            }
        }
        Err(error) => println!("{shape}\n    {error}"),
    }
}
