//! Fault injection: every file call that can fail fails once (full disk, I/O error, short read or
//! write, interruption). The command exits with 0 and the complete new output, or with 1 and the
//! old one, and leaves no other file. `killed` has the same with a process that dies.

mod killed;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::LazyLock,
};

use tempfile::TempDir;

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const EINTR: i32 = 4;
const SHORT: i32 = 0;
/// The first `EACH` calls of a kind fail one by one; of the rest, about as many, evenly spaced.
const EACH: u64 = 12;

/// Returns the library that injects faults, which the first test builds for all: a program that starts
/// while it is written would run without it. `None` without a C compiler.
fn shim() -> Option<PathBuf> {
    static SHIM: LazyLock<Option<PathBuf>> = LazyLock::new(build_shim);
    SHIM.clone()
}

fn build_shim() -> Option<PathBuf> {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/shim.c");
    let compiler = std::env::var_os("CC").unwrap_or("cc".into());
    let mut command = Command::new(compiler);
    command
        .args(["-std=gnu11", "-Wall", "-Werror", "-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(source);
    let built = command.args(["-ldl"]).output().ok()?;
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(library)
}

/// A command with its input files and its output file.
struct Case {
    args: &'static [&'static str],
    inputs: &'static [(&'static str, &'static str)],
    output: &'static str,
}

const CASES: [Case; 6] = [
    Case {
        args: &["profile", "run", "--json", "out"],
        inputs: &[
            ("examples/run/run.json", "run/run.json"),
            ("examples/run/snapshot-0.safetensors", "run/snapshot-0.safetensors"),
            ("examples/run/snapshot-1.safetensors", "run/snapshot-1.safetensors"),
            ("examples/run/snapshot-2.safetensors", "run/snapshot-2.safetensors"),
        ],
        output: "out",
    },
    Case {
        args: &["profile", "in.json", "--targets", "out"],
        inputs: &[("data/versions/run-1.json", "in.json")],
        output: "out",
    },
    Case {
        args: &["analyze", "in.npz", "--html", "out"],
        inputs: &[("fuzz/seeds/npz/stored.npz", "in.npz")],
        output: "out",
    },
    Case {
        args: &["trace", "convert", "in.traceg", "out.warps"],
        inputs: &[("crates/trace/tests/vectoradd/kernel-1.traceg", "in.traceg")],
        output: "out.warps",
    },
    Case {
        args: &["simulate", "in.warps", "--spec", "in.toml", "--json", "out"],
        inputs: &[("data/versions/trace-1.warps", "in.warps"), ("specs/h200.toml", "in.toml")],
        output: "out",
    },
    Case {
        args: &["unpack", "in.safetensors", "--out", "out.safetensors"],
        inputs: &[("data/versions/model-2/model.safetensors", "in.safetensors")],
        output: "out.safetensors",
    },
];

/// Copies the inputs of a case and an old output into a folder.
fn place(case: &Case, dir: &Path) {
    for (from, to) in case.inputs {
        let to = dir.join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(from), to).unwrap();
    }
    fs::write(dir.join(case.output), "old").unwrap();
}

fn run(case: &Case, dir: &Path, shim: &Path, fault: &str) -> Output {
    let whole = |arg: &&str| {
        let path = dir.join(arg);
        if path.exists() { path.into_os_string() } else { arg.into() }
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_buddy"));
    command.args(case.args.iter().map(whole)).stdin(Stdio::null());
    command.env("LD_PRELOAD", shim).env("FAULT_DIR", dir).env("FAULT", fault);
    command.env("FAULT_COUNTS", Path::new(env!("CARGO_TARGET_TMPDIR")).join("fault-counts"));
    command.output().unwrap()
}

fn counts() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(Path::new(env!("CARGO_TARGET_TMPDIR")).join("fault-counts")).unwrap();
    let row =
        |line: &str| line.split_once(' ').map(|(name, count)| (name.to_owned(), count.parse().unwrap()));
    text.lines().filter_map(row).collect()
}

/// Checks the files after a run with a fault; returns whether the run succeeded.
fn check(case: &Case, dir: &Path, output: &Output, reference: &[u8], fault: &str) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    let about = format!("{:?} with {fault}: {:?}: {said}", case.args, output.status.code());
    assert!(matches!(output.status.code(), Some(0 | 1)) && !said.contains("panicked"), "{about}");
    let (found, good) = (fs::read(dir.join(case.output)).unwrap(), output.status.success());
    assert!(if good { found == reference } else { found == b"old" }, "{about}: the output is neither");
    assert!(good || said.lines().count() == 1, "{about}");
    let left: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".part")), "{about}: {left:?}");
    good
}

#[test]
fn a_failing_file_call_leaves_the_old_output_or_the_whole_new_one() {
    let Some(shim) = shim() else {
        eprintln!("SKIPPED: no C compiler");
        return;
    };
    let mut failed = 0;
    for case in &CASES {
        let dir = TempDir::new().unwrap();
        place(case, dir.path());
        let output = run(case, dir.path(), &shim, "none");
        assert!(output.status.success(), "{:?}: {output:?}", case.args);
        let (reference, counts) = (fs::read(dir.path().join(case.output)).unwrap(), counts());
        assert!(counts["write"] > 0 && counts["open"] > 0, "the shim intercepts nothing: {counts:?}");
        for (kind, &count) in &counts {
            let step = (count / EACH).max(1);
            let numbers = (1..=count.min(EACH)).chain((EACH + 1..=count).step_by(step as usize));
            let errors: &[i32] = match kind.as_str() {
                "write" => &[ENOSPC, EIO, SHORT, EINTR],
                "read" => &[EIO, SHORT, EINTR],
                _ => &[EIO],
            };
            for (number, &error) in numbers.flat_map(|number| errors.iter().map(move |error| (number, error)))
            {
                let fault = format!("{kind}:{number}:{error}");
                place(case, dir.path());
                let output = run(case, dir.path(), &shim, &fault);
                let good = check(case, dir.path(), &output, &reference, &fault);
                let harmless = matches!(error, SHORT | EINTR);
                assert!(good || !harmless, "{fault} is not an error: {output:?}");
                failed += u32::from(!good);
            }
        }
    }
    assert!(failed > 50, "only {failed} faults were seen");
}
