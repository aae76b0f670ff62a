//! Prints the model next to every published throughput and memory: `cargo run --release -p buddy-dl
//! --example validate`.

use buddy_dl::validate;

fn main() -> Result<(), buddy_dl::Error> {
    let validation = validate(None)?;
    for table in &validation.tables {
        println!(
            "{} on {}, {}: mean error {:.0}%",
            table.network,
            table.gpu,
            table.source,
            100.0 * table.mean_error
        );
        for point in &table.points {
            let error = 100.0 * point.error();
            println!(
                "  batch {:5}  published {:7.1}  model {:7.1}  {error:+.0}%",
                point.batch, point.published, point.modelled
            );
        }
    }
    println!("memory of one more sample, MB");
    for memory in &validation.memory {
        let [published, modelled] = [memory.published_bytes, memory.modelled_bytes].map(|bytes| bytes / 1e6);
        println!(
            "  {:12}  published {published:5.1}  model {modelled:5.1}  {:+.0}%",
            memory.network,
            100.0 * memory.error()
        );
    }
    println!("mean error {:.1}%, correlation {:.3}", 100.0 * validation.mean_error, validation.correlation);
    Ok(())
}
