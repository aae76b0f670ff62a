//! Fits the constants of the model of language models to kernels measured on an H200 and prints the
//! model beside measured steps: `cargo run --release -p buddy-dl --example fit_llm`.
//!
//! Coordinate descent with shrinking steps minimizes the squared logarithm of model over measured.

use buddy_dl::{
    Error,
    llm::{Comparison, Cost, Kernel, Kind, Machine, Parameters, validate},
};
use buddy_record::spec::Gpu;
use serde_json::Value;

const LINEAR: &str = include_str!("../records/gpu-fused-linear-h200-2026-11-17.json");
const EXPERTS: &str = include_str!("../records/experts-h200-2026-11-19.json");
const ATTENTION: &str = include_str!("../records/gpu-attention-h200-2026-11-17.json");

/// The experts of the record, those of Qwen3 30B-A3B, and the share of its bytes that a packed entry
/// takes.
const COUNT: u64 = 128;
const CHOSEN: u64 = 8;
const HIDDEN: f64 = 2048.0;
const INNER: f64 = 768.0;
const PACKED: f64 = 96.5 / 128.0;

/// A measured kernel: bytes, operations and microseconds.
struct Measured(f64, f64, f64);

fn main() -> Result<(), Error> {
    let machine = Machine::new(&Gpu::named("h200")?)?;
    let constants = Parameters::default();
    let linear = |bytes, us| rows(LINEAR, |row| product(row, bytes, us));
    show(&machine, "plain", constants.plain, &linear("plain_bytes", "against_us"), true);
    show(&machine, "fused", constants.fused, &linear("fused_bytes", "overlapped_us"), true);
    show(&machine, "unpack", constants.unpack, &rows(LINEAR, unpacking), false);
    show(&machine, "experts", constants.experts, &experts(), true);
    let [route_us, token_us] = best_route();
    println!(
        "route: {} us and {} a token in use, best {route_us:.2} and {token_us:.3}",
        constants.route_us, constants.route_token_us
    );
    let attention = |bytes, us| rows(ATTENTION, |row| attended(row, bytes, us));
    show(&machine, "attention", constants.attention, &attention("plain_bytes", "twin_us"), false);
    show(
        &machine,
        "packed attention",
        constants.packed_attention,
        &attention("packed_bytes", "packed_us"),
        false,
    );
    println!("host: {} us a sequence in use, best {:.1}", constants.host_us, best_host(&validate()?));
    println!(
        "\n| shape | step | runtime | weights | measured, ms | model, ms | error | |\n|---|---|---|---|--:|--:|--:|---|"
    );
    for step in validate()? {
        let what = match step.ask.prompt {
            Some(prompt) => format!("prefill of {prompt}"),
            None => format!("{} x {}", step.ask.batch, step.ask.context),
        };
        println!(
            "| {} | {what} | [{}](../records/{}.json) | {} | {:.3} | {:.3} | {:+.1}% | {} |",
            step.shape,
            step.ask.runtime.name(),
            step.record,
            if step.packed { "packed" } else { "plain" },
            step.measured_us / 1e3,
            step.model_us / 1e3,
            100.0 * step.error(),
            if step.fitted { "fitted" } else { "" }
        );
    }
    Ok(())
}

/// Returns the host's microseconds for each sequence that fit the steps marked as fitted best.
fn best_host(steps: &[Comparison]) -> f64 {
    let used = Parameters::default().host_us;
    let loss = |host: f64| {
        let fitted = steps.iter().filter(|step| step.fitted);
        let us = |step: &Comparison| step.model_us + (host - used) * step.ask.batch as f64;
        fitted.map(|step| (us(step) / step.measured_us).ln().powi(2)).sum::<f64>()
    };
    let tried = (0..300).map(|tenths| f64::from(tenths) / 10.0);
    tried.min_by(|one, other| loss(*one).total_cmp(&loss(*other))).unwrap_or(used)
}

fn rows(text: &str, of: impl Fn(&Value) -> Option<Measured>) -> Vec<Measured> {
    let record: Value = serde_json::from_str(text).expect("a record");
    record["data"]["rows"].as_array().expect("rows").iter().filter_map(of).collect()
}

/// Returns a linear layer: `linear layer, ROWS x COLUMNS, TOKENS tokens`.
fn product(row: &Value, bytes: &str, us: &str) -> Option<Measured> {
    let what = row["what"].as_str()?.strip_prefix("linear layer, ")?;
    let sizes: Vec<f64> = what.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    Some(Measured(row[bytes].as_f64()?, 2.0 * sizes.iter().product::<f64>(), row[us].as_f64()?))
}

/// Returns an unpacking, once for each size: there is a row for each other library.
fn unpacking(row: &Value) -> Option<Measured> {
    let is_one =
        row["what"].as_str()?.starts_with("weights read") && row["against"].as_str()?.contains("ANS");
    is_one.then(|| Some(Measured(row["fused_bytes"].as_f64()?, 0.0, row["fused_us"].as_f64()?)))?
}

