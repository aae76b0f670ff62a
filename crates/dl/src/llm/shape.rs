//! Dimensions of language models.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::config;
use crate::Error;

/// Bytes of a bf16 value.
pub(super) const BF16_BYTES: f64 = 2.0;
/// Bytes of a packed entry over its plain bytes: 96 of 128, and half a byte of metadata.
pub(super) const PACKED: f64 = 96.5 / 128.0;

/// Dimensions of a decoder with grouped-query attention and a gated MLP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelShape {
    /// Name in records.
    pub name: String,
    /// Decoder layers.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Values of a head.
    pub head: u64,
    /// Width of the MLP, or of one expert.
    pub inner: u64,
    /// Rows of the embedding and of the head.
    pub vocabulary: u64,
    /// True if head and embedding are one matrix.
    pub tied: bool,
    /// True if queries and keys have norms of their own.
    pub qk_norm: bool,
    /// Experts of each layer; `None` for one MLP.
    pub experts: Option<Experts>,
}

/// Experts of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Experts {
    /// Experts of a layer.
    pub count: u64,
    /// Experts that a token uses.
    pub chosen: u64,
}

impl Experts {
    /// Returns the expected number of different experts that `tokens` tokens use, if each chooses
    /// at random.
    pub fn touched(&self, tokens: u64) -> f64 {
        let unused = 1.0 - self.chosen as f64 / self.count as f64;
        self.count as f64 * (1.0 - unused.powf(tokens as f64))
    }
}

impl ModelShape {
    /// Names of the built-in shapes.
    pub const NAMES: [&str; 3] = ["llama-8b", "llama-70b", "qwen3-30b-a3b"];

    /// Returns a built-in shape, or the shape in a `config.json` or its folder.
    ///
    /// # Errors
    /// [`Error::Shape`] for an unknown name, an unreadable file, or a model that is not modelled.
    pub fn named(name: &str) -> Result<Self, Error> {
        match name {
            "llama-8b" => Ok(llama(name, 32, 4096, 32, 14336)),
            "llama-70b" => Ok(llama(name, 80, 8192, 64, 28672)),
            "qwen3-30b-a3b" => Ok(Self {
                kv_heads: 4,
                vocabulary: 151_936,
                qk_norm: true,
                experts: Some(Experts { count: 128, chosen: 8 }),
                ..llama(name, 48, 2048, 32, 768)
            }),
            path if Path::new(path).is_dir() => config::read(&Path::new(path).join("config.json")),
            path if path.ends_with(".json") => config::read(Path::new(path)),
            _ => Err(Error::Shape(format!(
                "unknown shape '{name}'; use one of {}, or the path of a config.json",
                Self::NAMES.join(", ")
            ))),
        }
    }

    /// Returns the values that a token has in one layer's queries.
    pub fn query_width(&self) -> u64 {
        self.heads * self.head
    }

    /// Returns the output width of the merged QKV layer.
    pub fn qkv_width(&self) -> u64 {
        (self.heads + 2 * self.kv_heads) * self.head
    }

    /// Returns the weights of one layer's MLP, or of all its experts with their router.
    fn mlp_weights(&self) -> u64 {
        let mlp = 3 * self.inner * self.hidden;
        self.experts.map_or(mlp, |experts| experts.count * (mlp + self.hidden))
    }

    /// Returns the bytes of all weights, plain or packed; norms are too small to count.
    pub fn weight_bytes(&self, packed: bool) -> f64 {
        let attention = (self.qkv_width() + self.query_width()) * self.hidden;
        let ends = if self.tied { 1 } else { 2 } * self.vocabulary * self.hidden;
        let weights = self.layers * (attention + self.mlp_weights()) + ends;
        weights as f64 * BF16_BYTES * if packed { PACKED } else { 1.0 }
    }

    /// Returns the bytes of the KV cache of `tokens` tokens, plain or packed.
    pub fn kv_bytes(&self, tokens: u64, packed: bool) -> f64 {
        let values = 2 * self.layers * self.kv_heads * self.head * tokens;
        values as f64 * BF16_BYTES * if packed { PACKED } else { 1.0 }
    }
}

/// Returns a shape of Llama 3's family: 8 KV heads of 128 values, 128,256 tokens.
fn llama(name: &str, layers: u64, hidden: u64, heads: u64, inner: u64) -> ModelShape {
    ModelShape {
        name: name.to_owned(),
        layers,
        hidden,
        heads,
        kv_heads: 8,
        head: 128,
        inner,
        vocabulary: 128_256,
        tied: false,
        qk_norm: false,
        experts: None,
    }
}
