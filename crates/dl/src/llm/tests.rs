use buddy_core::Target;
use buddy_record::spec::{Gpu, Link};
use serde_json::json;

use super::{config, *};

fn machine(name: &str) -> Machine {
    Machine::new(&Gpu::named(name).unwrap()).unwrap()
}

fn decode(batch: u64) -> Ask {
    Ask { batch, context: 1024, prompt: None, runtime: Runtime::Vllm, packed_kv: false }
}

fn named(shape: &str, gpu: &str, ask: &Ask, fused: bool) -> Estimate {
    estimate(&machine(gpu), &ModelShape::named(shape).unwrap(), ask, fused)
}

/// 100 bytes at half of 10 a microsecond are 20; 60 operations at a quarter of 16 are 15; with the
/// exponent 2 both take 25, and a launch takes 3.
#[test]
fn time_is_the_norm_of_memory_and_tensor_time_after_the_launch() {
    let machine = Machine {
        name: "made".to_owned(),
        bytes_per_us: 10.0,
        sm_cycles_per_us: 1.0,
        flops_per_us: 16.0,
        device_bytes: 1e9,
        fused: true,
        fp16_only: false,
    };
    let cost = Cost { launch_us: 3.0, memory_share: 0.5, tensor_share: 0.25, overlap: 2.0 };
    let mut kernel = Kernel { kind: Kind::Qkv, launches: 4.0, bytes: 100.0, link_us: 0.0, flops: 60.0, cost };
    assert!((kernel.us(&machine) - 4.0 * 28.0).abs() < 1e-9);
    assert_eq!(kernel.limiter(&machine), Limiter::Memory);
    kernel.flops = 100.0;
    assert_eq!(kernel.limiter(&machine), Limiter::Tensor);
    (kernel.bytes, kernel.flops) = (100.0, 60.0);
    kernel.link_us = 36.0;
    assert!((kernel.us(&machine) - 4.0 * (3.0 + 39.0)).abs() < 1e-9, "link and memory overlap");
    assert_eq!(kernel.limiter(&machine), Limiter::Link);
    (kernel.bytes, kernel.link_us, kernel.flops) = (0.0, 0.0, 0.0);
    assert!((kernel.us(&machine) - 12.0).abs() < 1e-9);
    assert_eq!(kernel.limiter(&machine), Limiter::Launch);
}

/// The data sheets: 989 TFLOPS at 1830 MHz for the H200 and the H100, 312 for the A100, 165.2 for the
/// RTX 4090, 209.5 for the RTX 5090, 125 of fp16 at 1530 MHz for the V100. The B200's 2250 TFLOPS need
/// 1856 MHz, less than its boost clock.
#[test]
fn peak_rates_are_those_of_the_data_sheets() {
    let tflops = |name: &str| machine(name).flops_per_us / 1e6;
    assert!((tflops("h200") * 1830.0 / 1980.0 - 989.4).abs() < 0.1, "{}", tflops("h200"));
    assert!((tflops("h100") * 1830.0 / 1980.0 - 989.4).abs() < 0.1, "{}", tflops("h100"));
    assert!((tflops("b200") * 1856.0 / 1965.0 - 2250.0).abs() < 1.0, "{}", tflops("b200"));
    assert!((tflops("b200") - 2382.0).abs() < 1.0, "{}", tflops("b200"));
    assert!((tflops("a100") - 312.0).abs() < 0.2);
    assert!((tflops("v100") * 1530.0 / 1380.0 - 125.3).abs() < 0.1, "{}", tflops("v100"));
    assert!((tflops("rtx4090") - 165.2).abs() < 0.1);
    assert!((tflops("rtx5090") - 209.5).abs() < 0.1);
    assert!((machine("h200").bytes_per_us / 1e3 - 4800.0).abs() < 1.0);
    let fused: Vec<&str> = Machine::names().into_iter().filter(|name| machine(name).fused).collect();
    assert_eq!(fused, ["h200", "gh200", "h100"]);
    let old: Vec<&str> = Machine::names().into_iter().filter(|name| machine(name).fp16_only).collect();
    assert_eq!(old, ["v100"]);
    let error = Machine::new(&Gpu::named("p100").unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("p100 has no [tensor] table"), "{error}");
}

