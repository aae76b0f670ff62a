//! `buddy gpu` without a GPU: one line and exit code 1.

use std::{fs, path::PathBuf};

use crate::common::buddy;

#[test]
fn without_a_gpu_each_verb_fails_with_one_line() {
    if buddy_cuda::Gpu::open(0).is_ok() {
        println!("skipped: this machine has a GPU");
        return;
    }
    for verb in ["info", "test", "bench", "attention", "large", "cg", "compressible"] {
        let run = buddy(&["gpu", verb]);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.lines().count()), (1, "", 1), "{}", run.stderr);
        assert!(run.stderr.starts_with("buddy: no "), "{}", run.stderr);
    }
}

/// Arrays that are not measured are named, with or without a GPU.
#[test]
fn compressible_memory_names_what_it_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    write("large.f32", &[0; 8192]);
    write("small.f32", &[0; 64]);
    write("picture.tif", b"II");
    let run = buddy(&["gpu", "compressible", folder.path().to_str().unwrap(), "--gib", "0.1"]);
    for what in ["skipped small.f32 of ", ": it has 64 bytes, fewer than 4096", "picture.tif: the .f32 files"]
    {
        assert!(run.stderr.contains(what), "{}", run.stderr);
    }
    assert!(!run.stderr.contains("large.f32"), "{}", run.stderr);
}

/// Impossible values are rejected before a GPU is opened.
#[test]
fn impossible_sizes_are_rejected() {
    for (arguments, why) in [
        ("large --cells 100,100,100", "a multiple of 64"),
        ("large --cells 0,0,0", "a multiple of 64"),
        ("large --times nan", "is not a number from 0.001 to 100"),
        ("large --share 200", "is not a number from 5 to 95"),
        ("large --room inf", "is not a number from 0 to 1000000"),
        ("soak --gb 0", "is not a number from 0.001 to"),
        ("bench --gib 0", "is not a number from 0.001 to"),
        ("compressible --gib 0", "is not a number from 0.01 to"),
        ("cg --tolerance nan", "is not a number from"),
    ] {
        let words: Vec<&str> = std::iter::once("gpu").chain(arguments.split(' ')).collect();
        let run = buddy(&words);
        assert!(run.code == 2 && run.stderr.contains(why), "{arguments}: {}", run.stderr);
    }
}

/// GPU records are drawn without a GPU; the pictures of docs/notes/larger-than-memory.md are
/// these.
#[test]
fn a_run_of_the_wave_is_drawn_from_its_record() {
    let docs = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("large");
    fs::create_dir_all(&folder).unwrap();
    for name in ["fit", "1.6x", "scarce"] {
        let record = docs.join(format!("records/gpu-large-{name}-h200-2026-11-16.json"));
        let (svg, page) = (folder.join(format!("large-{name}")), folder.join("large.html"));
        let paths = [&record, &svg, &page].map(|path| path.to_str().unwrap());
        let run = buddy(&["gpu", "large", "--from", paths[0], "--svg", paths[1], "--html", paths[2]]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        assert!(run.stdout.contains("packed: ") && fs::read_to_string(&page).unwrap().contains("</svg>"));
        for chart in 1..=3 {
            let file = format!("large-{name}-{chart}.svg");
            let drawn = fs::read_to_string(folder.join(&file)).unwrap();
            // The page does not use every chart.
            if let Ok(shown) = fs::read_to_string(docs.join("img").join(&file)) {
                assert!(shown == drawn, "docs/img/{file}: draw it anew with buddy gpu large --from");
            }
        }
    }
}
