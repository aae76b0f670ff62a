//! Runs read back as written, and each defect has its message.

use std::{fs, path::Path};

use buddy_core::Dtype;
use buddy_record::{AllocationInfo, RunInfo};
use buddy_snapshot::{Run, RunWriter, write_atomic};
use serde_json::{Map, json};
use tempfile::TempDir;

fn info() -> RunInfo {
    let allocation = |name: &str, bytes, dtype| AllocationInfo {
        name: name.to_owned(),
        call_site: "main.rs: setup".to_owned(),
        base: 0,
        bytes,
        dtype,
    };
    let parameters: Map<_, _> = [("seed".to_owned(), json!(42))].into_iter().collect();
    let allocations = vec![
        allocation("flags", 5, Dtype::U8),
        allocation("velocity", 24, Dtype::F64),
        allocation("w", 6, Dtype::Bf16),
    ];
    let mut info = RunInfo::new("demo", parameters, allocations);
    info.place_allocations();
    info
}

/// A run of two snapshots.
fn write(dir: &Path) {
    let mut writer = RunWriter::create(dir, info(), 2).unwrap();
    writer.write(10, &[&[1; 5], &[2; 24], &[3; 6]]).unwrap();
    writer.write(20, &[&[4; 5], &[5; 24], &[6; 6]]).unwrap();
}

#[test]
fn a_run_that_ended_before_its_description_of_a_snapshot_is_not_read_as_dumps() {
    let dir = TempDir::new().unwrap();
    let mut writer = RunWriter::create(dir.path(), info(), 2).unwrap();
    assert!(refuse(dir.path()).contains("snapshot"), "{}", refuse(dir.path()));
    let before = fs::read(dir.path().join("run.json")).unwrap();
    writer.write(10, &[&[1; 5], &[2; 24], &[3; 6]]).unwrap();
    assert!(Run::open(dir.path()).is_ok());
    // Killed between the snapshot and its description.
    fs::write(dir.path().join("run.json"), before).unwrap();
    assert!(refuse(dir.path()).contains("snapshot"), "{}", refuse(dir.path()));
}

