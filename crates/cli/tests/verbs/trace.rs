//! `buddy trace` end to end.

use crate::common::buddy;

/// Four blocks of a real vectorAdd trace.
const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/vectoradd");

fn folder(name: &str) -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-{name}"));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Returns the simulation result of a trace, without its name.
fn cycles(what: &str) -> String {
    let run = buddy(&["simulate", what, "--spec", "v100"]);
    assert_eq!((run.stderr.as_str(), run.code), ("", 0));
    // The first line names the trace.
    run.stdout.split_once('\n').expect("a line for each figure").1.to_owned()
}

#[test]
fn a_program_goes_from_text_to_packed_and_back() {
    let folder = folder("folder");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (packed, text, container) = (path("packed"), path("text"), path("container"));
    let steps =
        [(TRACE, &packed, "warps"), (packed.as_str(), &text, "traceg"), (&packed, &container, "tracez")];
    for (from, to, format) in steps {
        let run = buddy(&["trace", "convert", from, to, "--to", format]);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    let list = |folder: &str| std::fs::read_to_string(format!("{folder}/kernelslist.g")).unwrap();
    assert!(list(&packed).starts_with("MemcpyHtoD,0x7fb0fc400000,200000\n"), "{}", list(&packed));
    assert!(list(&packed).ends_with("kernel-3.warps\n") && list(&text).ends_with("kernel-3.traceg\n"));
    let first = cycles(TRACE);
    assert!(list(&container).ends_with("kernel-3.tracez\n"));
    assert_eq!([cycles(&packed), cycles(&text), cycles(&container)], [first.clone(), first.clone(), first]);
    let again = buddy(&["trace", "convert", TRACE, &packed]);
    assert!(again.code == 1 && again.stderr.contains("exists already"), "{}", again.stderr);
}

#[test]
fn the_file_name_decides_the_format() {
    let folder = folder("kernel");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let from = format!("{TRACE}/kernel-1.traceg.xz");
    assert_eq!(buddy(&["trace", "convert", &from, &path("k.warps")]).code, 0);
    assert_eq!(buddy(&["trace", "convert", &path("k.warps"), &path("k.traceg")]).code, 0);
    let info = |file: &str| buddy(&["trace", "info", file]).stdout;
    let lines = |text: &str, from: usize| text.lines().skip(from).map(str::to_owned).collect::<Vec<_>>();
    let (packed, text) = (info(&path("k.warps")), info(&path("k.traceg")));
    assert!(packed.contains("warp instructions  489\n") && packed.contains("LDG.E"), "{packed}");
    assert_eq!(lines(&packed, 7), lines(&text, 7), "the same opcodes");
    assert_eq!(cycles(&path("k.warps")), cycles(&from));
    let wrong = buddy(&["trace", "convert", &from, &path("k.txt")]);
    assert!(wrong.stderr.contains("end in .warps, .traceg, .traceg.xz or .tracez"), "{}", wrong.stderr);
    std::fs::write(path("bad.warps"), b"BUDDYWRP").unwrap();
    let wrong = buddy(&["trace", "convert", &path("bad.warps"), &path("out.traceg")]);
    assert!(wrong.code == 1 && wrong.stderr.contains("bad.warps: the file ends inside"), "{}", wrong.stderr);
}
