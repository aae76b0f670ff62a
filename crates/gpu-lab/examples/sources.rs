//! Prints every kernel program as JSON: its text, its headers, and the compiler's options for an
//! architecture. `tools/nvrtc_check.py` compiles them on machines without a GPU.

use std::collections::BTreeSet;

use buddy_cuda::{Header, Source};
use serde_json::{Value, json};

fn main() {
    let architectures: Vec<String> = std::env::args().skip(1).collect();
    let programs = [Source::all(), buddy_gpu_lab::sources(), buddy_gpu_lab::micro_sources()].concat();
    let compile = |source: &Source, architecture: &String| {
        json!({
            "program": source.name,
            "architecture": architecture,
            "text": source.text,
            "options": source.options(architecture),
        })
    };
    // A program is compiled only for architectures that it supports.
    let number = |name: &String| name.trim_start_matches("sm_").parse::<u32>().unwrap_or(u32::MAX);
    let for_each = |source: &Source| {
        let source = source.clone();
        architectures.iter().filter(move |name| source.is_for(number(name)))
    };
    let jobs: Vec<Value> =
        programs.iter().flat_map(|source| for_each(source).map(|a| compile(source, a))).collect();
    let own: BTreeSet<Header> = programs.iter().flat_map(|source| source.headers.iter().copied()).collect();
    let headers: Vec<Value> = Source::headers()
        .iter()
        .copied()
        .chain(own)
        .map(|(name, text)| json!({ "name": name, "text": text }))
        .collect();
    println!("{}", json!({ "headers": headers, "jobs": jobs }));
}
