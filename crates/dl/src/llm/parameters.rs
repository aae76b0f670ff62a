//! Constants of the model, with their sources.

use serde::Serialize;

use super::{Cost, Kernel, Kind};

/// Constants of the model, the same for every GPU and shape.
///
/// All were measured on one H200; the example `fit_llm` fits them again. No constant was fitted to a
/// step of 32 sequences or fewer, to a prefill, or to a step of a model with experts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parameters {
    /// cuBLASLt on plain weights. Fitted to 80 layers of `gpu-fused-linear-h200-2026-11-17`.
    pub plain: Cost,
    /// Fused kernels on packed weights in a chain. Fitted to the same 80 layers.
    pub fused: Cost,
    /// Fused kernels on packed experts. Fitted to 12 layers of `experts-h200-2026-11-19`. Plain experts
    /// use `plain`: that record has the plain kernels of PyTorch, which vLLM does not use.
    pub experts: Cost,
    /// Microseconds in which packed experts sort tokens by expert, whatever their number. Fitted to 6
    /// routes of `experts-h200-2026-11-19`.
    pub route_us: f64,
    /// Microseconds that each token adds to `route_us`. Fitted to the same routes.
    pub route_token_us: f64,
    /// Unpacking of a layer's weights into scratch memory. Fitted to the 10 unpackings there.
    pub unpack: Cost,
    /// Attention over a plain KV cache. Fitted to 5 shapes of `gpu-attention-h200-2026-11-17`; its
    /// tensor share is that of `plain`.
    pub attention: Cost,
    /// Attention over a packed KV cache. Fitted to the same shapes.
    pub packed_attention: Cost,
    /// Microseconds of a small kernel in a CUDA graph: an empty one takes 2.72 on an H200.
    pub small_us: f64,
    /// Microseconds that vLLM's host adds to a decode step for each sequence. Fitted to steps of 64,
    /// 128 and 256 sequences of Llama 8B.
    pub host_us: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        let cost = |launch_us, memory_share, tensor_share, overlap| Cost {
            launch_us,
            memory_share,
            tensor_share,
            overlap,
        };
        Self {
            plain: cost(4.0, 0.90, 0.657, 3.3),
            fused: cost(4.6, 0.97, 0.585, 1.56),
            experts: cost(11.0, 0.856, 0.322, 1.72),
            route_us: 4.65,
            route_token_us: 0.046,
            unpack: cost(9.0, 0.79, 1.0, 1.0),
            attention: cost(9.8, 0.927, 0.657, 3.3),
            packed_attention: cost(9.7, 0.833, 0.657, 3.3),
            small_us: 2.7,
            host_us: 7.1,
        }
    }
}

impl Parameters {
    /// Returns launches of a small kernel that moves these bytes, as fast as a plain layer does.
    pub(super) fn small(&self, kind: Kind, launches: u64, bytes: f64) -> Kernel {
        let cost = Cost { launch_us: self.small_us, ..self.plain };
        Kernel { kind, launches: launches as f64, bytes, link_us: 0.0, flops: 0.0, cost }
    }

    /// Returns launches of the kernel that sorts `tokens` tokens by expert.
    pub(super) fn route(&self, launches: u64, tokens: u64) -> Kernel {
        let cost = Cost { launch_us: self.route_us + self.route_token_us * tokens as f64, ..self.plain };
        Kernel { kind: Kind::Router, launches: launches as f64, bytes: 0.0, link_us: 0.0, flops: 0.0, cost }
    }
}