/// Bytes of the recorded decode loop: 16,060,522,496 plain weights with norms, and 131,072 bytes of
/// KV cache a token.
#[test]
fn bytes_are_those_of_the_recorded_models() {
    let shape = ModelShape::named("llama-8b").unwrap();
    let norms = (2 * 32 + 1) * 4096 * 2;
    assert_eq!(shape.weight_bytes(false) as u64, 16_060_522_496 - norms);
    assert_eq!(shape.kv_bytes(1024, false), 134_217_728.0);
    assert!((shape.weight_bytes(true) / 12_115_641_472.0 - 1.0).abs() < 1e-3);
    let large = ModelShape::named("llama-70b").unwrap();
    assert!((large.weight_bytes(false) / 141_107_412_992.0 - 1.0).abs() < 1e-3);
    let experts = ModelShape::named("qwen3-30b-a3b").unwrap();
    assert!((experts.weight_bytes(false) / 2.0 / 30.5e9 - 1.0).abs() < 0.01);
}

/// One token uses 8 experts; two use 16 less the half that both choose in the mean.
#[test]
fn touched_experts_are_the_expected_number_of_different_ones() {
    let experts = Experts { count: 128, chosen: 8 };
    assert!((experts.touched(1) - 8.0).abs() < 1e-9);
    assert!((experts.touched(2) - 15.5).abs() < 1e-9);
    assert!(experts.touched(4096) > 127.99);
}

#[test]
fn a_decode_step_has_the_kernels_of_its_runtime() {
    let kinds = |ask: &Ask, packed: bool| {
        let found = named("llama-8b", "h200", ask, false);
        let side = if packed { found.packed } else { found.plain };
        side.rows.iter().map(|row| (row.kernel, row.launches)).collect::<Vec<_>>()
    };
    let of = |rows: &[(Kind, u64)], kind| rows.iter().find(|row| row.0 == kind).map(|row| row.1);
    let plain = kinds(&decode(8), false);
    assert_eq!(of(&plain, Kind::Qkv), Some(32));
    assert_eq!(of(&plain, Kind::RopeAndCache), Some(64));
    assert_eq!(of(&plain, Kind::Activation), Some(32));
    assert_eq!(of(&plain, Kind::Host), Some(8));
    assert_eq!(of(&kinds(&decode(8), true), Kind::Activation), None, "fused into the layer");
    let looped = Ask { runtime: Runtime::Loop, ..decode(8) };
    assert_eq!(of(&kinds(&looped, true), Kind::RopeAndCache), None, "attention applies it");
    assert_eq!(of(&kinds(&looped, true), Kind::Host), None);
}

#[test]
fn shares_and_launches_add_up() {
    for ask in [decode(8), Ask { prompt: Some(512), ..decode(2) }] {
        let found = named("qwen3-30b-a3b", "h200", &ask, false);
        for side in [&found.plain, &found.packed] {
            assert!((side.rows.iter().map(|row| row.share).sum::<f64>() - 1.0).abs() < 1e-9);
            assert!((side.rows.iter().map(|row| row.us).sum::<f64>() - side.us).abs() < 1e-6);
        }
    }
}

/// Where no fused kernel runs, packed weights cost an unpacking before each layer.
#[test]
fn gpus_without_fused_kernels_unpack_first() {
    let found = named("llama-8b", "b200", &decode(1), false);
    assert_eq!(found.packed.weights, Weights::Unpacked);
    let unpack = found.packed.row(Kind::Unpack).unwrap();
    assert_eq!(unpack.launches, 4 * 32 + 1);
    assert!(found.packed.us > found.plain.us + 0.9 * unpack.us);
    let assumed = named("llama-8b", "b200", &decode(1), true);
    assert_eq!(assumed.packed.weights, Weights::Fused);
    assert!(assumed.packed.us < found.plain.us);
}

