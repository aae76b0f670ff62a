//! Prints memory and projected speedup on a Titan Xp, optionally with other memory sizes: `cargo
//! run --release -p buddy-dl --example project [GB...]`.

use buddy_dl::{Network, Spec, project};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut spec = Spec::named("titan-xp")?;
    let given: Vec<f64> = std::env::args().skip(1).map(|gb| gb.parse()).collect::<Result<_, _>>()?;
    let memories = if given.is_empty() { vec![spec.gpu.device_bytes as f64 / 1e9] } else { given };
    for gb in memories {
        spec.gpu.device_bytes = (gb * 1e9) as u64;
        println!("{gb:.1} GB: geometric mean {:+.1}%", 100.0 * (mean_speedup(&spec) - 1.0));
    }
    Ok(())
}

/// Prints a line per network and returns the geometric mean of their speedups.
fn mean_speedup(spec: &Spec) -> f64 {
    let mut logs = Vec::new();
    for network in Network::all() {
        let ratio = network.paper_ratio;
        let Some(projection) = project(spec, &network, ratio) else { continue };
        let ([from, to], [slow, fast]) = (projection.best, projection.throughput);
        println!(
            "  {:12} activations are half from batch {:2}; ratio {ratio:.2}: fits {:?}, best {from} to {to}, \
             {slow:.0} to {fast:.0} {}/s, {:+.1}%",
            network.name,
            network.transition_batch(),
            projection.largest,
            network.unit,
            100.0 * (projection.speedup - 1.0),
        );
        logs.push(projection.speedup.ln());
    }
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}
