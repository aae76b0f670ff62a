//! Memory and processor time of every reader on inputs of megabytes, hostile ones among them: both
//! are bounded by the input's length.
#![allow(missing_docs)]

mod files;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use buddy_snapshot::{Error, open_contents};
use zip::CompressionMethod::{Deflated, Stored};

/// Memory of any process, which may hold one decoded chunk of HDF5 (here 64 MiB), and that of each
/// byte of the file.
const LEAST_MEMORY: u64 = 96 << 20;
const MEMORY_PER_BYTE: u64 = 32;
/// Processor time in microseconds: that of the test itself on a busy machine, and that of each
/// byte.
const LEAST_MICROSECONDS: u64 = 3_000_000;
const MICROSECONDS_PER_BYTE: u64 = 1;

fn pickle(instructions: &[u8]) -> Vec<u8> {
    let pickle = [b"\x80\x02", instructions, b"."].concat();
    files::npz(&[("a/data.pkl", pickle), ("a/data/0", vec![0; 64])], Stored)
}

/// A list of tensors, each with a storage of its own, behind a key of 4000 bytes.
fn long_names(tensors: usize) -> Vec<u8> {
    let text = |text: &str| [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let mut code = b"ctorch._utils\n_rebuild_tensor_v2\nq\x000ctorch\nFloatStorage\nq\x010}".to_vec();
    code.extend(text(&"k".repeat(4000)));
    code.extend(b"](");
    for name in 0..tensors {
        code.extend(b"h\x00((");
        code.extend(text("storage"));
        code.extend(b"h\x01");
        code.extend(text(&format!("{name:x}")));
        code.extend(text("cpu"));
        code.extend(b"K\x01tQK\x00K\x01\x85K\x01\x85tR");
    }
    code.extend(b"es");
    pickle(&code)
}

fn safetensors(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
}

fn gguf(pairs: u64, tensors: u64, body: &[u8]) -> Vec<u8> {
    let numbers = [tensors, pairs].map(u64::to_le_bytes).concat();
    [b"GGUF", &3u32.to_le_bytes()[..], &numbers, body].concat()
}

/// Inputs by name; the extension names the format.
fn inputs() -> Vec<(&'static str, Vec<u8>)> {
    let millions = 4_000_000;
    let tensor =
        |name: usize| format!("\"{name}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}");
    let many: Vec<String> = (0..40_000).map(tensor).collect();
    let info = |name: u64| {
        [
            &8u64.to_le_bytes()[..],
            format!("{name:08}").as_bytes(),
            &1u32.to_le_bytes(),
            &0u64.to_le_bytes(),
            &24u32.to_le_bytes(),
            &0u64.to_le_bytes(),
        ]
        .concat()
    };
    let infos: Vec<u8> = (0..60_000).flat_map(info).collect();
    let bools = [&1u64.to_le_bytes()[..], b"k", &9u32.to_le_bytes(), &7u32.to_le_bytes()].concat();
    let bools = [&bools[..], &(millions as u64).to_le_bytes(), &vec![0; millions]].concat();
    let members: Vec<(String, Vec<u8>)> = (0..8000).map(|n| (format!("{n}.npy"), files::floats(1))).collect();
    let members: Vec<(&str, Vec<u8>)> =
        members.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    let dimensions = "1,".repeat(500_000);
    let descr = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({dimensions})}}");
    let fields: String = (0..60_000).map(|n| format!("('{n}', '<f4'),")).collect();
    let fields = format!("{{'descr': [{fields}], 'fortran_order': False, 'shape': (0,)}}");
    vec![
        ("nones.pt", pickle(&[&b"("[..], &vec![b'N'; millions], b"t"].concat())),
        ("lists.pt", pickle(&vec![b']'; millions])),
        ("tuples.pt", pickle(&[&b"N"[..], &vec![0x85; millions]].concat())),
        ("marks.pt", pickle(&vec![b'('; millions])),
        ("memo.pt", pickle(&[&b"N"[..], &vec![0x94; millions]].concat())),
        ("recalled.pt", pickle(&[&b"]q\x00("[..], &b"h\x00".repeat(millions / 2), b"t"].concat())),
        ("names.pt", long_names(60_000)),
        ("floats.npz", files::npz(&[("w.npy", files::floats(1_000_000))], Deflated)),
        ("many.npz", files::npz(&members, Stored)),
        ("dimensions.npy", files::npy(2, &descr, &[])),
        ("fields.npy", files::npy(2, &fields, &[])),
        ("tensors.safetensors", safetensors(&format!("{{{}}}", many.join(",")), 0)),
        ("deep.safetensors", safetensors(&format!("{{\"a\":{}", "[".repeat(millions)), 0)),
        ("name.safetensors", safetensors(&format!("{{\"{}\":{}", "n".repeat(millions), &tensor(0)[4..]), 0)),
        ("tensors.gguf", gguf(0, 60_000, &infos)),
        ("bools.gguf", gguf(1, 0, &bools)),
        ("variables.nc", files::netcdf(5, 2)),
        ("shared.h5", fs::read(data("shared.h5")).unwrap()),
        ("pages.h5", fs::read(data("peers/pages.h5")).unwrap()),
    ]
}

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The process that the other test starts: reads one file and prints its memory in KiB and its time
/// in ticks.
#[test]
fn child() {
    let Some(path) = std::env::var_os("BUDDY_LIMITS_FILE") else { return };
    let read = open_contents(Path::new(&path), None);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    let what = match &read {
        Ok(contents) => format!("{} arrays", contents.arrays.len()),
        Err(Error::At { what, .. }) => what.to_string(),
        Err(error) => error.to_string(),
    };
    println!("LIMITS {} {ticks} {what}", peak.trim().trim_end_matches(" kB"));
}

#[test]
fn memory_and_time_are_bounded_by_the_length_of_the_input() {
    if !Path::new("/proc/self/status").exists() {
        println!("skipped: no /proc");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut over = Vec::new();
    for (name, bytes) in inputs() {
        let path = dir.path().join(name);
        fs::write(&path, &bytes).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "child", "--nocapture"]).env("BUDDY_LIMITS_FILE", &path).stderr(Stdio::null());
        let output = String::from_utf8(child.output().unwrap().stdout).unwrap();
        let line = output.lines().find_map(|line| line.split_once("LIMITS ")).map(|(_, line)| line);
        let line = line.unwrap_or_else(|| panic!("{name} ended its process: {output}"));
        let mut fields = line.splitn(3, ' ');
        let mut number = || fields.next().unwrap().parse::<u64>().unwrap();
        // Ticks are hundredths of a second on every Linux that is in use.
        let (memory, microseconds) = (1024 * number(), 10_000 * number());
        let length = bytes.len() as u64;
        println!(
            "{name}: {length} bytes, {} MB, {microseconds} us: {}",
            memory >> 20,
            fields.next().unwrap()
        );
        if memory > LEAST_MEMORY + MEMORY_PER_BYTE * length
            || microseconds > LEAST_MICROSECONDS + MICROSECONDS_PER_BYTE * length
        {
            over.push(format!("{name}: {length} bytes took {memory} bytes and {microseconds} us"));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
}