#[test]
fn memory_decides_what_fits() {
    let found = named("llama-70b", "h200", &decode(8), false);
    assert!((found.plain.fits, found.packed.fits) == (true, true));
    assert!(found.packed.most_sequences > 4 * found.plain.most_sequences, "{found:?}");
    let small = named("llama-8b", "rtx4090", &decode(96), false);
    assert!(!small.plain.fits && small.packed.fits);
    let none = named("llama-70b", "rtx4090", &decode(1), false);
    assert_eq!(none.packed.most_sequences, 0);
    let packed_kv = Ask { runtime: Runtime::Loop, packed_kv: true, ..decode(8) };
    let found = named("llama-8b", "h200", &packed_kv, false);
    assert!((found.packed.kv_bytes / found.plain.kv_bytes - 96.5 / 128.0).abs() < 1e-9);
}

/// Nothing was fitted to a step but those marked. Llama 8B in vLLM is within 6%, and in the older
/// record within 5%; every other step is within 10%, except the prefill of `experts_of_a_prefill`.
#[test]
fn measured_steps_are_predicted() {
    let found = validate().unwrap();
    assert_eq!(found.len(), (12 + 2 + 4) + (12 + 2) + (6 + 2) + 10 + 1);
    let within = |bound: f64, count: usize, judged: &dyn Fn(&Comparison) -> bool| {
        let steps: Vec<&Comparison> = found.iter().filter(|step| judged(step)).collect();
        assert_eq!(steps.len(), count);
        for step in steps {
            assert!(step.error().abs() < bound, "{:+.3} of {step:?}", step.error());
        }
    };
    let is_few = |step: &Comparison| step.ask.batch <= 32 && !step.fitted;
    within(0.05, 6 + 2 + 3, &|step| step.record == "vllm-decode-h200" && is_few(step));
    within(0.06, 2 * 14 - 6, &|step| {
        step.ask.runtime == Runtime::Vllm && step.shape == "llama-8b" && !step.fitted
    });
    within(0.10, found.len() - 1, &|step| !is_plain_prefill_with_experts(step));
    let step =
        found.iter().find(|step| step.record == "vllm-decode-h200" && step.packed && step.ask.batch == 32);
    assert_eq!(step.unwrap().measured_us.round(), 5523.0);
    let step = found.iter().find(|step| step.shape == "qwen3-30b-a3b" && step.packed && step.ask.batch == 8);
    assert_eq!(step.unwrap().measured_us.round(), 8394.0);
}

fn is_plain_prefill_with_experts(step: &Comparison) -> bool {
    step.shape == "qwen3-30b-a3b" && step.ask.prompt.is_some() && !step.packed
}

/// The miss that the documentation states: plain experts of a prompt are slower than plain layers.
#[test]
fn experts_of_a_prefill_are_predicted_too_fast() {
    let found = validate().unwrap();
    let step = found.iter().find(|step| is_plain_prefill_with_experts(step)).unwrap();
    assert!((-0.23..-0.22).contains(&step.error()), "{:+.3}", step.error());
}

