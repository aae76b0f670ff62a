//! Mutation campaign: ten thousand corrupted inputs over every reader, in less than five minutes.
//! No reader may panic, abort, hang or accept contradictory data. `BUDDY_CAMPAIGN` sets the number
//! of inputs, `BUDDY_CAMPAIGN_SEED` their seed.

mod limits;
mod readers;
mod spoil;
mod stores;

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use readers::readers;
use spoil::{Dice, spoil};

/// Timeout per input.
const LONGEST: Duration = Duration::from_secs(60);
/// Count after the last input.
const DONE: u64 = u64::MAX - 1;

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

/// Aborts the process if one input exceeds the timeout; nothing else stops a hanging reader.
fn watch(what: &'static Mutex<String>, count: &'static AtomicU64) {
    thread::spawn(move || {
        let mut before = u64::MAX;
        loop {
            thread::sleep(LONGEST);
            let now = count.load(Ordering::Relaxed);
            if now == DONE {
                return;
            }
            if now == before {
                eprintln!("HANG: {}", what.lock().unwrap());
                std::process::abort();
            }
            before = now;
        }
    });
}

/// Saves an input that broke a reader.
fn keep(name: &str, number: u64, bytes: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{number}", name.replace(' ', "-")));
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn ten_thousand_corrupted_inputs_break_no_reader() {
    static WHAT: Mutex<String> = Mutex::new(String::new());
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (inputs, seed) = (setting("BUDDY_CAMPAIGN", 10_000), setting("BUDDY_CAMPAIGN_SEED", 1));
    let (begin, dir, readers) = (Instant::now(), tempfile::tempdir().unwrap(), readers());
    let each = inputs.div_ceil(readers.len() as u64);
    let place = |name: &str| dir.path().join(name.replace(' ', "-"));
    for reader in &readers {
        fs::create_dir(place(reader.name)).unwrap();
        let taken = (reader.read)(&reader.honest, &place(reader.name));
        assert!(taken, "{} rejects a valid file", reader.name);
    }
    watch(&WHAT, &COUNT);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let mut broken = Vec::new();
    let mut taken = 0;
    for reader in &readers {
        let place = place(reader.name);
        for number in 0..each {
            let input = spoil(&reader.honest, &mut Dice::new(seed.wrapping_mul(1 << 32) + number));
            *WHAT.lock().unwrap() = format!("{} input {number} of seed {seed}", reader.name);
            match catch_unwind(AssertUnwindSafe(|| (reader.read)(&input, &place))) {
                Ok(accepted) => taken += u64::from(accepted),
                Err(_) => broken.push(keep(reader.name, number, &input)),
            }
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
    }
    std::panic::set_hook(hook);
    let (done, seconds) = (COUNT.swap(DONE, Ordering::Relaxed), begin.elapsed().as_secs_f64());
    println!(
        "{done} inputs over {} readers in {seconds:.1} s: {taken} accepted, {} broke a reader",
        readers.len(),
        broken.len()
    );
    assert!(broken.is_empty(), "inputs that broke a reader: {broken:#?}");
    assert!(inputs > 20_000 || seconds < 300.0, "{seconds} s");
}

/// The command exits with 0, 1 or 2 on corrupted files of each kind, without a panic message.
#[test]
fn the_command_never_panics_on_corrupted_files() {
    let cases: [(&str, &[&str]); 13] = [
        ("HDF5", &["analyze", "x.h5"]),
        ("PyTorch", &["analyze", "x.pt"]),
        ("GGUF", &["analyze", "x.gguf"]),
        ("packed model", &["unpack", "x.safetensors", "--out", "y.safetensors"]),
        ("plan of a sweep", &["sweep", "x.toml", "--dry-run"]),
        ("npz stored", &["analyze", "x.npz"]),
        ("safetensors", &["analyze", "x.safetensors"]),
        ("record of a run", &["profile", "x.json"]),
        ("record of a run", &["profile", "x.json", "--device-memory", "1MB"]),
        ("trace as text", &["simulate", "x.traceg", "--mode", "buddy", "--targets", "2x"]),
        ("packed trace", &["trace", "info", "x.warps"]),
        ("spec of a GPU", &["simulate", "stream", "--size", "1", "--spec", "x.toml"]),
        ("targets by address", &["simulate", "stream", "--size", "1", "--mode", "um", "--targets", "x.toml"]),
    ];
    let (dir, readers) = (tempfile::tempdir().unwrap(), readers());
    for (name, args) in cases {
        let honest = &readers.iter().find(|reader| reader.name == name).unwrap().honest;
        let file = args.iter().find(|arg| arg.starts_with("x.")).unwrap();
        for number in 0..12 {
            let input = spoil(honest, &mut Dice::new(number));
            fs::write(dir.path().join(file), &input).unwrap();
            let why = ends_well(dir.path(), args);
            assert!(why.is_none(), "{args:?} on {}: {why:?}", keep(name, number, &input).display());
        }
    }
}

/// Runs the command; returns a description of the failure, if any.
fn ends_well(dir: &Path, args: &[&str]) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_buddy"));
    command.current_dir(dir).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > LONGEST {
            child.kill().unwrap();
            return Some("timeout".to_owned());
        }
        thread::sleep(Duration::from_millis(5));
    };
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    let good = matches!(status.code(), Some(0..=2)) && !said.contains("panicked");
    (!good).then(|| format!("{status}: {said}"))
}
