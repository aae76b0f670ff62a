//! Help texts. `INSTA_UPDATE=always cargo test -p buddy-cli` updates the snapshots.

use buddy_codec::CodecKind;

use crate::common::buddy;

/// Returns a help text with the list of codecs, which grows, replaced by `CODECS`.
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

/// Returns the verbs listed by a help text.
fn verbs(text: &str) -> Vec<String> {
    let list =
        text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_verb_is_in_the_documentation() {
    let page = include_str!("../../../../docs/reference/commands.md");
    for verb in verbs(&help(&["--help"])) {
        assert!(page.contains(&format!("`{verb}`")), "docs/reference/commands.md has no {verb}");
    }
}

#[test]
fn every_verb_has_examples_and_none_needs_the_repository() {
    let all = verbs(&help(&["--help"]));
    assert!(all.len() > 10 && all.contains(&"simulate".to_owned()), "{all:?}");
    for verb in &all {
        let text = help(&[verb, "--help"]);
        let (_, examples) = text.split_once("Examples:").unwrap_or_else(|| panic!("{verb} has no examples"));
        for folder in ["examples/", "crates/", "docs/", "specs/"] {
            assert!(!examples.contains(folder), "{verb}: {examples}");
        }
    }
}

#[test]
fn the_version_is_the_workspaces() {
    assert_eq!(help(&["--version"]), format!("buddy {}\n", env!("CARGO_PKG_VERSION")));
}
