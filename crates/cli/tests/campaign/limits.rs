//! Memory and processor time of every reader of stored files on inputs of 4 MB: both are bounded by
//! the input's length. The readers of arrays have the same test in `crates/snapshot`.

use std::{fs, path::Path, process::Command};

use buddy_codec::{CodecKind, freeze, samples::Noise, seal, tighten};
use buddy_core::Target;
use buddy_model::pack_file;
use serde_json::{Value, json};

use crate::readers::readers;

/// Approximate bytes of an input.
const LENGTH: usize = 4_000_000;
/// Memory of any process, and that of each byte of the input.
const LEAST_MEMORY: u64 = 96 << 20;
const MEMORY_PER_BYTE: u64 = 64;
/// Processor time in microseconds, likewise.
const LEAST_MICROSECONDS: u64 = 3_000_000;
const MICROSECONDS_PER_BYTE: u64 = 2;

/// A reader's name, what is unusual about the input, and the input.
type Input = (&'static str, &'static str, Vec<u8>);

/// Returns the valid file of a reader.
fn honest(name: &str) -> Vec<u8> {
    readers().into_iter().find(|reader| reader.name == name).unwrap().honest
}

/// Repeats the elements of the longest list of a record until it is long enough.
fn grown(name: &'static str) -> Vec<u8> {
    fn longest(value: &mut Value) -> Option<&mut Vec<Value>> {
        let size = |list: &Vec<Value>| list.iter().map(|one| one.to_string().len()).sum::<usize>();
        match value {
            Value::Array(list) if list.iter().any(|one| !one.is_number()) => Some(list),
            Value::Object(map) => map.values_mut().filter_map(longest).max_by_key(|list| size(list)),
            _ => None,
        }
    }
    let mut record: Value = serde_json::from_slice(&honest(name)).unwrap();
    record.as_object_mut().unwrap().remove("checksum");
    let list = longest(&mut record).unwrap_or_else(|| panic!("{name} has no list"));
    let (once, bytes) = (list.clone(), json!(list).to_string().len());
    for _ in 0..LENGTH / bytes {
        list.extend(once.iter().cloned());
    }
    record.to_string().into_bytes()
}

/// Repeats text with a number in place of each `#`.
fn numbered(head: &str, part: &str) -> Vec<u8> {
    let mut text = head.to_owned();
    for number in 0.. {
        text.push_str(&part.replace('#', &number.to_string()));
        if text.len() > LENGTH {
            break;
        }
    }
    text.into_bytes()
}

/// Repeats the last lines of a text.
fn repeated(name: &str, lines: usize) -> Vec<u8> {
    let text = String::from_utf8(honest(name)).unwrap();
    let last: Vec<&str> = text.split_inclusive('\n').collect();
    let last = last[last.len().saturating_sub(lines)..].concat();
    (text + &last.repeat(LENGTH / last.len())).into_bytes()
}

/// A trace whose first warp has megabytes of instructions.
fn one_warp() -> Vec<u8> {
    let text = String::from_utf8(honest("trace as text")).unwrap();
    let (head, rest) = text.split_once("insts = 17\n").unwrap();
    let line = rest.split_inclusive('\n').next().unwrap();
    let more = LENGTH / line.len();
    format!("{head}insts = {}\n{}{rest}", 17 + more, line.repeat(more)).into_bytes()
}

fn bf16(bytes: usize) -> Vec<u8> {
    let mut noise = Noise(1);
    let value = |noise: &mut Noise| (((0.02 * noise.normal()) as f32).to_bits() >> 16) as u16;
    (0..bytes / 2).flat_map(|_| value(&mut noise).to_le_bytes()).collect()
}

/// A packed model of 20,000 small tensors and a matrix: megabytes of header.
fn packed_header() -> Vec<u8> {
    let (dir, matrix) = (tempfile::tempdir().unwrap(), bf16(64 * 64 * 2));
    let mut header =
        json!({ "w": { "dtype": "BF16", "shape": [64, 64], "data_offsets": [0, matrix.len()] } });
    for number in 0..20_000 {
        let at = matrix.len() + number;
        header[format!("layers.{number}.bias")] =
            json!({ "dtype": "U8", "shape": [1], "data_offsets": [at, at + 1] });
    }
    let header = header.to_string();
    let plain = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &matrix, &[0; 20_000]].concat();
    let [from, to] = ["plain", "packed"].map(|name| dir.path().join(format!("{name}.safetensors")));
    fs::write(&from, plain).unwrap();
    pack_file(&from, &to, &|_| ()).unwrap();
    fs::read(to).unwrap()
}

/// A `buddy.json` of version 1 that lists many files; that of version 2 has a checksum.
fn files(version: u32) -> Vec<u8> {
    let mut manifest: Value = serde_json::from_slice(&honest(
        ["packed folder of version 1", "packed folder"][version as usize - 1],
    ))
    .unwrap();
    let one = manifest["files"]["model.safetensors"].clone();
    for number in 0..50_000 {
        manifest["files"][format!("{number}.safetensors")] = one.clone();
    }
    manifest.to_string().into_bytes()
}

fn deep(name: &'static str) -> Input {
    (name, "nested", format!("{{\"kind\":\"run\",\"version\":1,\"data\":{}", "[".repeat(LENGTH)).into_bytes())
}

