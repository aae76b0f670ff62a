//! The injected library, from its first call to the record, with a fake driver and CUPTI that need
//! no GPU (`fake/driver.c`).

use std::{
    ffi::OsString,
    fs,
    os::unix::{fs::symlink, process::ExitStatusExt},
    path::Path,
    process::{Command, ExitStatus},
};

use buddy_codec::Bf16;
use buddy_core::Entry;
use buddy_inject::{Request, TrainedCodec, Watched, When, prepare, watch};
use serde_json::json;
use tempfile::TempDir;

fn compile(arguments: &[&str], source: &str, to: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake").join(source);
    let status = Command::new("cc")
        .args(["-O1", "-w"])
        .args(arguments)
        .arg(source)
        .arg("-o")
        .arg(to)
        .arg("-ldl")
        .status();
    assert!(status.expect("a C compiler").success());
}

/// Trained bf16, and a codec whose parameters are the size of its sample.
fn train(codec: &str, sample: &[Entry]) -> TrainedCodec {
    let block = if codec == "bf16" { Vec::new() } else { vec![sample.len() as u32, 0, 7] };
    let (window, bytes) = (u32::from(Bf16::train(sample).window()), 1 + sample.len() as u64);
    TrainedCodec { window, block, bytes, parameters: json!({ "codec": codec, "entries": sample.len() }) }
}

/// Watches the program with these arguments.
fn watched_all(arguments: &[&str], when: When, dump: bool) -> (TempDir, ExitStatus, Vec<Watched>) {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    compile(&["-shared", "-fPIC"], "driver.c", &at("libcuda.so.1"));
    compile(&[], "program.c", &at("program"));
    symlink(at("libcuda.so.1"), at("libcupti.so.13")).expect("a link");
    let mut libraries = OsString::from("LD_LIBRARY_PATH=");
    libraries.push(dir.path());
    let groups = [vec!["bpc".to_owned()], vec!["bf16".to_owned(), "table64".to_owned()]];
    let kernels = [(90, 0, b"bpc\0".to_vec()), (90, 1, b"bf16+table64\0".to_vec())];
    let mut command: Vec<OsString> = vec!["env".into(), libraries, at("program").into()];
    command.extend(arguments.iter().map(OsString::from));
    let request = Request {
        command,
        groups: groups.into(),
        kernels: kernels.into(),
        learning: ["bf16", "table64"].map(str::to_owned).into(),
        train,
        shape: (4, 2),
        when,
        dump: dump.then(|| at("dump")),
        accesses: false,
        log: true,
        folder: at("folder"),
    };
    fs::create_dir(at("folder")).expect("a folder");
    prepare(&request).expect("it is prepared");
    let (status, all) = watch(&request).expect("it is watched");
    (dir, status, all)
}

/// Watches the program for a number of launches; passes its output and exit code through.
fn watched(launches: &str, when: When, dump: bool) -> (TempDir, Watched) {
    let (dir, status, mut all) = watched_all(&[launches], when, dump);
    assert_eq!((status.code(), all.len()), (Some(3), 1));
    (dir, all.remove(0))
}

fn every_launch() -> When {
    When::Launches { kernel: String::new(), every: 1 }
}

#[test]
fn a_program_is_watched_from_its_first_launch_to_its_record() {
    let (dir, watched) = watched("1000", every_launch(), false);
    assert_eq!(
        (watched.totals.launches, watched.totals.allocations, watched.stopped.as_deref()),
        (1000, 2, None)
    );
    assert!(watched.taken > 60 && (10..20).contains(&watched.looks.len()), "{} taken", watched.taken);
    assert!(watched.ended.is_some(), "it ended by itself");
    let files = fs::read_dir(dir.path().join("folder")).expect("it is kept");
    let looks = files.filter(|file| {
        file.as_ref().is_ok_and(|file| file.path().extension().is_some_and(|one| one == "look"))
    });
    assert_eq!(looks.count(), watched.looks.len(), "what is dropped has no file");
    let record = watched.record().expect("something was seen");
    record.validate().expect("a whole record");
    assert_eq!((watched.card.as_str(), record.sizes.len()), ("Fake GPU", watched.looks.len()));
    // 157 entries, of which 40 are zero; bf16 is trained on the rest, the other codec on 19 runs of
    // 8.
    let first = &record.sizes[0]
        [record.run.allocations.iter().position(|one| one.bytes == 20000).expect("it is there")];
    assert_eq!(first.histograms["bpc"].classes, [40, 0, 0, 0, 0, 117]);
    assert_eq!(first.histograms["bf16"].classes, [40, 0, 0, 0, 117, 0]);
    assert_eq!(first.histograms["table64"].classes, [40, 0, 0, 117, 0, 0]);
    assert_eq!((first.parameter_bytes["bf16"], first.parameter_bytes["table64"]), (153, 153));
    assert_eq!(
        first.blocks["bpc"].counts(),
        [[40, 0, 0, 0, 0, 24], [0, 0, 0, 0, 0, 64], [0, 0, 0, 0, 0, 29]]
    );
}

