//! The kernels of a decode step or a prefill.

use serde::{Deserialize, Serialize};

use super::{BuddyMemory, Cost, Kernel, Kind, ModelShape, Parameters, shape};

/// Program that runs the model: it decides which kernels there are besides the linear layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// vLLM 0.26 with CUDA graphs; packed weights through the plug-in `buddy.vllm`.
    Vllm,
    /// The decode loop of `buddy.llm` in one CUDA graph; plain weights as `torch.compile` fuses it.
    Loop,
}

impl Runtime {
    /// Returns a runtime by name.
    ///
    /// # Errors
    /// A message that lists the names.
    pub fn named(name: &str) -> Result<Self, String> {
        match name {
            "vllm" => Ok(Self::Vllm),
            "loop" => Ok(Self::Loop),
            _ => Err(format!("unknown runtime '{name}'; use vllm or loop")),
        }
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Loop => "loop",
        }
    }
}

/// Storage and multiplication of a model's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// Plain bf16, cuBLASLt.
    Plain,
    /// Packed, decoded in the linear layer.
    Fused,
    /// Packed, unpacked into scratch memory before each layer.
    Unpacked,
    /// Plain bf16 in a Buddy memory in hardware, cuBLASLt.
    Buddy,
}

impl Weights {
    /// Returns whether the weights are packed by software.
    pub fn is_packed(self) -> bool {
        matches!(self, Self::Fused | Self::Unpacked)
    }
}

/// A decode step, or a prefill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Sequences.
    pub batch: u64,
    /// Tokens of each sequence in the KV cache during a decode step.
    pub context: u64,
    /// Tokens of each sequence's prompt; the step is then a prefill with an empty cache.
    pub prompt: Option<u64>,
    /// Program that runs the model.
    pub runtime: Runtime,
    /// True if packed weights come with a packed KV cache.
    pub packed_kv: bool,
}

impl Ask {
    /// Returns the tokens that go through the linear layers.
    pub fn tokens(&self) -> u64 {
        self.batch * self.prompt.unwrap_or(1)
    }

    /// Returns the tokens of a sequence in the KV cache at the end of the step.
    pub fn cached(&self) -> u64 {
        self.prompt.unwrap_or(self.context)
    }
}

/// Returns the kernels of a step; `buddy` is the memory of [`Weights::Buddy`].
pub fn kernels(
    shape: &ModelShape,
    ask: &Ask,
    weights: Weights,
    buddy: Option<&BuddyMemory>,
    constants: &Parameters,
) -> Vec<Kernel> {
    let step = Step { shape, ask, weights, buddy, constants };
    let mut list = step.projections();
    list.extend(step.mlp());
    list.push(step.attention());
    list.extend(step.small());
    list.extend(step.linear(Kind::Head, 1, shape.vocabulary, shape.hidden, ask.batch));
    list
}

struct Step<'a> {
    shape: &'a ModelShape,
    ask: &'a Ask,
    weights: Weights,
    buddy: Option<&'a BuddyMemory>,
    constants: &'a Parameters,
}

