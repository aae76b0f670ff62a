//! Measured steps in records of `tools/vllm_bench.py`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Tokens of each prompt before the decode steps, `PROMPT` of `tools/vllm_bench.py`.
const PROMPT: u64 = 1024;

/// A record of vLLM's speed with plain and packed weights.
#[derive(Deserialize)]
pub(super) struct Bench {
    asked: Asked,
    results: BTreeMap<String, Variant>,
}

#[derive(Deserialize)]
struct Asked {
    shape: String,
    steps: u64,
}

#[derive(Deserialize)]
struct Variant {
    decode: Vec<Decode>,
    prefill: Vec<Prefill>,
}

#[derive(Deserialize)]
struct Decode {
    batch: u64,
    step_ms: f64,
}

#[derive(Deserialize)]
struct Prefill {
    prefill: u64,
    seconds: f64,
}

/// A measured step; times are `None` if the record has no such variant.
pub(super) struct Measured {
    pub(super) batch: u64,
    pub(super) context: u64,
    pub(super) prompt: Option<u64>,
    pub(super) plain_us: Option<f64>,
    pub(super) packed_us: Option<f64>,
}

impl Bench {
    /// Returns the name of the shape.
    pub(super) fn shape(&self) -> &str {
        &self.asked.shape
    }

    /// Returns the decode steps, by their median time, then the prefills.
    pub(super) fn steps(&self) -> Vec<Measured> {
        let plain = self.variant(|name| name == "plain");
        let packed = self.variant(|name| name.starts_with("buddy"));
        let decode = |of: &Variant, batch: u64| {
            of.decode.iter().find(|step| step.batch == batch).map(|step| 1e3 * step.step_ms)
        };
        let prefill = |of: &Variant, tokens: u64| {
            of.prefill.iter().find(|step| step.prefill == tokens).map(|step| 1e6 * step.seconds)
        };
        let batches = plain.iter().flat_map(|of| &of.decode).map(|step| step.batch);
        let prompts = plain.iter().flat_map(|of| &of.prefill).map(|step| step.prefill);
        let decodes = batches.map(|batch| Measured {
            batch,
            // Half of the written tokens are in the cache in the mean.
            context: PROMPT + self.asked.steps / 2,
            prompt: None,
            plain_us: plain.and_then(|of| decode(of, batch)),
            packed_us: packed.and_then(|of| decode(of, batch)),
        });
        let prefills = prompts.map(|tokens| Measured {
            batch: 1,
            context: 0,
            prompt: Some(tokens),
            plain_us: plain.and_then(|of| prefill(of, tokens)),
            packed_us: packed.and_then(|of| prefill(of, tokens)),
        });
        decodes.chain(prefills).collect()
    }

    fn variant(&self, is_one: impl Fn(&str) -> bool) -> Option<&Variant> {
        self.results.iter().find(|(name, _)| is_one(name)).map(|(_, variant)| variant)
    }
}