/// Returns the layers of packed experts with the tile that `buddy.torch.grouped` chooses. The kernel
/// of `w13` joins gate and up.
fn experts() -> Vec<Measured> {
    let chosen = |tokens: &Value| {
        let is_one = |row: &&Value| row["tokens"] == *tokens && row["chosen"].is_number();
        expert_rows().iter().find(is_one).and_then(|row| row["chosen"].as_f64()).expect("a route")
    };
    let of = |row: &Value| {
        let [height, width, outputs] = match row["layer"].as_str()? {
            "w13" => [2.0 * INNER, HIDDEN, INNER],
            _ => [HIDDEN, INNER, HIDDEN],
        };
        let tokens = row["tokens"].as_u64()?;
        let assigned = (tokens * CHOSEN) as f64;
        let bytes = 2.0 * (PACKED * chosen(&row["tokens"]) * height * width + assigned * (width + outputs));
        (row["tile"].as_u64()? == tile_tokens(tokens))
            .then(|| Some(Measured(bytes, 2.0 * assigned * height * width, row["packed"].as_f64()?)))?
    };
    expert_rows().iter().filter_map(of).collect()
}

fn expert_rows() -> Vec<Value> {
    serde_json::from_str(EXPERTS).expect("a list of rows")
}

/// Returns the tokens of a tile: the first that is twice an expert's mean or 128.
fn tile_tokens(tokens: u64) -> u64 {
    let assigned = tokens * CHOSEN;
    let wanted = 2.0 * assigned as f64 / COUNT.min(assigned) as f64;
    [8, 16, 32, 64].into_iter().find(|tile| *tile as f64 >= wanted).unwrap_or(128)
}

/// Returns the constant and the microseconds a token that fit the measured routes best.
fn best_route() -> [f64; 2] {
    let measured: Vec<(f64, f64)> = expert_rows()
        .iter()
        .filter_map(|row| Some((row["tokens"].as_f64()?, row["route"].as_f64()?)))
        .collect();
    let loss = |[first, token]: &[f64; 2]| {
        measured.iter().map(|(tokens, us)| ((first + token * tokens) / us).ln().powi(2)).sum::<f64>()
    };
    let tried = (20..200)
        .flat_map(|first| (1..200).map(move |token| [f64::from(first) / 20.0, f64::from(token) / 1e3]));
    tried.min_by(|one, other| loss(one).total_cmp(&loss(other))).expect("some")
}

fn attended(row: &Value, bytes: &str, us: &str) -> Option<Measured> {
    (row["page_tokens"] == 64).then(|| Some(Measured(row[bytes].as_f64()?, 0.0, row[us].as_f64()?)))?
}

/// Prints the constants in use and the best ones, each with its mean error.
fn show(machine: &Machine, name: &str, used: Cost, kernels: &[Measured], tensor: bool) {
    let mut best = used;
    for step in [1.3, 1.1, 1.03, 1.01, 1.003] {
        while let Some(better) = neighbours(best, step, tensor)
            .into_iter()
            .find(|cost| loss(machine, *cost, kernels) < loss(machine, best, kernels) - 1e-9)
        {
            best = better;
        }
    }
    for (what, cost) in [("used", used), ("best", best)] {
        let error = kernels.iter().map(|one| (time(machine, cost, one) / one.2 - 1.0).abs()).sum::<f64>();
        println!(
            "{name}, {what}: {:.1}% mean error of {}; {cost:?}",
            100.0 * error / kernels.len() as f64,
            kernels.len()
        );
    }
}

fn time(machine: &Machine, cost: Cost, Measured(bytes, flops, _): &Measured) -> f64 {
    Kernel { kind: Kind::Qkv, launches: 1.0, bytes: *bytes, link_us: 0.0, flops: *flops, cost }.us(machine)
}

fn loss(machine: &Machine, cost: Cost, kernels: &[Measured]) -> f64 {
    kernels.iter().map(|one| (time(machine, cost, one) / one.2).ln().powi(2)).sum()
}

/// Returns the costs with one constant a step larger or smaller; without operations, two of them
/// have no effect.
fn neighbours(cost: Cost, step: f64, tensor: bool) -> Vec<Cost> {
    let both = [step, 1.0 / step].into_iter().flat_map(|by| {
        [
            Cost { launch_us: cost.launch_us * by, ..cost },
            Cost { memory_share: (cost.memory_share * by).min(1.0), ..cost },
            Cost { tensor_share: (cost.tensor_share * by).min(1.0), ..cost },
            Cost { overlap: (cost.overlap * by).max(1.0), ..cost },
        ]
        .into_iter()
        .take(if tensor { 4 } else { 2 })
    });
    both.collect()
}