fn inputs() -> Vec<Input> {
    let records = [
        "run.json",
        "record of a run",
        "record of a profile",
        "record of a figure",
        "record of an analysis",
        "record of accuracy",
        "record of a simulation",
    ];
    let table = "[[allocation]]\nname = \"a#\"\ncall_site = \"a.py\"\nbytes = 128\ncodec = \"bpc\"\ntarget = \"2x\"\n";
    let address = "[[allocation]]\nbase = #0000\nbytes = 4096\ntarget = \"4x\"\nclass = \"s1\"\n";
    let axis =
        |value: &str| format!("[axes]\nprogram = \"stream\"\nsize = 1\nmode = [{value}]\n").into_bytes();
    let frame = {
        let packed = honest("packed trace");
        let tail = packed[12..].to_vec();
        [packed, tail.repeat(LENGTH / tail.len())].concat()
    };
    let xz = honest("trace as xz");
    let frozen = |data: &[u8]| {
        let codec = CodecKind::Bf16.train(&[]);
        let mut frozen = freeze(&codec, Target::X4Over3, 64, data).unwrap();
        seal(&mut frozen).unwrap();
        frozen
    };
    let matrix = bf16(LENGTH / 8192 * 8192);
    let noise: Vec<u8> =
        (0..matrix.len() as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut all = vec![
        ("packed model of version 1", "a header of today", packed_header()),
        ("packed folder of version 1", "50,000 files", files(1)),
        ("packed folder", "50,000 files", files(2)),
        ("packed folder", "nested", "[".repeat(LENGTH).into_bytes()),
        ("point of a sweep", "grown", grown("record of a simulation")),
        ("plan of a sweep", "one axis", axis(&"\"ideal\",".repeat(LENGTH / 8))),
        (
            "plan of a sweep",
            "skipped",
            numbered("[axes]\nprogram = \"stream\"\nsize = [1, 2]\n", "[[skip]]\nsize = \"> #\"\n"),
        ),
        ("plan of a sweep", "nested", axis(&"[".repeat(LENGTH))),
        ("targets by name", "allocations", numbered("version = 1\nprogram = \"x\"\n", table)),
        ("targets by address", "allocations", numbered("", address)),
        ("spec of a GPU", "comments", repeated("spec of a GPU", 1)),
        ("spec of a link", "unknown fields", numbered("", "field# = #\n")),
        ("log of a watched program", "looks", repeated("log of a watched program", 10)),
        ("log of a watched program", "codecs", numbered("buddy-watch 1\npid 42\n", "codec bpc\n")),
        ("trace as text", "one warp", one_warp()),
        ("trace as text", "warps", repeated("trace as text", 40)),
        ("trace as xz", "streams", xz.repeat(LENGTH / xz.len())),
        ("packed trace", "frames", frame),
        ("list of kernels", "kernels", repeated("list of kernels", 1)),
        ("frozen buffer", "matrix", frozen(&matrix)),
        ("frozen buffer", "noise", frozen(&noise)),
        ("tight matrix", "matrix", tighten(64, &matrix).unwrap()),
        ("tight matrix", "noise", tighten(64, &noise).unwrap()),
    ];
    all.extend(records.map(|name| (name, "grown", grown(name))));
    all.extend(records.map(deep));
    all
}

/// Returns the largest memory of this process in bytes and its processor time in microseconds.
fn used() -> (u64, u64) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // Ticks are hundredths of a second on every Linux that is in use.
    (1024 * peak, 10_000 * ticks)
}

/// The process that the other test starts: one reader on one file.
#[test]
fn one_reader() {
    let Some(name) = std::env::var_os("BUDDY_LIMITS_READER") else { return };
    let bytes = fs::read("input").unwrap();
    let reader = readers().into_iter().find(|reader| *reader.name == *name.to_str().unwrap()).unwrap();
    let before = used();
    let accepted = (reader.read)(&bytes, Path::new("."));
    let after = used();
    println!("LIMITS {} {} {accepted}", after.0, after.1 - before.1);
}

#[test]
fn memory_and_time_are_bounded_by_the_length_of_the_input() {
    if !Path::new("/proc/self/status").exists() {
        println!("SKIPPED: no /proc");
        return;
    }
    let (mut over, mut accepted) = (Vec::new(), 0);
    for (reader, about, bytes) in inputs() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("input"), &bytes).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "limits::one_reader", "--nocapture"]).env("BUDDY_LIMITS_READER", reader);
        let output = child.current_dir(dir.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let Some((_, line)) = said.lines().find_map(|line| line.split_once("LIMITS ")) else {
            let errors = String::from_utf8_lossy(&output.stderr);
            over.push(format!("{reader}, {about}: {} {errors}", output.status));
            continue;
        };
        let fields: Vec<&str> = line.split(' ').collect();
        let (memory, time) = (fields[0].parse::<u64>().unwrap(), fields[1].parse::<u64>().unwrap());
        let length = bytes.len() as u64;
        println!(
            "{reader}, {about}: {length} bytes, {} MB, {time} us, accepted: {}",
            memory >> 20,
            fields[2]
        );
        accepted += u32::from(fields[2] == "true");
        assert!(length > 300_000, "{reader}, {about}: only {length} bytes");
        if memory > LEAST_MEMORY + MEMORY_PER_BYTE * length
            || time > LEAST_MICROSECONDS + MICROSECONDS_PER_BYTE * length
        {
            over.push(format!("{reader}, {about}: {length} bytes took {memory} bytes and {time} us"));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
    assert!(accepted >= 8, "only {accepted} inputs were read to the end");
}