#[test]
fn a_pool_is_seen_as_the_pieces_that_the_program_names() {
    let (_dir, watched) = watched("100", every_launch(), false);
    let record = watched.record().expect("something was seen");
    let sizes: Vec<u64> = record.run.allocations.iter().map(|one| one.bytes).collect();
    let names: Vec<&str> = record.run.allocations.iter().map(|one| one.name.as_str()).collect();
    assert!(names.contains(&"left") && names.contains(&"right") && !sizes.contains(&16384), "{names:?}");
    let right = names.iter().position(|name| *name == "right").expect("it is there");
    let last = record.sizes.last().expect("a snapshot");
    assert_eq!(last[right].histograms["bpc"].classes, [0, 0, 0, 0, 0, 32]);
    assert!(record.sizes[0][right].histograms.is_empty(), "it came later");
}

#[test]
fn full_snapshots_hold_the_bytes_of_their_moments() {
    let (dir, watched) = watched("30", every_launch(), true);
    let (from, to) = (dir.path().join("dump").join(&watched.name), dir.path().join("run"));
    assert_eq!(
        buddy_inject::collect(&watched, &from, &to).expect("files are moved"),
        2,
        "the pieces came later"
    );
    let run = buddy_snapshot::Run::open(&to).expect("a run");
    let arrays = run.snapshot(0).expect("a snapshot");
    let zeros = arrays[0].bytes().chunks(128).filter(|entry| entry.iter().all(|byte| *byte == 0)).count();
    assert_eq!((arrays.len(), arrays[0].bytes().len(), zeros), (1, 20000, 40));
    let learned = run.info().parameters["learned_codecs"].as_object().expect("what codecs learned");
    assert_eq!(
        learned[&run.info().allocations[0].name],
        json!([{ "codec": "bf16", "entries": 152 }, { "codec": "table64", "entries": 152 }])
    );
}

/// A pool whose left piece stays zero: codecs stay untrained for it, and the report suggests a
/// reason.
#[test]
fn an_all_zero_piece_is_reported_and_leaves_codecs_untrained() {
    let (_dir, watched) = watched("100", every_launch(), false);
    let record = watched.record().expect("something was seen");
    let left = record.run.allocations.iter().position(|one| one.name == "left").expect("it is there");
    let last = &record.sizes.last().expect("a snapshot")[left];
    assert_eq!(
        (last.histograms["table64"].classes, last.parameter_bytes["table64"]),
        ([32, 0, 0, 0, 0, 0], 1)
    );
    let text = buddy_inject::report(&watched);
    assert!(text.contains("1 allocation (0.0 MB) held nothing but zeros in every snapshot"), "{text}");
}

#[test]
fn a_process_that_becomes_another_program_has_a_record_of_each() {
    let (_dir, status, all) = watched_all(&["30", "again"], every_launch(), false);
    assert_eq!((status.code(), all.len()), (Some(3), 2));
    assert_eq!((all[0].pid, format!("{}-2", all[0].name)), (all[1].pid, all[1].name.clone()));
    assert!(all.iter().all(|one| one.record().is_some() && one.stopped.is_none()));
    assert_eq!(all.iter().map(|one| one.ended.is_some()).collect::<Vec<_>>(), [false, true]);
    assert_eq!(all[0].learned, all[1].learned, "each has its own codecs");
}

#[test]
fn a_crash_is_the_programs_own_and_keeps_what_was_seen() {
    let (_dir, status, all) = watched_all(&["1000", "abort"], every_launch(), false);
    assert_eq!((status.signal(), all.len()), (Some(6), 1));
    assert!((10..20).contains(&all[0].record().expect("it is kept").sizes.len()));
    assert!(buddy_inject::report(&all[0]).contains("the process did not end by itself"));
}
