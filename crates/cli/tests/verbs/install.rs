//! Completions and manual pages.

use crate::common::{buddy, buddy_with};

/// Returns the verbs that `buddy --help` lists.
fn verbs() -> Vec<String> {
    let help = buddy(&["--help"]).stdout;
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let lines = list.lines().take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("    "));
    lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn every_shell_completes_every_verb() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = buddy(&["completions", shell]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{shell}");
        for verb in verbs() {
            assert!(run.stdout.contains(&verb), "{shell} does not complete {verb}");
        }
        assert!(run.stdout.contains("device-memory"), "{shell} does not complete options");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let run = buddy_with(&["completions", "zsh"], &[], Some(1));
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
}

#[test]
fn every_verb_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("share/man1");
    assert_eq!(buddy(&["man", man.to_str().unwrap()]).code, 0);
    for verb in verbs().iter().filter(|verb| *verb != "help") {
        let page = std::fs::read_to_string(man.join(format!("buddy-{verb}.1"))).expect(verb);
        assert!(page.contains(".TH") && page.contains(".SH OPTIONS"), "{page}");
    }
    let page = std::fs::read_to_string(man.join("buddy.1")).unwrap();
    assert!(page.contains(".SH EXAMPLES\n.nf\n\\&  buddy "), "{page}");
}

#[test]
fn error_names_a_folder_that_cannot_be_created() {
    let run = buddy(&["man", "/dev/null/man1"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("cannot write manual pages to /dev/null/man1"), "{}", run.stderr);
}
