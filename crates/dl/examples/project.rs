//! Prints memory and projected speedup on a Titan Xp: `cargo run --release -p buddy-dl --example project`.

use buddy_dl::{Network, PAPER_MEAN_RATIO, Spec, paper_ratio, project};

fn main() -> Result<(), buddy_dl::Error> {
    let spec = Spec::named("titan-xp")?;
    let mut logs = 0.0;
    for network in Network::all() {
        let ratio = paper_ratio(network.name).unwrap_or(PAPER_MEAN_RATIO);
        let Some(projection) = project(&spec, &network, ratio) else { continue };
        let [[from, to], [slow, fast]] = [projection.best.map(|batch| batch as f64), projection.throughput];
        let speedup = 100.0 * (projection.speedup - 1.0);
        println!(
            "{:12} grows from batch {:3}; ratio {ratio:.2}: largest {:?}, best {from} to {to}, {slow:.0} to {fast:.0} {}/s, {speedup:+.1}%",
            network.name,
            network.transition_batch(),
            projection.largest,
            network.unit,
        );
        logs += projection.speedup.ln() / Network::ALL.len() as f64;
    }
    println!("geometric mean {:+.1}%", 100.0 * (logs.exp() - 1.0));
    Ok(())
}
