//! Linear layers with packed weights on GPUs without the fused kernels: a prediction of the portable
//! kernel's speed beside plain weights.
//!
//! The kernel takes `launch + norm(memory, decoding)`: the packed bytes at the share of memory that plain
//! layers reach, and a decoding time in proportion to the weights, over SMs and their clock. Decoding is
//! as fast as an H200's speeds say ([`H200`]). How much of it memory hides is not known, so
//! [`portable_gain`] gives both bounds: nothing and everything.

use super::{Cost, Kernel, Kind, Machine, Parameters, shape};

/// Tokens and the portable kernel's speed over cuBLASLt's on plain weights, on an H200 in the geometric
/// mean of [`LAYERS`]. `docs/explain/linear-layers.md` states them; no record was kept.
pub const H200: [(u64, f64); 4] = [(1, 0.89), (8, 0.75), (16, 0.59), (32, 0.37)];

/// Rows and columns of the linear layers of Llama 8B and 70B.
pub const LAYERS: [(u64, u64); 10] = [
    (6144, 4096),
    (4096, 4096),
    (28672, 4096),
    (4096, 14336),
    (128_256, 4096),
    (10240, 8192),
    (8192, 8192),
    (57344, 8192),
    (8192, 28672),
    (128_256, 8192),
];

/// Returns the portable kernel's speed over plain weights on a GPU, in the geometric mean of [`LAYERS`]:
/// if memory hides none of the decoding, and if it hides all. `h200` is the H200.
pub fn portable_gain(h200: &Machine, gpu: &Machine, tokens: u64, measured: f64) -> [f64; 2] {
    [false, true].map(|hides| {
        let rate = decoding_rate(h200, tokens, measured, hides);
        geometric_gain(gpu, tokens, rate, hides)
    })
}

/// Returns the speed of unpacking each layer for plain kernels, over plain weights.
pub fn unpacking_gain(gpu: &Machine, tokens: u64) -> f64 {
    let constants = Parameters::default();
    geometric(|layer| {
        let (plain, packed) = bytes(layer, tokens);
        let (weights, _) = bytes(layer, 0);
        let unpack = kernel(packed - activations(layer, tokens) + weights, 0.0, constants.unpack);
        plain_us(gpu, layer, tokens)
            / (unpack.us(gpu) + kernel(plain, flops(layer, tokens), constants.plain).us(gpu))
    })
}

/// Returns the weights that an SM decodes in a cycle, so that the H200 has the measured speed.
fn decoding_rate(h200: &Machine, tokens: u64, measured: f64, hides: bool) -> f64 {
    // More decoding is always slower: bisection of the logarithm.
    let (mut slow, mut fast) = (1e-3f64, 1e6f64);
    for _ in 0..200 {
        let middle = (slow * fast).sqrt();
        if geometric_gain(h200, tokens, middle, hides) < measured { slow = middle } else { fast = middle }
    }
    fast
}

fn geometric_gain(gpu: &Machine, tokens: u64, rate: f64, hides: bool) -> f64 {
    geometric(|layer| plain_us(gpu, layer, tokens) / portable_us(gpu, layer, tokens, rate, hides))
}

fn geometric(of: impl Fn((u64, u64)) -> f64) -> f64 {
    (LAYERS.iter().map(|&layer| of(layer).ln()).sum::<f64>() / LAYERS.len() as f64).exp()
}

fn plain_us(gpu: &Machine, layer: (u64, u64), tokens: u64) -> f64 {
    kernel(bytes(layer, tokens).0, flops(layer, tokens), Parameters::default().plain).us(gpu)
}

fn portable_us(gpu: &Machine, layer: (u64, u64), tokens: u64, rate: f64, hides: bool) -> f64 {
    let Parameters { plain, fused, .. } = Parameters::default();
    let memory = bytes(layer, tokens).1 / (plain.memory_share * gpu.bytes_per_us);
    let decoding = (layer.0 * layer.1) as f64 / (rate * gpu.sm_cycles_per_us);
    fused.launch_us + if hides { memory.max(decoding) } else { memory + decoding }
}

fn kernel(bytes: f64, flops: f64, cost: Cost) -> Kernel {
    Kernel { kind: Kind::Qkv, launches: 1.0, bytes, link_us: 0.0, flops, cost }
}

/// Returns the bytes of a layer with plain and with packed weights.
fn bytes(layer: (u64, u64), tokens: u64) -> (f64, f64) {
    let weights = shape::BF16_BYTES * (layer.0 * layer.1) as f64;
    let others = activations(layer, tokens);
    (weights + others, shape::PACKED * weights + others)
}

fn activations(layer: (u64, u64), tokens: u64) -> f64 {
    shape::BF16_BYTES * (tokens * (layer.0 + layer.1)) as f64
}

fn flops(layer: (u64, u64), tokens: u64) -> f64 {
    2.0 * (layer.0 * layer.1 * tokens) as f64
}

#[cfg(test)]
mod tests {
    use buddy_record::spec::Gpu;

    use super::*;

    fn machine(name: &str) -> Machine {
        Machine::new(&Gpu::named(name).unwrap()).unwrap()
    }

    #[test]
    fn the_h200_has_its_measured_speed() {
        let h200 = machine("h200");
        for (tokens, measured) in H200 {
            let gains = portable_gain(&h200, &h200, tokens, measured);
            assert!(gains.iter().all(|gain| (gain - measured).abs() < 1e-6), "{tokens}: {gains:?}");
        }
    }

    #[test]
    fn decoding_costs_nothing_on_a_gpu_with_endless_sms() {
        let h200 = machine("h200");
        let large = Machine { sm_cycles_per_us: 1e18, ..h200.clone() };
        let [none, all] = portable_gain(&h200, &large, 1, 0.89);
        assert!((none - all).abs() < 1e-9, "{none} {all}");
        // Fewer bytes than a third of the plain ones would need, less the longer launch.
        assert!((1.2..1.0 / shape::PACKED).contains(&none), "{none}");
    }

    #[test]
    fn cards_with_less_memory_bandwidth_for_an_sm_gain_more() {
        let h200 = machine("h200");
        for (tokens, measured) in H200 {
            let gain = |name: &str| portable_gain(&h200, &machine(name), tokens, measured);
            let (ada, ampere, blackwell) = (gain("rtx4090"), gain("a100"), gain("b200"));
            assert!(blackwell[0] < measured && ampere[0] > measured && ada[0] > ampere[0]);
            assert!([ada, ampere].iter().all(|[none, all]| none <= all));
        }
        assert!(unpacking_gain(&machine("a100"), 1) < 0.4);
    }
}
