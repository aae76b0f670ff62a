//! Simulates samples of training iterations: `cargo run --release -p buddy-dl --example simulate --
//! NAME BATCH SHARE...`.
//!
//! Half of all entries compress to two sectors and the rest do not, at targets of 2x: a worst case
//! that shows how the slowdown depends on the sampled share.

use std::time::Instant;

use buddy_core::Target;
use buddy_dl::Network;
use buddy_record::TargetTable;
use buddy_sim::{
    ClassMap, Classes, Config, Mode, Report, Simulator,
    spec::{Gpu, Link},
};
use buddy_trace::Application;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, batch, shares @ ..] = &arguments[..] else { return Err("NAME BATCH SHARE...".into()) };
    let (network, batch) = (Network::named(name)?, batch.parse()?);
    println!(
        "{name}, batch {batch}: {} million warp instructions",
        network.warp_instructions(batch) / 1_000_000
    );
    for share in shares {
        let application = network.application_sampled(batch, share.parse()?);
        let begin = Instant::now();
        let [ideal, bandwidth, buddy] =
            [Mode::Ideal, Mode::Bandwidth, Mode::Buddy].map(|mode| run(&application, mode));
        let relative = |report: &Report| ideal.cycles as f64 / report.cycles as f64;
        println!(
            "share {share}: {} million instructions, {} cycles, L1 {:.2}, L2 {:.2}, bandwidth {:.3}, buddy {:.3}, {:.1} s",
            ideal.instructions / 1_000_000,
            ideal.cycles,
            ideal.l1.hit_rate,
            ideal.l2.hit_rate,
            relative(&bandwidth),
            relative(&buddy),
            begin.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

fn run(application: &Application, mode: Mode) -> Report {
    let table = TargetTable::uniform(&application.name, &application.allocations, Target::X2, "bpc");
    let mut config = Config::new(Gpu::named("paper").unwrap(), Link::named("150").unwrap());
    config.mode = mode;
    let shares = [0.0, 0.0, 0.0, 0.5, 0.0, 0.5];
    config.map = ClassMap::bind(application, Some(&table), &mut |index, _| Classes::Shares {
        shares,
        seed: index as u64,
    })
    .expect("allocations do not overlap");
    let mut simulator = Simulator::new(config);
    simulator.run_application(application, &mut |_| true).expect("generated kernels run");
    simulator.report()
}