fn refuse(dir: &Path) -> String {
    let message = Run::open(dir).expect_err("this must be refused").to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

/// Damages a written run and returns the error.
fn spoiled(spoil: impl FnOnce(&Path)) -> String {
    let dir = TempDir::new().unwrap();
    write(dir.path());
    spoil(dir.path());
    refuse(dir.path())
}

/// The same, with a text of `run.json` replaced.
fn edited(from: &str, to: &str) -> String {
    spoiled(|dir| {
        let text = fs::read_to_string(dir.join("run.json")).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(dir.join("run.json"), text.replacen(from, to, 1)).unwrap();
    })
}

#[test]
fn a_run_comes_back_as_it_was_written() {
    let dir = TempDir::new().unwrap();
    write(&dir.path().join("new/run"));
    let run = Run::open(&dir.path().join("new/run")).unwrap();
    assert_eq!(run.info().allocations, info().allocations);
    assert_eq!(run.info().parameters["seed"], 42);
    assert_eq!(run.info().snapshots.iter().map(|s| s.step).collect::<Vec<_>>(), [10, 20]);
    let arrays = run.snapshot(1).unwrap();
    assert_eq!(arrays.iter().map(|array| array.bytes()[0]).collect::<Vec<_>>(), [4, 5, 6]);
    assert_eq!(arrays[1].dtype, Dtype::F64);
}

#[test]
fn snapshots_are_what_the_formats_own_crate_reads() {
    let dir = TempDir::new().unwrap();
    write(dir.path());
    let file = fs::read(dir.path().join("snapshot-0.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    assert_eq!(tensors.tensor("velocity").unwrap().data(), [2; 24]);
    assert_eq!(tensors.tensor("w").unwrap().dtype(), safetensors::Dtype::BF16);
    for (_, tensor) in tensors.iter() {
        let offset = tensor.data().as_ptr() as usize - file.as_ptr() as usize;
        assert_eq!(offset % (tensor.dtype().bitsize() / 8), 0);
    }
}

#[test]
fn a_broken_run_says_what_is_broken() {
    assert!(
        edited("\"velocity\"", "\"speed\"").contains("allocation \"speed\" is missing from this snapshot")
    );
    assert!(
        edited("\"bytes\": 24", "\"bytes\": 32")
            .contains("has 24 bytes in this snapshot; in the run it has 32")
    );
    assert!(edited("\"f64\"", "\"i64\"").contains("is f64 in this snapshot; in the run it is i64"));
    assert!(edited("\"velocity\"", "\"w\"").contains("two allocations are named \"w\""));
    assert!(edited("\"f64\"", "\"f65\"").contains("not a valid run.json file: unknown variant"));
    assert!(edited("\"version\": 1", "\"version\": 9").contains("the run has version 9"));
    assert!(
        edited("snapshot-1.safetensors", "../x").contains("is not the name of a file in the run's directory")
    );
    assert!(edited("snapshot-1.safetensors", "/dev/zero").contains("is not the name of a file"));
    assert!(edited("\"program\"", "\"programme\"").contains("unknown field"));
}

#[test]
fn a_broken_snapshot_says_what_is_broken() {
    let cut = |dir: &Path| {
        let file = fs::File::options().write(true).open(dir.join("snapshot-1.safetensors")).unwrap();
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    };
    assert!(
        spoiled(cut).contains("snapshot-1.safetensors: flags: not a valid .safetensors file: its offsets")
    );
    let lost = |dir: &Path| fs::remove_file(dir.join("snapshot-0.safetensors")).unwrap();
    assert!(spoiled(lost).contains("snapshot-0.safetensors: No such file"));
    let half_json = |dir: &Path| fs::write(dir.join("run.json"), "{\"version\": 1,").unwrap();
    assert!(spoiled(half_json).contains("not a valid run.json file: EOF"));
}

#[test]
fn empty_runs_are_none() {
    let dir = TempDir::new().unwrap();
    assert!(refuse(dir.path()).contains("has neither run.json nor dumps"));
    assert!(refuse(&dir.path().join("missing")).contains("No such file"));
    let text =
        r#"{"version":1,"program":"p","allocations":[{"name":"a","bytes":4,"dtype":"f32"}],"snapshots":[]}"#;
    fs::write(dir.path().join("run.json"), text).unwrap();
    assert!(refuse(dir.path()).ends_with("the run has no snapshots"));
}

#[test]
fn a_writer_refuses_what_it_cannot_keep() {
    let dir = TempDir::new().unwrap();
    let create = |info: RunInfo, snapshots| RunWriter::create(&dir.path().join("r"), info, snapshots);
    let mut huge = info();
    huge.allocations[0].bytes = 1 << 60;
    let error = create(huge, 10).unwrap_err().to_string();
    assert!(error.contains("bytes are to be written, but only"), "{error}");
    assert!(!dir.path().join("r").exists(), "nothing was made");
    let mut writer = create(info(), 1).unwrap();
    let error = writer.write(0, &[&[1; 5], &[2; 16], &[3; 6]]).unwrap_err().to_string();
    assert_eq!(error, "allocation \"velocity\" has 16 bytes in this snapshot; in the run it has 24");
    assert_eq!(
        writer.write(0, &[]).unwrap_err().to_string(),
        "0 arrays were given for a snapshot of 3 allocations"
    );
    writer.write(0, &[&[1; 5], &[2; 24], &[3; 6]]).unwrap();
    assert!(create(info(), 1).unwrap_err().to_string().contains("another process is writing"));
    drop(writer);
    assert!(create(info(), 1).unwrap_err().to_string().ends_with("give a new one for a new run"));
}

#[test]
fn raw_dumps_are_a_run() {
    let dir = TempDir::new().unwrap();
    for (snapshot, byte) in [("snapshot-2", 2u8), ("snapshot-10", 10)] {
        fs::create_dir(dir.path().join(snapshot)).unwrap();
        fs::write(dir.path().join(snapshot).join("velocity.f64"), [byte; 16]).unwrap();
        fs::write(dir.path().join(snapshot).join("heap"), [byte; 3]).unwrap();
    }
    fs::write(dir.path().join(".hidden"), "x").unwrap();
    let run = Run::open(dir.path()).unwrap();
    assert_eq!(run.info().snapshots.iter().map(|s| s.step).collect::<Vec<_>>(), [2, 10]);
    let arrays = run.snapshot(1).unwrap();
    assert_eq!((arrays[0].name.as_str(), arrays[0].dtype), ("heap", Dtype::U8));
    assert_eq!(
        (arrays[1].name.as_str(), arrays[1].dtype, arrays[1].bytes()[0]),
        ("velocity.f64", Dtype::F64, 10)
    );
    let flat = Run::open(&dir.path().join("snapshot-2")).unwrap();
    assert_eq!(flat.snapshot(0).unwrap()[1].bytes(), [2; 16]);
}

#[test]
fn broken_dumps_are_refused() {
    let dir = TempDir::new().unwrap();
    let make = |path: &str, bytes: &[u8]| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    make("snapshot-0/a", &[1; 8]);
    make("snapshot-1/a", &[1; 9]);
    assert!(refuse(dir.path()).contains("allocation \"a\" has 9 bytes in this snapshot"));
    make("snapshot-1/a", &[1; 8]);
    make("snapshot-1/b", &[1; 8]);
    assert!(refuse(dir.path()).contains("this snapshot has \"b\", which is no allocation of the run"));
    make("other/a", &[1; 8]);
    assert!(refuse(dir.path()).contains("the directory \"other\" is no snapshot"));
    make("loose", &[1; 8]);
    assert!(refuse(dir.path()).contains("both files and directories"));
}

#[test]
fn a_failed_write_leaves_what_was_there() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("out.json");
    write_atomic(&path, |out| std::io::Write::write_all(out, b"old")).unwrap();
    let error = write_atomic(&path, |out| {
        std::io::Write::write_all(out, b"new")?;
        Err(std::io::Error::other("interrupted"))
    });
    assert_eq!(error.unwrap_err().to_string(), format!("{}: interrupted", path.display()));
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn a_folder_has_one_writer() {
    let dir = TempDir::new().unwrap();
    let mut first = RunWriter::create(dir.path(), info(), 2).unwrap();
    let second = RunWriter::create(dir.path(), info(), 2).unwrap_err().to_string();
    assert!(second.contains("another process is writing to this directory"), "{second}");
    first.write(10, &[&[1; 5], &[2; 24], &[3; 6]]).unwrap();
    drop(first);
    let third = RunWriter::create(dir.path(), info(), 2).unwrap_err().to_string();
    assert!(third.contains("not empty"), "{third}");
    assert_eq!(Run::open(dir.path()).unwrap().info().snapshots.len(), 1);
}

#[test]
fn writing_to_a_symbolic_link_replaces_its_target_and_keeps_it() {
    let dir = TempDir::new().unwrap();
    let real = dir.path().join("real");
    fs::create_dir(&real).unwrap();
    for name in ["there", "dangling"] {
        let link = dir.path().join(name);
        std::os::unix::fs::symlink(format!("real/{name}"), &link).unwrap();
        fs::write(real.join("there"), "old").unwrap();
        write_atomic(&link, |out| std::io::Write::write_all(out, b"new")).unwrap();
        assert!(link.is_symlink() && fs::read(real.join(name)).unwrap() == b"new", "{name}");
    }
    let circle = dir.path().join("circle");
    std::os::unix::fs::symlink("circle", &circle).unwrap();
    assert!(write_atomic(&circle, |_| Ok(())).is_err() && circle.is_symlink());
}

#[test]
fn dumps_of_a_series_are_snapshots() {
    let dir = TempDir::new().unwrap();
    for (name, byte) in [("rho_00000.f32", 0u8), ("rho_00100.f32", 1), ("u_00000.f32", 2), ("u_00100.f32", 3)]
    {
        fs::write(dir.path().join(name), [byte; 8]).unwrap();
    }
    let run = Run::open(dir.path()).unwrap();
    assert_eq!(run.info().snapshots.iter().map(|s| s.step).collect::<Vec<_>>(), [0, 100]);
    let arrays = run.snapshot(1).unwrap();
    let told: Vec<_> = arrays.iter().map(|a| (a.name.as_str(), a.dtype, a.bytes()[0])).collect();
    assert_eq!(told, [("rho", Dtype::F32, 1), ("u", Dtype::F32, 3)]);
    assert!(run.note().unwrap().contains("2 snapshots of 2 allocations"), "{:?}", run.note());

    let each = Run::open_dumps(dir.path(), Some(&"{name}".parse().unwrap()), None).unwrap();
    assert_eq!((each.info().snapshots.len(), each.info().allocations.len()), (1, 4));
    let wrong = Run::open_dumps(dir.path(), Some(&"{name}.dat".parse().unwrap()), None);
    assert!(wrong.unwrap_err().to_string().contains("fits no file"));
}

#[test]
fn a_step_of_a_series_without_one_dump_is_left_by_name() {
    let dir = TempDir::new().unwrap();
    for name in ["rho_00.f32", "rho_10.f32", "rho_20.f32", "u_00.f32", "u_20.f32"] {
        fs::write(dir.path().join(name), [0; 8]).unwrap();
    }
    let run = Run::open(dir.path()).unwrap();
    assert_eq!(run.info().snapshots.iter().map(|s| s.step).collect::<Vec<_>>(), [0, 20]);
    let [skipped] = &run.info().skipped[..] else { panic!("{:?}", run.info().skipped) };
    assert_eq!((skipped.name.as_str(), skipped.why.as_str()), ("step 10", "it has no dump of u"));
    // With fewer whole steps than others it is no series.
    fs::remove_file(dir.path().join("u_00.f32")).unwrap();
    assert_eq!(Run::open(dir.path()).unwrap().info().allocations.len(), 4);
}

/// As for a series of files: the step is left, and named.
#[test]
fn a_directory_without_one_dump_is_left_by_name() {
    let dir = TempDir::new().unwrap();
    for name in ["step_00/u.f32", "step_00/v.f32", "step_10/u.f32", "step_20/u.f32", "step_20/v.f32"] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, [0; 8]).unwrap();
    }
    for pattern in [None, Some("step_{step}/{name}.f32".parse().unwrap())] {
        let run = Run::open_dumps(dir.path(), pattern.as_ref(), None).unwrap();
        assert_eq!(run.info().snapshots.iter().map(|s| s.step).collect::<Vec<_>>(), [0, 20]);
        let [skipped] = &run.info().skipped[..] else { panic!("{:?}", run.info().skipped) };
        assert!(skipped.name == "step 10" && skipped.why.starts_with("it has no dump of v"), "{skipped:?}");
    }
    fs::remove_file(dir.path().join("step_00/v.f32")).unwrap();
    assert!(Run::open(dir.path()).unwrap_err().to_string().contains("\"v.f32\""), "most steps lack it");
}

#[test]
fn a_zarr_store_among_dumps_is_refused_by_name() {
    let dir = TempDir::new().unwrap();
    for step in ["step_0", "step_1"] {
        fs::create_dir(dir.path().join(step)).unwrap();
        fs::write(dir.path().join(step).join("zarr.json"), "{}").unwrap();
    }
    let error = Run::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("step_0: this is a Zarr store among dumps; give it by name"), "{error}");
}

