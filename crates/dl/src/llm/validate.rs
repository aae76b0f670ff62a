//! The model beside measured steps on an H200.

use buddy_record::spec::Gpu;
use serde::Deserialize;

use super::{Ask, Machine, ModelShape, Runtime, Side, bench::Bench, estimate};
use crate::Error;

const VLLM: &str = include_str!("../../records/vllm-decode-h200.json");
const BENCHES: [(&str, &str); 2] = [
    ("vllm-llama-8b-h200-2026-11-19", include_str!("../../records/vllm-llama-8b-h200-2026-11-19.json")),
    ("vllm-qwen3-30b-h200-2026-11-19", include_str!("../../records/vllm-qwen3-30b-h200-2026-11-19.json")),
];
const VLLM_NAME: &str = "vllm-decode-h200";
const LOOPS: [(&str, &str); 2] = [
    ("llm-decode-8b-h200-2026-11-17", include_str!("../../records/llm-decode-8b-h200-2026-11-17.json")),
    ("llm-decode-70b-h200-2026-11-17", include_str!("../../records/llm-decode-70b-h200-2026-11-17.json")),
];
/// Fewest sequences of the steps in vLLM that a constant was fitted to.
const FITTED: u64 = 64;

/// A measured step beside the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Name of the record in `docs/records` that has the measured time.
    pub record: &'static str,
    /// Name of the shape.
    pub shape: String,
    /// The step.
    pub ask: Ask,
    /// True for packed weights.
    pub packed: bool,
    /// True if a constant was fitted to it.
    pub fitted: bool,
    /// Measured microseconds.
    pub measured_us: f64,
    /// Microseconds of the model.
    pub model_us: f64,
}

impl Comparison {
    /// Returns the model's time over the measured one, less 1.
    pub fn error(&self) -> f64 {
        self.model_us / self.measured_us - 1.0
    }
}

#[derive(Deserialize)]
struct Vllm {
    prompt: u64,
    written: u64,
    models: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    shape: String,
    decode: Vec<Decode>,
    #[serde(default)]
    prefill: Vec<Prefill>,
}

#[derive(Deserialize)]
struct Decode {
    sequences: u64,
    plain_tokens_s: f64,
    packed_tokens_s: Option<f64>,
}

#[derive(Deserialize)]
struct Prefill {
    tokens: u64,
    plain_s: f64,
    packed_s: f64,
}

#[derive(Deserialize)]
struct Loop {
    shape: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    sequences: u64,
    context: u64,
    written: u64,
    plain_compiled_s: Option<f64>,
    buddy_s: f64,
}

/// Compares the model with every recorded step: vLLM, by record, then the decode loop.
///
/// # Errors
/// [`Error`] if a record names an unknown shape.
pub fn validate() -> Result<Vec<Comparison>, Error> {
    let vllm: Vllm = serde_json::from_str(VLLM).expect("a record of vLLM");
    let mut found = Vec::new();
    for model in &vllm.models {
        found.extend(vllm.decode(model)?);
        found.extend(prefill(model)?);
    }
    for (name, text) in BENCHES {
        let record: Bench = serde_json::from_str(text).expect("a record of vLLM");
        for step in record.steps() {
            let ask = Ask { prompt: step.prompt, ..ask(step.batch, step.context, Runtime::Vllm) };
            found.extend(compare(name, record.shape(), ask, false, [step.plain_us, step.packed_us])?);
        }
    }
    for (name, text) in LOOPS {
        let record: Loop = serde_json::from_str(text).expect("a record of the decode loop");
        for case in &record.cases {
            found.extend(looped(name, &record.shape, case)?);
        }
    }
    Ok(found)
}

impl Vllm {
    /// Half of the written tokens are in the cache in the mean.
    fn decode(&self, model: &Model) -> Result<Vec<Comparison>, Error> {
        let mut found = Vec::new();
        for step in &model.decode {
            let ask = ask(step.sequences, self.prompt + self.written / 2, Runtime::Vllm);
            let us = |tokens_s: f64| 1e6 * step.sequences as f64 / tokens_s;
            let packed_us = step.packed_tokens_s.map(us);
            let fitted = model.shape == "llama-8b" && step.sequences >= FITTED;
            let measured_us = [Some(us(step.plain_tokens_s)), packed_us];
            found.extend(compare(VLLM_NAME, &model.shape, ask, fitted, measured_us)?);
        }
        Ok(found)
    }
}

fn prefill(model: &Model) -> Result<Vec<Comparison>, Error> {
    let mut found = Vec::new();
    for step in &model.prefill {
        let ask = Ask { prompt: Some(step.tokens), ..ask(1, 0, Runtime::Vllm) };
        let measured_us = [step.plain_s, step.packed_s].map(|seconds| Some(1e6 * seconds));
        found.extend(compare(VLLM_NAME, &model.shape, ask, false, measured_us)?);
    }
    Ok(found)
}

fn looped(record: &'static str, shape: &str, case: &Case) -> Result<Vec<Comparison>, Error> {
    let ask = Ask { packed_kv: true, ..ask(case.sequences, case.context + case.written / 2, Runtime::Loop) };
    let measured_s = [case.plain_compiled_s, Some(case.buddy_s)];
    compare(record, shape, ask, false, measured_s.map(|side| side.map(|seconds| 1e6 * seconds)))
}

fn ask(batch: u64, context: u64, runtime: Runtime) -> Ask {
    Ask { batch, context, prompt: None, runtime, packed_kv: false }
}

/// Returns the comparisons of the measured sides, plain and packed.
fn compare(
    record: &'static str,
    shape: &str,
    ask: Ask,
    fitted: bool,
    measured_us: [Option<f64>; 2],
) -> Result<Vec<Comparison>, Error> {
    let machine = Machine::new(&Gpu::named("h200")?)?;
    let model = estimate(&machine, &ModelShape::named(shape)?, &ask, false);
    let side = |packed: bool, side: &Side, measured_us: Option<f64>| {
        let (shape, model_us) = (shape.to_owned(), side.us);
        measured_us.map(|measured_us| Comparison {
            record,
            shape,
            ask,
            packed,
            fitted,
            measured_us,
            model_us,
        })
    };
    let [plain_us, packed_us] = measured_us;
    let both = [side(false, &model.plain, plain_us), side(true, &model.packed, packed_us)];
    Ok(both.into_iter().flatten().collect())
}
