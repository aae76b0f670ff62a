//! The help texts, as a reader sees them. `INSTA_UPDATE=always cargo test -p buddy` writes the snapshots again.

mod common;

use buddy_codec::CodecKind;
use common::buddy;

/// A help text; the list of codecs, which grows, stands as `CODECS`.
fn help(args: &[&str]) -> String {
    let run = buddy(args);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{args:?}");
    let codecs = CodecKind::ALL.map(CodecKind::name).join(", ");
    run.stdout.replace(&format!("[possible values: {codecs}]"), "[possible values: CODECS]")
}

#[test]
fn the_command() {
    insta::assert_snapshot!(help(&["--help"]));
}

#[test]
fn inspect() {
    insta::assert_snapshot!(help(&["inspect", "--help"]));
}

#[test]
fn analyze() {
    insta::assert_snapshot!(help(&["analyze", "--help"]));
}

#[test]
fn workload_run() {
    insta::assert_snapshot!(help(&["workload", "run", "--help"]));
}

#[test]
fn simulate() {
    insta::assert_snapshot!(help(&["simulate", "--help"]));
}

#[test]
fn the_version_is_the_workspaces() {
    assert_eq!(help(&["--version"]), format!("buddy {}\n", env!("CARGO_PKG_VERSION")));
}