#[test]
fn directories_of_steps_are_snapshots_and_a_pattern_reads_them_too() {
    let dir = TempDir::new().unwrap();
    for step in ["step_00000", "step_00020"] {
        fs::create_dir(dir.path().join(step)).unwrap();
        fs::write(dir.path().join(step).join("p.raw"), [1; 8]).unwrap();
    }
    let run = Run::open_dumps(dir.path(), None, Some(Dtype::F64)).unwrap();
    assert_eq!(run.info().snapshots.iter().map(|s| s.step).collect::<Vec<_>>(), [0, 20]);
    assert_eq!(
        (run.info().allocations[0].name.as_str(), run.info().allocations[0].dtype),
        ("p.raw", Dtype::F64)
    );
    let pattern = "step_{step}/{name}.raw".parse().unwrap();
    assert_eq!(Run::open_dumps(dir.path(), Some(&pattern), None).unwrap().info().allocations[0].name, "p");
}

/// A model's shards, a single file and its only tensor keep their names.
#[test]
fn a_model_and_a_file_are_one_snapshot() {
    let dir = TempDir::new().unwrap();
    let shard = |number: usize| dir.path().join(format!("model-0000{number}-of-00002.safetensors"));
    for number in 1..=2 {
        let header = format!(r#"{{"w.{number}":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}}}"#);
        let length = (header.len() as u64).to_le_bytes();
        fs::write(shard(number), [&length, header.as_bytes(), &[7; 8]].concat()).unwrap();
    }
    fs::write(dir.path().join("config.json"), "{}").unwrap();
    let names = |run: &Run| run.info().allocations.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    let model = Run::open(dir.path()).unwrap();
    assert_eq!((names(&model), model.info().snapshots.len()), (vec!["w.1".to_owned(), "w.2".to_owned()], 1));
    assert_eq!(model.note().unwrap(), "the files of a model: 1 snapshot of 2 allocations");
    let file = Run::open(&shard(2)).unwrap();
    assert_eq!((names(&file), file.note()), (vec!["w.2".to_owned()], None));
    assert_eq!(file.snapshot(0).unwrap()[0].bytes(), [7; 8]);
}
