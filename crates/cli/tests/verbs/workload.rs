//! `buddy workload` end to end: its list, its files, its errors, and the state after an
//! interruption.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use buddy_record::{Record, RunRecord};
use buddy_snapshot::Run;
use tempfile::TempDir;

use crate::common::{buddy, command};

fn run(name: &str, scale: &str, out: &Path, more: &[&str]) -> crate::common::Run {
    let out = out.to_str().unwrap();
    buddy(&[&["workload", "run", name, "--scale", scale, "--out", out], more].concat())
}

/// Returns the message of a run that must end with this code, one line and empty stdout.
fn refused(code: i32, run: &crate::common::Run) -> &str {
    assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    &run.stderr
}

#[test]
fn the_list() {
    let run = buddy(&["workload", "list"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(run.stdout);
}

#[test]
fn a_run_is_ten_snapshots_that_can_be_read() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("ep");
    let first = run("ep", "1MB", &out, &[]);
    assert_eq!((first.code, first.stderr.as_str()), (0, ""));
    assert!(first.stdout.contains("  pass  ") && !first.stdout.contains("FAIL"), "{}", first.stdout);
    assert!(first.stdout.ends_with(&format!("  wrote {}\n", out.display())));
    let read = Run::open(&out).unwrap();
    assert_eq!(read.info().snapshots.len(), 10);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 11, "nothing but run.json and the snapshots");
    let analysis = buddy(&["analyze", out.join("snapshot-9.safetensors").to_str().unwrap()]);
    assert!(analysis.stdout.contains("xx"), "{}", analysis.stdout);
}

#[test]
fn a_record_has_no_bytes_and_is_the_same_every_time() {
    let dir = TempDir::new().unwrap();
    let text = |name: &str| {
        let out = dir.path().join(name);
        let run = run("ilbdc", "1MB", &out, &["--record", "--seed", "5"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
        fs::read_to_string(out.join("ilbdc.json")).unwrap()
    };
    let json = text("a");
    assert_eq!(json, text("b"));
    assert!(json.len() < 200_000, "{} bytes", json.len());
    let record = Record::<RunRecord>::from_json(&json).unwrap();
    record.data.validate().unwrap();
    assert_eq!((record.seed, record.data.sizes.len()), (Some(5), 10));
    assert!(record.data.sizes.iter().flatten().all(|sizes| sizes.histograms.contains_key("bpc")));
    let again = run("ilbdc", "1MB", &dir.path().join("a"), &["--record"]);
    assert!(refused(1, &again).contains("ilbdc.json: exists already"));
}

#[test]
fn all_workloads_run() {
    let dir = TempDir::new().unwrap();
    let run = run("all", "1MB", dir.path(), &["--record"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 10);
}

#[test]
fn wrong_usage_lists_valid_values() {
    let dir = TempDir::new().unwrap();
    let wrong = |name, scale| {
        let run = run(name, scale, &dir.path().join("x"), &[]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""));
        run.stderr
    };
    assert!(
        wrong("gc", "1MB").contains("[possible values: palm, ep, cg, seismic, sp, csp, ilbdc, bt, hpgmg")
    );
    assert!(wrong("cg", "much").contains("(0.25, 1) or a size (16MB, 1GiB)"));
    assert!(wrong("cg", "0").contains("it must be more than 0"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn impossible_runs_fail_with_one_line() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("x");
    assert!(
        refused(1, &run("cg", "2", &out, &[])).contains("from 1MB to 1, the paper's 1.23 GB, not 2.46 GB")
    );
    assert!(refused(1, &run("all", "2GB", &out, &[])).starts_with("buddy: cg: the scale must be"));
    fs::write(dir.path().join("file"), "").unwrap();
    assert!(refused(1, &run("ep", "1MB", &dir.path().join("file"), &[])).contains("not a directory"));
    assert!(!out.exists());
}

#[test]
fn a_non_empty_directory_is_left_alone() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("mine"), "mine").unwrap();
    assert!(refused(1, &run("ep", "1MB", dir.path(), &[])).contains("is not empty"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// The file system of /proc is full.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_noticed_before_the_program_runs() {
    let run = run("ep", "1MB", Path::new("/proc/buddy"), &[]);
    let message = refused(1, &run);
    assert!(message.contains("/proc/buddy") && message.contains("only 0 are free"), "{message}");
}

#[test]
#[cfg(unix)]
fn an_interrupted_run_leaves_whole_snapshots() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("sp");
    let args = ["workload", "run", "sp", "--scale", "16MB", "--out", out.to_str().unwrap()];
    let mut child = command(&args).spawn().unwrap();
    let started = Instant::now();
    while Run::open(&out).is_err() {
        assert!(started.elapsed() < Duration::from_secs(300), "no snapshot came");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let found = Run::open(&out).unwrap().info().snapshots.len();
    assert!((1..10).contains(&found), "{found} snapshots");
    let half = fs::read_dir(&out).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().ends_with(".part")
    });
    assert_eq!(half.count(), 0);
}

/// Every verb returns the interrupt code, including those that stop gracefully and write partial
/// results.
#[test]
#[cfg(unix)]
fn a_graceful_stop_returns_the_interrupt_code() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let mut reproduce = command(&["reproduce", "--quick", "--out", out.to_str().unwrap()]);
    let mut child = reproduce.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains('%'), "the work has started: {line}");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(rest.contains("interrupted"), "{rest}");
}
