//! Shapes from a model's `config.json`, as Transformers writes it.

use std::path::Path;

use serde_json::{Map, Value};

use super::{Experts, ModelShape};
use crate::Error;

/// Largest value of a dimension, far above any model's.
const MOST: u64 = 1 << 24;
/// Fields whose models compute something else: latent attention, dense layers among experts, shared
/// experts, sliding windows of some layers.
const REFUSED: [&str; 6] = [
    "kv_lora_rank",
    "first_k_dense_replace",
    "n_shared_experts",
    "shared_expert_intermediate_size",
    "mlp_only_layers",
    "layer_types",
];

/// Reads the shape of a model.
pub(super) fn read(path: &Path) -> Result<ModelShape, Error> {
    let error = |why: String| Error::Shape(format!("{}: {why}", path.display()));
    let text = buddy_core::read_text(path).map_err(|why| error(why.to_string()))?;
    let json: Value = serde_json::from_str(&text).map_err(|why| error(why.to_string()))?;
    let name = path.parent().and_then(Path::file_name).unwrap_or(path.as_os_str());
    parse(&name.to_string_lossy(), &json).map_err(error)
}

/// Parses the shape of a model, or of the text part of a multimodal one.
pub(super) fn parse(name: &str, json: &Value) -> Result<ModelShape, String> {
    let json = json.get("text_config").unwrap_or(json);
    let fields = json.as_object().ok_or("not an object")?;
    if let Some(field) = REFUSED.iter().find(|field| is_set(fields.get(**field))) {
        return Err(format!("models with {field} are not modelled"));
    }
    let [hidden, heads] = [number(fields, "hidden_size")?, number(fields, "num_attention_heads")?];
    let experts = experts(fields)?;
    let own = experts.and(optional(fields, "moe_intermediate_size")?);
    Ok(ModelShape {
        name: name.to_owned(),
        layers: number(fields, "num_hidden_layers")?,
        hidden,
        heads,
        kv_heads: optional(fields, "num_key_value_heads")?.unwrap_or(heads),
        head: optional(fields, "head_dim")?.unwrap_or(hidden / heads),
        inner: own.map_or_else(|| number(fields, "intermediate_size"), Ok)?,
        vocabulary: number(fields, "vocab_size")?,
        tied: fields.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(false),
        qk_norm: fields
            .get("model_type")
            .and_then(Value::as_str)
            .is_some_and(|kind| kind.starts_with("qwen3")),
        experts,
    })
}

/// Returns whether a field has an effect: it is neither absent, null, zero, empty, nor a list of
/// layers with full attention only.
fn is_set(field: Option<&Value>) -> bool {
    match field {
        None | Some(Value::Null) => false,
        Some(Value::Array(items)) => items.iter().any(|item| item != "full_attention"),
        Some(value) => value.as_u64() != Some(0),
    }
}

fn experts(fields: &Map<String, Value>) -> Result<Option<Experts>, String> {
    for name in ["num_experts", "num_local_experts", "n_routed_experts"] {
        if let Some(count) = optional(fields, name)? {
            let chosen = number(fields, "num_experts_per_tok")?;
            return match chosen <= count {
                true => Ok(Some(Experts { count, chosen })),
                false => Err(format!("num_experts_per_tok is {chosen}, more than {name}, {count}")),
            };
        }
    }
    Ok(None)
}

fn number(fields: &Map<String, Value>, name: &str) -> Result<u64, String> {
    optional(fields, name)?.ok_or_else(|| format!("no {name}"))
}

fn optional(fields: &Map<String, Value>, name: &str) -> Result<Option<u64>, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().filter(|value| (1..=MOST).contains(value)) {
            Some(value) => Ok(Some(value)),
            None => Err(format!("{name} is {value}; it must be a number from 1 to {MOST}")),
        },
    }
}
