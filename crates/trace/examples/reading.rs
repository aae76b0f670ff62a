//! Measures how fast traces are read: `cargo run --release -p buddy-trace --example reading
//! FILE...`.
//!
//! For each file: warp instructions, instructions read per second on one core, the same when
//! packed, and packed bytes per instruction. Times are CPU time where the system reports it
//! (Linux), else wall time.

use std::{io::Cursor, path::Path, time::Instant};

use buddy_trace::{At, Code, Error, Kernel, open_kernel, packed};

/// Reads a kernel to its end as the simulator does; returns its instructions.
fn read(kernel: &mut dyn Kernel) -> Result<u64, Error> {
    let (mut code, mut count) = (Code::default(), 0);
    for block in 0..kernel.launch().blocks() {
        for warp in 0..kernel.launch().warps() {
            for step in 0.. {
                code.clear();
                kernel.fill(At { block, warp, step }, &mut code)?;
                if code.insts().is_empty() {
                    break;
                }
                count += code.insts().len() as u64;
            }
        }
    }
    Ok(count)
}

/// Returns the thread's CPU seconds, or wall seconds.
fn seconds(start: Instant) -> f64 {
    let worked = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = worked.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| start.elapsed().as_secs_f64(), |worked| worked * 1e-9)
}

/// Returns the rate in million instructions per second.
fn rate(mut kernel: impl FnMut() -> Result<Box<dyn Kernel>, Error>) -> Result<f64, Error> {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let mut kernel = kernel()?;
        let start = Instant::now();
        let before = seconds(start);
        let count = read(kernel.as_mut())?;
        best = best.min((seconds(start) - before) * 1e6 / count as f64);
    }
    Ok(1.0 / best)
}

fn main() -> Result<(), Error> {
    println!("{:40} {:>12} {:>10} {:>10} {:>12}", "file", "instructions", "M/s", "packed M/s", "bytes each");
    for name in std::env::args().skip(1) {
        let path = Path::new(&name);
        let mut bytes = Vec::new();
        let written = packed::write(&mut bytes, open_kernel(path)?.as_mut())?;
        let text = rate(|| open_kernel(path))?;
        let packed = rate(|| {
            let reader = packed::Reader::new(&name, Cursor::new(bytes.clone()))?;
            Ok(Box::new(reader) as Box<dyn Kernel>)
        })?;
        let each = written.bytes as f64 / written.instructions as f64;
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        println!("{file:40} {:>12} {text:>10.1} {packed:>10.1} {each:>12.3}", written.instructions);
    }
    Ok(())
}