impl Step<'_> {
    /// Returns the kernels of a linear layer: one, or two where its weights are unpacked first.
    fn linear(&self, kind: Kind, launches: u64, rows: u64, columns: u64, tokens: u64) -> Vec<Kernel> {
        let flops = 2.0 * (rows * columns * tokens) as f64;
        self.product(kind, launches, (rows * columns) as f64, (tokens * (rows + columns)) as f64, flops)
    }

    /// Returns the kernels of a product that reads `weights` and moves `values` activations.
    fn product(&self, kind: Kind, launches: u64, weights: f64, values: f64, flops: f64) -> Vec<Kernel> {
        let launches = launches as f64;
        let kernel = |kind, bytes, flops, cost| Kernel { kind, launches, bytes, link_us: 0.0, flops, cost };
        let [plain, others] = [weights, values].map(|values| shape::BF16_BYTES * values);
        let packed = shape::PACKED * plain;
        let vendor = kernel(kind, plain + others, flops, self.constants.plain);
        match self.weights {
            Weights::Plain => vec![vendor],
            Weights::Buddy => {
                let link_us = self.buddy.map_or(0.0, |memory| memory.link_us(memory.link_bytes(plain)));
                let bytes = self.buddy.map_or(plain, |memory| memory.device_bytes(plain)) + others;
                vec![Kernel { bytes, link_us, ..vendor }]
            }
            Weights::Fused => {
                let cost = if kind == Kind::Experts { self.constants.experts } else { self.constants.fused };
                vec![kernel(kind, packed + others, flops, cost)]
            }
            Weights::Unpacked => {
                vec![kernel(Kind::Unpack, packed + plain, 0.0, self.constants.unpack), vendor]
            }
        }
    }

    fn projections(&self) -> Vec<Kernel> {
        let ModelShape { layers, hidden, .. } = *self.shape;
        let tokens = self.ask.tokens();
        let mut list = self.linear(Kind::Qkv, layers, self.shape.qkv_width(), hidden, tokens);
        list.extend(self.linear(Kind::Output, layers, hidden, self.shape.query_width(), tokens));
        list
    }

    fn mlp(&self) -> Vec<Kernel> {
        let ModelShape { layers, hidden, inner, experts, .. } = *self.shape;
        let tokens = self.ask.tokens();
        let Some(experts) = experts else {
            let mut list = self.linear(Kind::GateAndUp, layers, 2 * inner, hidden, tokens);
            list.extend(self.linear(Kind::Down, layers, hidden, inner, tokens));
            return list;
        };
        let rows = tokens * experts.chosen;
        let grouped = |height: u64, width: u64| {
            let weights = experts.touched(tokens) * (height * width) as f64;
            let flops = 2.0 * (rows * height * width) as f64;
            self.product(Kind::Experts, layers, weights, (rows * (height + width)) as f64, flops)
        };
        let mut list = self.linear(Kind::Router, layers, experts.count, hidden, tokens);
        list.extend(grouped(2 * inner, hidden));
        list.extend(grouped(hidden, inner));
        let choice = 2.0 * (tokens * experts.count) as f64;
        if self.weights == Weights::Fused {
            let results = 2.0 * ((rows + tokens) * hidden) as f64;
            list.push(self.constants.small(Kind::Router, layers, choice));
            list.push(self.constants.route(layers, tokens));
            list.push(self.constants.small(Kind::Router, layers, results));
        } else {
            // Choice of the experts, two kernels that sort tokens by expert, and the sum of results.
            list.push(self.constants.small(Kind::Router, 4 * layers, choice));
        }
        list
    }

    /// Returns attention: the KV cache's bytes, and in a prefill the operations below the diagonal.
    fn attention(&self) -> Kernel {
        let (shape, ask) = (self.shape, self.ask);
        let packed = ask.packed_kv && self.weights.is_packed();
        let cost: Cost = if packed { self.constants.packed_attention } else { self.constants.attention };
        let cached = shape.kv_bytes(ask.batch * ask.cached(), packed) / shape.layers as f64;
        let pairs = ask.prompt.map_or(ask.context as f64, |prompt| (prompt * prompt) as f64 / 2.0);
        let flops = 4.0 * (ask.batch * shape.query_width()) as f64 * pairs;
        let launches = shape.layers as f64;
        Kernel { kind: Kind::Attention, launches, bytes: cached, link_us: 0.0, flops, cost }
    }

    /// Returns the small kernels of all layers, of embedding and sampling, and the host's part.
    fn small(&self) -> Vec<Kernel> {
        let ModelShape { layers, hidden, vocabulary, qk_norm, .. } = *self.shape;
        let small = |kind, launches, bytes: u64| self.constants.small(kind, launches, bytes as f64);
        let [tokens, batch] = [self.ask.tokens(), self.ask.batch];
        let rope = 4 * (self.shape.qkv_width() - self.shape.kv_heads * self.shape.head);
        let cache = 8 * self.shape.kv_heads * self.shape.head;
        let is_packed = self.weights.is_packed();
        let mut list = vec![
            small(Kind::Embedding, 1, 4 * tokens * hidden),
            // A norm adds the residual: two tensors read, two written.
            small(Kind::Norms, 2 * layers, 8 * tokens * hidden),
            small(Kind::Norms, if qk_norm { layers } else { 0 }, 2 * tokens * rope),
            small(Kind::Norms, 1, 8 * batch * hidden),
            // bf16 logits become single precision and are searched.
            small(Kind::Sampling, 2, 5 * batch * vocabulary),
        ];
        match (self.ask.runtime, is_packed) {
            (Runtime::Vllm, _) => {
                list.push(small(Kind::RopeAndCache, layers, tokens * rope));
                list.push(small(Kind::RopeAndCache, layers, tokens * cache));
            }
            (Runtime::Loop, false) => list.push(small(Kind::RopeAndCache, layers, tokens * (rope + cache))),
            // Attention applies rope and appends to the cache.
            (Runtime::Loop, true) => {}
        }
        list.extend(self.activation());
        if self.ask.runtime == Runtime::Vllm && self.ask.prompt.is_none() {
            let cost = Cost { launch_us: self.constants.host_us, ..self.constants.plain };
            let launches = batch as f64;
            list.push(Kernel { kind: Kind::Host, launches, bytes: 0.0, link_us: 0.0, flops: 0.0, cost });
        }
        list
    }

    /// Returns the activation between gate and down; fused layers apply it themselves.
    fn activation(&self) -> Option<Kernel> {
        let rows = self.ask.tokens() * self.shape.experts.map_or(1, |experts| experts.chosen);
        let bytes = (6 * rows * self.shape.inner) as f64;
        (self.weights != Weights::Fused)
            .then(|| self.constants.small(Kind::Activation, self.shape.layers, bytes))
    }
}
