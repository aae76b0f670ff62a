//! `buddy watch` and `buddy profile -- PROGRAM` keep the program's output, exit code and signals.

use crate::common::{buddy, buddy_with, command};

/// Returns whether the message reports a missing GPU, or on a GPU that the program did not use it.
fn reports_no_gpu_memory(stderr: &str) -> bool {
    stderr.contains("the program runs unwatched") || stderr.contains("no GPU memory was observed")
}

#[test]
fn output_and_exit_code_are_the_programs() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("watch.json");
    for verb in [&["watch", "--out", out.to_str().unwrap()][..], &["profile"]] {
        let args = [verb, &["--", "sh", "-c", "echo to stdout; echo to stderr >&2; exit 7"]].concat();
        let run = buddy(&args);
        assert_eq!((run.code, run.stdout.as_str()), (7, "to stdout\n"), "{args:?}");
        assert!(
            run.stderr.starts_with("to stderr\n") || run.stderr.contains("\nto stderr\n"),
            "{}",
            run.stderr
        );
        assert_eq!(
            run.stderr.lines().filter(|line| reports_no_gpu_memory(line)).count(),
            1,
            "once: {}",
            run.stderr
        );
    }
    assert!(!out.exists(), "nothing was seen");
}

/// A program that succeeds unobserved leaves no profile, which is an error.
#[test]
fn a_profile_of_nothing_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let targets = dir.path().join("targets.toml");
    let run = buddy(&["profile", "--targets", targets.to_str().unwrap(), "--", "echo", "ran"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, "ran\n"));
    assert!(run.stderr.lines().any(reports_no_gpu_memory), "{}", run.stderr);
    assert!(run.stderr.contains("there is nothing to profile, so nothing was written"), "{}", run.stderr);
    assert!(!targets.exists());
}

#[test]
fn exit_code_of_a_signal_is_that_of_shells() {
    assert_eq!(buddy(&["watch", "--", "sh", "-c", "kill -TERM $$"]).code, 143);
}

#[test]
fn error_names_a_program_that_cannot_run() {
    let run = buddy(&["watch", "--", "./no-such-program"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("cannot run ./no-such-program"), "{}", run.stderr);
    assert_eq!(buddy(&["watch"]).code, 2, "a program is needed");
    assert_eq!(buddy(&["profile"]).code, 2, "a run or a program is needed");
    assert_eq!(buddy(&["profile", "examples/run", "--", "true"]).code, 2, "not both");
}

#[test]
fn input_is_the_programs() {
    let run = buddy_with(&["watch", "--", "sh", "-c", "read line; echo \"got $line\""], b"this\n", None);
    assert_eq!((run.code, run.stdout.as_str()), (0, "got this\n"));
}

#[test]
fn an_injected_tool_is_not_replaced() {
    let mut run = command(&["watch", "--", "sh", "-c", "echo $CUDA_INJECTION64_PATH"]);
    let output = run.env("CUDA_INJECTION64_PATH", "libother.so").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "libother.so\n");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("is set already, to libother.so; the program runs unwatched"), "{stderr}");
}

#[test]
fn an_existing_run_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("run.json"), "{}").unwrap();
    let run = buddy(&["watch", "--dump", dir.path().to_str().unwrap(), "--", "echo", "ran"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "before the program runs");
    assert!(run.stderr.contains("contains a run already; give a new folder"), "{}", run.stderr);
}
