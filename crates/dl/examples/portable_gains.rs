//! Predicts the speed of packed linear layers beside plain ones on GPUs without the fused kernels:
//! `cargo run --release -p buddy-dl --example portable_gains`. Modelled, not measured.

use buddy_dl::{
    Error,
    llm::{H200, Machine, portable_gain, unpacking_gain},
};
use buddy_record::spec::Gpu;

const GPUS: [&str; 4] = ["a100", "rtx4090", "rtx5090", "b200"];

fn main() -> Result<(), Error> {
    let machine = |name: &str| Machine::new(&Gpu::named(name)?);
    let h200 = machine("h200")?;
    println!("| tokens | h200, stated | {} |", GPUS.join(" | "));
    println!("|--:|--:|{}", "--:|".repeat(GPUS.len()));
    for (tokens, measured) in H200 {
        print!("| {tokens} | {measured:.2} |");
        for name in GPUS {
            let gpu = machine(name)?;
            let [none, all] = portable_gain(&h200, &gpu, tokens, measured);
            print!(" {:.2} to {:.2} ({:.2}) |", none.min(all), none.max(all), unpacking_gain(&gpu, tokens));
        }
        println!();
    }
    Ok(())
}
