//! Runs one workload, or all, at a share of the paper's footprint and prints what it found:
//! `cargo run --release -p buddy-workloads --example run -- all 0.25`.

use std::time::Instant;

use buddy_workloads::{ALL, Info};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "all".to_owned());
    let share: f64 = arguments.next().and_then(|share| share.parse().ok()).unwrap_or(0.001);
    for info in ALL.iter().filter(|info| name == "all" || name == info.name) {
        run(info, share);
    }
}

fn run(info: &Info, share: f64) {
    let bytes = ((info.paper_bytes as f64 * share) as u64).max(1_000_000);
    let start = Instant::now();
    let mut workload = (info.build)(bytes, 0);
    let built = start.elapsed();
    (0..workload.steps()).for_each(|_| workload.step());
    let footprint: usize = workload.allocations().iter().map(|allocation| allocation.bytes.len()).sum();
    println!(
        "{}: {footprint} bytes, {} steps, {:.1} s, of these {:.1} s to build",
        info.name,
        workload.steps(),
        start.elapsed().as_secs_f64(),
        built.as_secs_f64()
    );
    for check in workload.check() {
        let verdict = if check.passed() { "pass" } else { "FAIL" };
        println!(
            "  {verdict} {}: {:e}, expected {:e} within {:e}",
            check.what, check.measured, check.expected, check.tolerance
        );
    }
}
