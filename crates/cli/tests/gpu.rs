//! `buddy gpu` where there is no GPU: one line, and exit code 1.

mod common;

use common::buddy;

#[test]
fn without_a_gpu_each_verb_says_so_in_one_line() {
    if buddy_cuda::Gpu::open(0).is_ok() {
        println!("skipped: this machine has a GPU");
        return;
    }
    for verb in ["info", "test", "bench", "attention", "large", "cg"] {
        let run = buddy(&["gpu", verb]);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.lines().count()), (1, "", 1), "{}", run.stderr);
        assert!(run.stderr.starts_with("buddy: no "), "{}", run.stderr);
    }
}
