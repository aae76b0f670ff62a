//! Runs one workload at a footprint in MB and prints how its memory fills, its checks and its time:
//! `cargo run --release -p buddy-workloads --example run -- lulesh 16`.

use std::time::Instant;

use buddy_workloads::{ALL, Workload};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().expect("a workload's name");
    let megabytes: f64 = arguments.next().and_then(|text| text.parse().ok()).expect("a footprint in MB");
    let info = ALL.iter().find(|info| info.name == name).expect("a workload of the list");

    let start = Instant::now();
    let mut workload = (info.build)((megabytes * 1e6) as u64, 1);
    let bytes: usize = workload.allocations().iter().map(|allocation| allocation.bytes.len()).sum();
    println!("{name}: {:.2} MB, {} steps", bytes as f64 / 1e6, workload.steps());
    let steps = workload.steps();
    for step in 1..=steps {
        workload.step();
        if step * 10 / steps > (step - 1) * 10 / steps {
            let zeros = 100.0 * zero_entries(workload.as_ref());
            println!("step {step}: {zeros:.1}% zero entries, {:.1} s", start.elapsed().as_secs_f64());
        }
    }
    for check in workload.check() {
        println!("{} {check:?}", if check.passed() { "passed" } else { "FAILED" });
    }
}

/// The share of 128-byte entries that hold only zeros.
fn zero_entries(workload: &dyn Workload) -> f64 {
    let allocations = workload.allocations();
    let entries = allocations.iter().flat_map(|allocation| allocation.bytes.chunks(128));
    let (zeros, all) = entries.fold((0, 0), |(zeros, all), entry| {
        (zeros + usize::from(entry.iter().all(|&byte| byte == 0)), all + 1)
    });
    zeros as f64 / all as f64
}
