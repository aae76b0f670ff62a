//! Fits the constants of the throughput model to the published tables, or to those of some GPUs,
//! and reports the error on the others: `cargo run --release -p buddy-dl --example fit [GPU...]`.
//!
//! One value for all networks and GPUs. Coordinate descent with shrinking steps minimizes the
//! squared logarithm of model over published, each table weighted equally.

use buddy_dl::{Error, Model, TableValidation, validate};

fn main() -> Result<(), Error> {
    let gpus: Vec<String> = std::env::args().skip(1).collect();
    let fitted = |table: &TableValidation| gpus.is_empty() || gpus.contains(&table.gpu);
    let mut model = Model::default();
    let mut best = loss(&model, &fitted)?;
    for step in [1.5, 1.2, 1.1, 1.05, 1.02, 1.01] {
        loop {
            let better = neighbours(&model, step).into_iter().find_map(|candidate| {
                let loss = loss(&candidate, &fitted).ok()?;
                (loss < best - 1e-6).then_some((candidate, loss))
            });
            let Some(better) = better else { break };
            (model, best) = better;
        }
    }
    println!("{model:#?}");
    println!("root of the mean square of ln(model / published): {:.3}", best.sqrt());
    if !gpus.is_empty() {
        println!("on the other tables: {:.3}", loss(&model, &|table| !fitted(table))?.sqrt());
    }
    Ok(())
}

/// Returns the model with one fitted constant a step larger or smaller.
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

fn loss(model: &Model, counted: &dyn Fn(&TableValidation) -> bool) -> Result<f64, Error> {
    let validation = validate(Some(model))?;
    let tables: Vec<&TableValidation> = validation.tables.iter().filter(|table| counted(table)).collect();
    let of_table = tables.iter().map(|table| {
        let squares = table.points.iter().map(|point| (point.modelled / point.published).ln().powi(2));
        squares.sum::<f64>() / table.points.len() as f64
    });
    Ok(of_table.sum::<f64>() / tables.len() as f64)
}
