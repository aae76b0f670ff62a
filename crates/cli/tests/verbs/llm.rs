//! `buddy simulate llm` end to end.

use serde_json::Value;

use crate::common::{Run, buddy};

fn llm(more: &[&str]) -> Run {
    buddy(&[&["simulate", "llm"], more].concat())
}

fn json(more: &[&str]) -> Value {
    let run = llm(&[more, &["--json", "-"]].concat());
    assert_eq!((run.stderr.as_str(), run.code), ("", 0));
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn a_step_is_a_table_of_kernels_then_totals_and_memory() {
    let run = llm(&["--shape", "llama-8b", "--batch", "8", "--context", "4096"]);
    assert_eq!((run.stderr.as_str(), run.code), ("", 0));
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines[0], "llama-8b on h200: decode step of 8 x 4096 tokens of context, vllm");
    let heads: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(heads[..6], ["kernel", "launches", "plain", "µs", "share", "limit"]);
    for kernel in ["gate and up", "attention", "norms", "sampling", "head", "host"] {
        assert!(lines.iter().any(|line| line.starts_with(kernel)), "{kernel}: {}", run.stdout);
    }
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{}", run.stdout);
    let plain = lines.iter().find(|line| line.starts_with("plain ")).unwrap();
    assert!(plain.contains("16.06 GB") && plain.contains("4.29 GB") && plain.contains("yes"), "{plain}");
    assert!(run.stdout.contains("not the cycle simulator"), "{}", run.stdout);
}

#[test]
fn the_record_has_what_the_table_shows() {
    let record = json(&["--batch", "8", "--context", "4096"]);
    assert_eq!(record["kind"], "llm-step");
    let data = &record["data"];
    assert_eq!((&data["gpu"], &data["ask"]["batch"]), (&"h200".into(), &8.into()));
    for side in ["plain", "packed"] {
        let rows = data[side]["rows"].as_array().unwrap();
        let us: f64 = rows.iter().map(|row| row["us"].as_f64().unwrap()).sum();
        let whole = data[side]["us"].as_f64().unwrap();
        assert!((us / whole - 1.0).abs() < 1e-9);
        assert!((data[side]["tokens_per_s"].as_f64().unwrap() * whole / 8e6 - 1.0).abs() < 1e-9);
    }
    assert!(data["packed"]["us"].as_f64() < data["plain"]["us"].as_f64());
}

#[test]
fn a_prefill_and_experts_and_a_config_are_estimated() {
    let us = |more: &[&str]| json(more)["data"]["plain"]["us"].as_f64().unwrap();
    let [short, long] = ["1024", "4096"].map(|tokens| us(&["--prompt", tokens]));
    assert!((3.5..5.0).contains(&(long / short)), "{short} {long}");
    assert!(us(&["--shape", "qwen3-30b-a3b"]) < us(&["--shape", "llama-8b"]), "few experts are read");
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("llm-config");
    std::fs::create_dir_all(&folder).unwrap();
    let config = r#"{"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "vocab_size": 128256,
        "num_attention_heads": 32, "num_key_value_heads": 8}"#;
    std::fs::write(folder.join("config.json"), config).unwrap();
    assert_eq!(us(&["--shape", folder.to_str().unwrap()]), us(&["--shape", "llama-8b"]));
}

#[test]
fn a_gpu_without_fused_kernels_says_so() {
    let today = llm(&["--spec", "b200"]);
    assert!(
        today.stdout.contains("unpack weights") && today.stdout.contains("--fused assumes Hopper's kernels"),
        "{}",
        today.stdout
    );
    let assumed = llm(&["--spec", "b200", "--fused"]);
    assert!(
        !assumed.stdout.contains("unpack weights") && assumed.stdout.contains("those do not run on this GPU")
    );
}

#[test]
fn a_buddy_memory_in_hardware_is_a_third_side_without_a_measurement() {
    let run = llm(&["--buddy", "4/3x", "--overflow", "0.1", "--link", "50"]);
    assert_eq!((run.stderr.as_str(), run.code), ("", 0));
    assert!(run.stdout.lines().any(|line| line.starts_with("buddy ")), "{}", run.stdout);
    assert!(run.stdout.contains("Not validated, no GPU has it"), "{}", run.stdout);
    assert!(run.stdout.lines().all(|line| line.chars().count() <= 110), "{}", run.stdout);
    let ms = |more: &[&str]| {
        json(&[&["--buddy", "4/3x"], more].concat())["data"]["buddy"]["side"]["us"].as_f64().unwrap()
    };
    let [free, slow] = [ms(&[]), ms(&["--overflow", "0.1", "--link", "50"])];
    assert!(slow > free, "{slow} {free}");
    assert!(json(&[])["data"]["buddy"].is_null());
}

#[test]
fn requests_without_a_meaning_are_refused() {
    let refused = |more: &[&str], why: &str| {
        let run = llm(more);
        assert!(run.code != 0 && run.stderr.contains(why), "{more:?}: {}", run.stderr);
    };
    refused(&["--spec", "p100"], "p100 has no [tensor] table");
    refused(&["--shape", "llama-9b"], "unknown shape 'llama-9b'");
    refused(&["--packed-kv"], "vLLM has no packed KV cache");
    refused(&["--fused"], "--fused has no effect");
    refused(&["--context", "64", "--prompt", "64"], "cannot be used with");
    refused(&["--runtime", "x"], "use vllm or loop");
    refused(&["--overflow", "0.1"], "--buddy");
    refused(&["--buddy", "2x", "--overflow", "2"], "not a share from 0 to 1");
    refused(&["--buddy", "3x"], "3x");
    let run = buddy(&["simulate"]);
    assert!(run.code == 2 && run.stderr.contains("required"), "{}", run.stderr);
}
