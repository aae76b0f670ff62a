//! Instruction counts of the hot loops under callgrind, independent of machine load.
//!
//! `cargo run --release --bin instructions` needs valgrind. It fails if a loop exceeds its limit,
//! which is about 10% above the count when it was set. Callgrind does not support AVX-512, so these
//! are the AVX2 loops.

#![forbid(unsafe_code)]

use std::{
    env,
    hint::black_box,
    process::{Command, ExitCode},
};

use buddy_codec::{Codec, CodecKind, samples::samples};
use buddy_core::{Entry, Layout, Nibble, SizeClass, ZERO_ENTRY};
use rayon::prelude::*;

/// Entries per batch.
const ENTRIES: usize = 1024;

/// Loop, codec, and limit in instructions per entry.
const LIMITS: [(&str, CodecKind, u64); 14] = [
    ("size", CodecKind::Bpc, 340),
    ("size", CodecKind::Bf16, 240),
    ("size", CodecKind::Planes64, 45),
    ("size", CodecKind::Zeros32, 640),
    ("size", CodecKind::Table32, 280),
    ("size", CodecKind::Table64, 260),
    ("encode", CodecKind::Bpc, 650),
    ("encode", CodecKind::Bf16, 1290),
    ("encode", CodecKind::Planes64, 850),
    ("encode", CodecKind::Zeros32, 830),
    ("decode", CodecKind::Bpc, 460),
    ("decode", CodecKind::Bf16, 750),
    ("decode", CodecKind::Planes64, 1000),
    ("decode", CodecKind::Zeros32, 360),
];

fn main() -> ExitCode {
    // Under valgrind, the process runs a single loop.
    if let Some(number) = env::args().nth(1).and_then(|number| number.parse::<usize>().ok()) {
        let (name, kind, _) = LIMITS[number];
        black_box(counted(name, Batch::new(kind)));
        return ExitCode::SUCCESS;
    }
    let lines: Vec<_> = (0..LIMITS.len()).into_par_iter().map(check_limit).collect();
    lines.iter().for_each(|(line, _)| println!("{line}"));
    if lines.iter().all(|(_, good)| *good) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures a loop; returns a report line and whether it is within its limit.
fn check_limit(number: usize) -> (String, bool) {
    let (name, kind, limit) = LIMITS[number];
    let (report, good) = match count(number) {
        Ok(all) => {
            let each = all as f64 / ENTRIES as f64;
            (format!("{each:7.1} instructions per entry, limit {limit}"), each <= limit as f64)
        }
        Err(why) => (why, false),
    };
    (format!("{name:<6} {kind:<9} {report}{}", if good { "" } else { ": FAILED" }), good)
}

/// Returns the instruction count of a loop.
fn count(number: usize) -> Result<u64, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        "--toggle-collect=instructions::counted*",
    ]);
    let output = valgrind.arg(program).arg(number.to_string()).output();
    let output = output.map_err(|error| format!("valgrind: {error}"))?;
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    // A count of zero means that the function was not found by name.
    collected.filter(|count| *count > 0 && output.status.success()).ok_or_else(|| report.trim().to_owned())
}

/// A codec with entries and their packed form.
struct Batch {
    codec: Codec,
    entries: Vec<Entry>,
    nibbles: Vec<Nibble>,
    slots: Vec<Entry>,
    bits: Vec<u32>,
}

impl Batch {
    fn new(kind: CodecKind) -> Self {
        let entries: Vec<Entry> = samples().into_iter().cycle().take(ENTRIES).collect();
        let codec = kind.train(&entries);
        let mut nibbles = vec![Nibble::new(SizeClass::Zero, Layout::A); entries.len()];
        let mut slots = vec![ZERO_ENTRY; entries.len()];
        codec.pack_all(&entries, &mut nibbles, &mut slots);
        let bits = vec![0; entries.len()];
        Self { codec, entries, nibbles, slots, bits }
    }
}

/// The function measured by callgrind.
#[inline(never)]
fn counted(name: &str, mut batch: Batch) -> Batch {
    let Batch { codec, entries, nibbles, slots, bits } = &mut batch;
    match name {
        "size" => codec.sizes(black_box(entries), bits),
        "encode" => codec.pack_all(black_box(entries), nibbles, slots),
        _ => codec.unpack_all(black_box(nibbles), slots, entries).expect("packed above"),
    }
    batch
}
