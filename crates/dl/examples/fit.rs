//! Fits the constants of the throughput model to the published tables: `cargo run --release -p buddy-dl --example fit`.
//!
//! One value for all networks and GPUs. The sum of squared logarithms of model over published is made small, each
//! table counted once, by moving one constant at a time in ever smaller steps.

use buddy_dl::{Error, Model, Spec, validate};

fn main() -> Result<(), Error> {
    let mut model = Spec::named("titan-xp")?.model;
    let mut best = loss(&model)?;
    for step in [1.5, 1.2, 1.1, 1.05, 1.02, 1.01] {
        loop {
            let better = neighbours(&model, step).into_iter().find_map(|candidate| {
                let loss = loss(&candidate).ok()?;
                (loss < best - 1e-6).then_some((candidate, loss))
            });
            let Some(better) = better else { break };
            (model, best) = better;
        }
    }
    println!("{model:#?}\nroot of the mean square of ln(model / published): {:.3}", best.sqrt());
    Ok(())
}

/// The model with one fitted constant a step larger or smaller.
fn neighbours(model: &Model, step: f64) -> Vec<Model> {
    let both = [step, 1.0 / step].into_iter().flat_map(|by| {
        [
            Model { math_share: (model.math_share * by).min(1.0), ..model.clone() },
            Model { fast_gain: (model.fast_gain * by).clamp(1.0, 4.0), ..model.clone() },
            Model { launch_us: model.launch_us * by, ..model.clone() },
        ]
    });
    both.collect()
}

fn loss(model: &Model) -> Result<f64, Error> {
    let validation = validate(Some(model))?;
    let of_table = validation.tables.iter().map(|table| {
        let squares = table.points.iter().map(|point| (point.modelled / point.published).ln().powi(2));
        squares.sum::<f64>() / table.points.len() as f64
    });
    Ok(of_table.sum::<f64>() / validation.tables.len() as f64)
}
