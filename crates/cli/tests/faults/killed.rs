//! The command is killed before each write, rename and fsync; what it leaves is then used as a user
//! would. `BUDDY_KILLS` sets the most calls of a kind that are tried.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

use crate::shim;

const SIGKILL: i32 = 9;

fn buddy(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_buddy"));
    command.current_dir(dir).args(args);
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    buddy(dir, args).output().unwrap()
}

/// Runs a command that must succeed; returns its output.
fn good(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns whether a command succeeds; if not, it must say why in one line.
fn succeeds(dir: &Path, args: &[&str]) -> bool {
    let output = run(dir, args);
    let said = String::from_utf8_lossy(&output.stderr);
    let clean = output.status.code() == Some(1) && said.starts_with("buddy: ") && said.lines().count() == 1;
    assert!(output.status.success() || clean, "{args:?}: {:?}: {said}", output.status);
    output.status.success()
}

/// Returns the files below a folder.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(
                files(&path)
                    .into_iter()
                    .map(|(name, bytes)| (Path::new(path.file_name().unwrap()).join(name), bytes)),
            );
        } else {
            found.insert(path.file_name().unwrap().into(), fs::read(&path).unwrap());
        }
    }
    found
}

/// Kills a command before up to `most` calls of each kind, each time in a new folder, and passes the
/// folder to `used`.
fn kill_at_each_call(most: u64, prepare: &dyn Fn(&Path), args: &[&str], used: &dyn Fn(&Path, &str)) {
    let Some(shim) = shim() else {
        eprintln!("SKIPPED: no C compiler");
        return;
    };
    let most = std::env::var("BUDDY_KILLS").map_or(most, |text| text.parse().unwrap());
    let begin = |fault: &str| {
        let (dir, counts) = (TempDir::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
        prepare(dir.path());
        let mut command = buddy(dir.path(), args);
        command.env("LD_PRELOAD", &shim).env("FAULT_DIR", dir.path()).env("FAULT", fault);
        // Relative paths are below the folder too.
        command.env("FAULT_RELATIVE", "1").env("FAULT_COUNTS", counts.path());
        let output = command.output().unwrap();
        (dir, output, fs::read_to_string(counts.path()).unwrap())
    };
    let (_, whole, counts) = begin("none");
    assert!(whole.status.success(), "{args:?}: {}", String::from_utf8_lossy(&whole.stderr));
    let mut killed = 0;
    for line in counts.lines() {
        let (kind, count) = line.split_once(' ').unwrap();
        let count: u64 = count.parse().unwrap();
        assert!(count > 0 || !["write", "rename", "fsync"].contains(&kind), "the shim sees no {kind}");
        if !["write", "rename", "fsync"].contains(&kind) {
            continue;
        }
        for number in (1..=count).step_by(count.div_ceil(most).max(1) as usize) {
            let fault = format!("{kind}:{number}:-{SIGKILL}");
            let (dir, output, _) = begin(&fault);
            assert!(
                output.status.success() || output.status.signal() == Some(SIGKILL),
                "{fault}: {output:?}"
            );
            killed += u64::from(!output.status.success());
            used(dir.path(), &format!("{} killed before {kind} {number} of {count}", args[0]));
        }
    }
    println!("{args:?}: killed {killed} times");
    assert!(killed > 3, "{args:?} was killed only {killed} times: {counts}");
}

/// Writes a folder of two shards, an index, a configuration and a tokenizer.
fn model(dir: &Path) {
    let plain = dir.join("plain");
    fs::create_dir(&plain).unwrap();
    for name in ["a", "b"] {
        let value = |i: u32| (0x3c00 + (i.wrapping_mul(2_654_435_761) >> 25) as u16) | ((i % 2) as u16) << 15;
        let values: Vec<u8> = (0..64 * 128).flat_map(|i| value(i).to_le_bytes()).collect();
        let header = format!(r#"{{"{name}":{{"dtype":"BF16","shape":[64,128],"data_offsets":[0,16384]}}}}"#);
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &values].concat();
        fs::write(plain.join(format!("{name}.safetensors")), bytes).unwrap();
    }
    let index = r#"{"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}"#;
    fs::write(plain.join("model.safetensors.index.json"), index).unwrap();
    fs::write(plain.join("config.json"), "{}").unwrap();
    fs::write(plain.join("tokenizer.json"), "{}").unwrap();
}

#[test]
fn a_killed_pack_leaves_a_folder_that_is_refused_or_whole_and_continues() {
    kill_pack(20, &["pack", "plain", "--out", "packed"]);
    kill_pack(8, &["pack", "plain", "--out", "packed", "--tight"]);
}

fn kill_pack(most: u64, args: &[&str]) {
    kill_at_each_call(most, &model, args, &|dir, about| {
        let plain = files(&dir.join("plain"));
        let whole = succeeds(dir, &["unpack", "packed", "--out", "first"]);
        assert_eq!(succeeds(dir, &["verify", "packed"]), whole, "{about}");
        assert!(!whole || files(&dir.join("first")) == plain, "{about}: other files came out");
        assert!(whole || !dir.join("first").exists(), "{about}: files of a partial model were written");
        if !whole && dir.join("packed/buddy.json").exists() {
            let said = String::from_utf8(run(dir, &["unpack", "packed", "--out", "first"]).stderr).unwrap();
            assert!(said.contains("packing did not finish here; run `buddy pack`"), "{about}: {said}");
        }
        good(dir, args);
        good(dir, &["verify", "packed"]);
        assert_eq!(files(&dir.join("packed")).len(), plain.len() + 1, "{about}: leftovers");
        good(dir, &["unpack", "packed", "--out", "second"]);
        assert_eq!(files(&dir.join("second")), plain, "{about}");
    });
}

#[test]
fn a_killed_unpack_leaves_whole_files_and_a_mark_that_some_are_missing() {
    kill_unpack(20, &["pack", "plain", "--out", "packed"], true);
    // Nothing else tells that a model without a configuration lacks a shard.
    kill_unpack(8, &["pack", "plain", "--out", "packed", "--tight"], false);
}

fn kill_unpack(most: u64, pack: &[&str], configured: bool) {
    let made = TempDir::new().unwrap();
    model(made.path());
    if !configured {
        fs::remove_file(made.path().join("plain/config.json")).unwrap();
    }
    good(made.path(), pack);
    let (plain, packed) = (files(&made.path().join("plain")), files(&made.path().join("packed")));
    let prepare = |dir: &Path| {
        fs::create_dir(dir.join("packed")).unwrap();
        packed.iter().for_each(|(name, bytes)| fs::write(dir.join("packed").join(name), bytes).unwrap());
    };
    let args = ["unpack", "packed", "--out", "back"];
    let (marked, used) = (Cell::new(0), Cell::new(0));
    kill_at_each_call(most, &prepare, &args, &|dir, about| {
        used.set(used.get() + 1);
        let mut left = files(&dir.join("back"));
        left.retain(|name, _| name.extension().is_none_or(|extension| extension != "part"));
        if left.remove(Path::new("buddy.unfinished")).is_some() {
            let said = String::from_utf8(run(dir, &["pack", "back", "--out", "again"]).stderr).unwrap();
            assert!(said.contains("unpacking did not finish here; run `buddy unpack`"), "{about}: {said}");
            marked.set(marked.get() + 1);
        } else {
            assert!(left.is_empty() || left == plain, "{about}: looks complete");
        }
        assert!(left.iter().all(|(name, bytes)| plain[name] == *bytes), "{about}: a partial file");
        // Transformers opens no folder without a configuration.
        let config = left.contains_key(Path::new("config.json"));
        assert!(!config || left == plain, "{about}: a configuration without all files");
        good(dir, &args);
        assert_eq!(files(&dir.join("back")), plain, "{about}");
    });
    assert!(marked.get() > 3 || used.get() == 0, "{} of {} are marked", marked.get(), used.get());
}

#[test]
fn a_killed_sweep_continues_to_the_same_table() {
    let prepare = |dir: &Path| {
        let plan =
            "[axes]\nprogram = \"stream\"\nsize = 1\nmode = [\"ideal\", \"buddy\"]\ntargets = \"2x\"\n";
        fs::write(dir.join("plan.toml"), plan).unwrap();
    };
    let (args, table) = (
        ["sweep", "plan.toml", "--store", "s"],
        ["sweep", "table", "plan.toml", "--store", "s", "--format", "csv"],
    );
    let reference = TempDir::new().unwrap();
    prepare(reference.path());
    good(reference.path(), &args);
    let reference = good(reference.path(), &table);
    kill_at_each_call(6, &prepare, &args, &|dir, about| {
        // A row of a partial sweep is one of the whole, or has no speed.
        let rows = String::from_utf8(run(dir, &table).stdout).unwrap();
        let known = |row: &&str| reference.contains(*row);
        let empty = |row: &&str| row.split(',').nth(1) == Some("");
        assert!(rows.lines().all(|row| known(&row) || empty(&row)), "{about}:\n{rows}");
        good(dir, &args);
        assert_eq!(good(dir, &table), reference, "{about}");
    });
}

#[test]
fn a_killed_workload_leaves_whole_snapshots_or_none() {
    let args = ["workload", "run", "ep", "--scale", "1MB", "--out", "ep"];
    kill_at_each_call(4, &|_| (), &args, &|dir, about| {
        // The record lists the snapshots that are whole: none at first.
        let record = fs::read_to_string(dir.join("ep").join("run.json")).unwrap_or_default();
        let left = record.contains(".safetensors");
        assert_eq!(succeeds(dir, &["profile", "ep"]), left, "{about}: a run without its record is no run");
        // A new folder is needed, and the error says so.
        assert!(!left || !succeeds(dir, &args), "{about}: snapshots were written over");
        let _ = fs::remove_dir_all(dir.join("ep"));
        good(dir, &args);
    });
}

#[test]
fn a_killed_reproduction_continues_to_the_same_page() {
    let args = ["reproduce", "--quick", "--only", "table2", "--out", "r"];
    let reference = TempDir::new().unwrap();
    good(reference.path(), &args);
    let summary = fs::read(reference.path().join("r/summary.md")).unwrap();
    kill_at_each_call(2, &|_| (), &args, &|dir, about| {
        let page = fs::read_to_string(dir.join("r/index.html")).unwrap_or_default();
        assert!(page.is_empty() || page.trim_end().ends_with("</html>"), "{about}: half a page");
        good(dir, &args);
        assert_eq!(fs::read(dir.join("r/summary.md")).unwrap(), summary, "{about}");
    });
}