/// At 4/3x three of four sectors are read from the device; of a tenth of the entries the fourth comes
/// over the link. 16.06 GB of weights are 12.0 GB on the device and 0.4 GB over the link, 2.7 ms at 150
/// GB/s.
#[test]
fn weights_in_buddy_memory_are_read_from_the_device_and_over_the_link() {
    let (gpu, shape) = (machine("h200"), ModelShape::named("llama-8b").unwrap());
    let plain = named("llama-8b", "h200", &decode(1), false).plain;
    let with = |target: Target, overflow, link: &str| {
        let memory = BuddyMemory::new(target, overflow, &Link::named(link).unwrap());
        estimate_buddy(&gpu, &shape, &decode(1), memory).side
    };
    let fits = with(Target::X4Over3, 0.0, "150");
    assert!((fits.weight_bytes / shape.weight_bytes(false) - (0.75 + 0.5 / 128.0)).abs() < 1e-9);
    assert_eq!(fits.kv_bytes, plain.kv_bytes, "the KV cache is plain");
    assert!((0.75..0.85).contains(&(fits.us / plain.us)), "{} of {}", fits.us, plain.us);
    assert_eq!(with(Target::X1, 0.0, "150").rows.len(), plain.rows.len());
    // At 1/10 the link takes 2.7 ms and device memory 2.8; a slower link decides.
    assert!((with(Target::X4Over3, 0.1, "150").us / fits.us - 1.0).abs() < 1e-9);
    let slow = with(Target::X4Over3, 0.1, "50");
    assert_eq!(slow.row(Kind::GateAndUp).unwrap().limiter, Limiter::Link);
    // 15.01 GB of them are read in a step: 0.375 GB over the link.
    assert!((7_505.0..9_000.0).contains(&slow.us), "{}", slow.us);
    let faster = with(Target::X4Over3, 0.1, "c2c").us;
    assert!((faster / fits.us - 1.0).abs() < 1e-9, "the link is hidden");
}

/// A route of one token and of 2048, and two grouped layers with the activation inside.
#[test]
fn packed_experts_have_kernels_of_their_own() {
    let found = named("qwen3-30b-a3b", "h200", &decode(1), false);
    let launches = |side: &Side, kind| side.row(kind).map(|row| row.launches);
    assert_eq!(launches(&found.packed, Kind::Experts), Some(2 * 48));
    assert_eq!(
        (launches(&found.packed, Kind::Router), launches(&found.plain, Kind::Router)),
        (Some(4 * 48), Some(5 * 48))
    );
    assert_eq!(
        (launches(&found.packed, Kind::Activation), launches(&found.plain, Kind::Activation)),
        (None, Some(48))
    );
    let us = |side: &Side, kind| side.row(kind).unwrap().us;
    assert!(us(&found.packed, Kind::Experts) > us(&found.plain, Kind::Experts), "slower for one token");
    let many = named("qwen3-30b-a3b", "h200", &decode(32), false);
    assert!(us(&many.packed, Kind::Experts) < us(&many.plain, Kind::Experts));
    let routed = |tokens| Parameters::default().route(1, tokens).us(&machine("h200"));
    assert!((routed(2048) - routed(1) - 2047.0 * 0.046).abs() < 1e-6);
}

#[test]
fn a_config_gives_the_shape_of_its_model() {
    let config = json!({
        "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
        "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151_936, "mlp_only_layers": []
    });
    let shape = config::parse("qwen3-30b-a3b", &config).unwrap();
    assert_eq!(shape, ModelShape::named("qwen3-30b-a3b").unwrap());
    let gpt = json!({"text_config": {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "vocab_size": 50257, "tie_word_embeddings": true, "layer_types": ["full_attention"]
    }});
    let shape = config::parse("gpt", &gpt).unwrap();
    assert_eq!((shape.kv_heads, shape.head, shape.tied, shape.experts), (12, 64, true, None));
}

#[test]
fn configs_that_are_not_modelled_are_refused() {
    let error = |extra: serde_json::Value| {
        let mut config = json!({
            "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "vocab_size": 128_256
        });
        config.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        config::parse("x", &config).unwrap_err()
    };
    assert_eq!(error(json!({"kv_lora_rank": 512})), "models with kv_lora_rank are not modelled");
    assert!(error(json!({"layer_types": ["sliding_attention"]})).contains("layer_types"));
    assert_eq!(error(json!({"vocab_size": null})), "no vocab_size");
    assert!(error(json!({"hidden_size": 0})).contains("must be a number from 1 to"));
    assert!(error(json!({"num_experts": 4, "num_experts_per_tok": 8})).contains("more than num_experts, 4"));
    let unknown = ModelShape::named("llama-9b").unwrap_err().to_string();
    assert!(unknown.contains("use one of llama-8b, llama-70b, qwen3-30b-a3b, or the path"), "{unknown}");
}
