//! `buddy sweep` and `buddy specs` end to end.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use buddy_record::Record;
use buddy_sweep::Results;
use serde_json::Value;

use crate::common::{Run, buddy, command};

const PLAN: &str = "[axes]\nprogram = ['cg', 'stream']\nscale = '1MB'\nsize = 1\nmode = ['ideal', 'buddy']\nlink = [50, 200]\n\
                    targets = '2x'\n";

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sweep-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn plan(folder: &Path, text: &str) -> String {
    let path = folder.join("plan.toml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Returns the names and contents of the points in a store.
fn points(store: &Path) -> BTreeSet<(String, String)> {
    let dirs = fs::read_dir(store.join("points")).unwrap().map(|entry| entry.unwrap().path());
    let files = dirs.flat_map(|dir| fs::read_dir(dir).unwrap()).map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap())
    };
    files.map(read).collect()
}

fn rows(plan: &str, store: &str) -> Vec<Value> {
    let run = buddy(&["sweep", "table", plan, "--store", store, "--format", "jsonl"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_sweep_is_planned_run_resumed_cut_and_shown() {
    let folder = folder("run");
    let plan = plan(&folder, PLAN);
    let dry = buddy(&["sweep", &plan, "--dry-run"]);
    assert!(
        dry.code == 0 && dry.stdout.starts_with("6 points, 0 of them done\nabout 0.00"),
        "{}",
        dry.stdout
    );
    let run = |args: &[&str]| {
        let Run { stderr, code, .. } = buddy(&[&["sweep", "run", &plan], args].concat());
        assert_eq!(code, 0, "{stderr}");
        stderr
    };
    assert!(run(&[]).contains("6 of 6 points are done"));
    let store = folder.join("plan.sweep");
    let whole = points(&store);
    assert_eq!(whole.len(), 6, "ideal memory uses no link");

    // A corrupted record is made again; a complete one is not touched.
    let file = |index: usize| {
        let name = &whole.iter().nth(index).unwrap().0;
        store.join("points").join(&name["point-".len()..][..2]).join(name)
    };
    let time = |path: PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    let before = time(file(1));
    fs::write(file(0), whole.iter().next().unwrap().1.replace("\"cycles\":", "\"cycles\":1")).unwrap();
    assert!(run(&[]).contains("1 incomplete records are made again"));
    assert_eq!((points(&store), time(file(1))), (whole.clone(), before));

    // Shards make the same records in any order.
    let cut = folder.join("cut");
    for shard in ["3/3", "1/3", "2/3"] {
        run(&["--store", cut.to_str().unwrap(), "--shard", shard, "--threads", "1"]);
    }
    assert_eq!(points(&cut), whole);

    let rows = rows(&plan, store.to_str().unwrap());
    assert_eq!(rows.len(), 6);
    assert!(
        rows.iter()
            .all(|row| row["mode"] != "buddy"
                || (row["capacity"] == 2.0 && row["speed"].as_f64() <= Some(1.0)))
    );
    let columns = "program,link,cycles,report.l2.reads,key";
    let csv = buddy(&["sweep", "table", &plan, "--format", "csv", "--columns", columns]).stdout;
    assert!(csv.starts_with("program,link,cycles,report.l2.reads,key\ncg,,"), "{csv}");
    let record = buddy(&["sweep", "table", &plan, "--format", "record", "--columns", columns]).stdout;
    let record = Record::<Results>::from_json(&record).unwrap();
    assert_eq!((record.data.rows.len(), record.data.missing), (6, 0));
    assert_eq!(
        (record.data.rows[0]["program"].as_str(), &record.spec["plan"]),
        (Some("cg"), &Value::from(PLAN))
    );
    // As wide as the terminal, with omitted columns named; chosen columns all stay.
    let table = |more: &[&str]| {
        let run =
            command(&[&["sweep", "table", &plan], more].concat()).env("COLUMNS", "80").output().unwrap();
        String::from_utf8(run.stdout).unwrap()
    };
    let wide = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    let (narrow, chosen) = (table(&[]), table(&["--columns", &format!("{columns},report.dram.gb_per_s")]));
    assert!(wide(&narrow) <= 80 && narrow.contains("no room for") && narrow.contains("speed"), "{narrow}");
    assert!(wide(&chosen) > 80, "{chosen}");
    let page = folder.join("page.html");
    assert_eq!(buddy(&["sweep", "page", &plan, "--out", page.to_str().unwrap()]).code, 0);
    assert!(fs::read_to_string(page).unwrap().contains("\"values\":[\"ideal\",\"buddy\"]"));
}

#[test]
fn a_page_without_results_is_an_error() {
    let folder = folder("nothing");
    let plan = plan(&folder, "[axes]\nprogram = 'ilbdc'\nscale = '1MB'");
    let run = buddy(&["sweep", "page", &plan]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("none of its 1 points is done; run `buddy sweep"), "{}", run.stderr);
    assert!(!Path::new(&plan).with_extension("html").exists());
}

#[test]
fn a_point_is_what_simulate_finds_and_policies_differ() {
    let folder = folder("same");
    let axes = "program = 'ilbdc'\nscale = '1MB'\nmode = 'buddy'\npolicy = ['naive', 'allocation-16x']\nthreshold = [0.05, 0.3]";
    let plan = plan(&folder, &format!("[axes]\n{axes}"));
    assert_eq!(buddy(&["sweep", &plan]).code, 0);
    let store = folder.join("plan.sweep");
    let rows = rows(&plan, store.to_str().unwrap());
    let json = folder.join("one.json");
    let sweep = ["--sweep", "policy=naive,allocation-16x", "--sweep", "threshold=0.05,0.3"];
    let run = buddy(
        &[
            &["simulate", "ilbdc", "--scale", "1MB", "--mode", "buddy", "--json", json.to_str().unwrap()],
            &sweep[..],
        ]
        .concat(),
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("policy naive, threshold 5%"), "{}", run.stdout);
    let record: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let simulated: Vec<&Value> = (0..4).map(|i| &record["data"]["runs"][i]["report"]["cycles"]).collect();
    assert_eq!(
        rows.iter().map(|row| row["cycles"].as_f64()).collect::<Vec<_>>(),
        simulated.iter().map(|cycles| cycles.as_f64()).collect::<Vec<_>>()
    );
    let capacities: BTreeSet<String> = rows.iter().map(|row| row["capacity"].to_string()).collect();
    assert!(capacities.len() > 1, "{rows:?}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = folder("gone");
    let plan = plan(&folder, PLAN);
    for args in [&["sweep", &plan, "--dry-run"][..], &["sweep", "status", &plan]] {
        let mut child = command(args).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(0) && !said.contains("panicked"), "{args:?}: {said}");
    }
}

#[test]
fn failed_points_are_reported_and_the_rest_is_done() {
    let folder = folder("fails");
    fs::write(folder.join("kernel-1.traceg"), "no trace\n").unwrap();
    let trace = folder.join("kernel-1.traceg");
    let plan = plan(&folder, &format!("[axes]\nprogram = ['stream', '{}']\nsize = 1", trace.display()));
    let run = buddy(&["sweep", &plan]);
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("1 of 2 points are done") && run.stderr.contains("failed: "),
        "{}",
        run.stderr
    );
    let table = buddy(&["sweep", "table", &plan, "--columns", "program,cycles"]);
    assert!(
        table.stdout.contains("stream") && table.stderr.contains("1 of 2 points are not done"),
        "{}",
        table.stderr
    );
}

#[test]
fn mistakes_fail_with_one_line() {
    let folder = folder("mistakes");
    let plan = plan(&folder, "[axes]\nprogram = 'cg'\ncolour = 'red'");
    for (args, code, why) in [
        (vec!["sweep", plan.as_str()], 1, "line 3, [axes]: unknown setting 'colour'"),
        (vec!["sweep", "/no/plan.toml"], 1, "/no/plan.toml: No such file"),
        (vec!["sweep"], 2, "<PLAN>"),
        (vec!["sweep", "run", "x.toml", "--shard", "0/3"], 2, "is not a shard"),
        (vec!["specs", "show", "k80"], 1, "unknown GPU 'k80'"),
    ] {
        let run = buddy(&args);
        assert!(run.code == code && run.stderr.contains(why), "{args:?}: {}", run.stderr);
    }
}

#[test]
fn targets_must_be_for_the_codec_of_the_point() {
    let folder = folder("codec");
    let targets = folder.join("t.toml");
    let table = |codec: &str| {
        let row = |(name, bytes): &(&str, u32)| {
            format!("[[allocation]]\nname = '{name}'\nbytes = {bytes}\ncodec = '{codec}'\ntarget = '2x'\n")
        };
        let rows: String = [("pdf_even", 370272), ("pdf_odd", 370272), ("list", 175392), ("cells", 16380)]
            .iter()
            .map(row)
            .collect();
        format!("version = 1\nprogram = 'ilbdc'\n{rows}")
    };
    let plan = plan(
        &folder,
        &format!(
            "[axes]\nprogram = 'ilbdc'\nscale = '1MB'\nmode = 'buddy'\ntargets = '{}'",
            targets.display()
        ),
    );
    fs::write(&targets, table("bdi")).unwrap();
    let run = buddy(&["sweep", &plan]);
    assert!(run.code == 1 && run.stderr.contains("has the codec bdi"), "{}", run.stderr);
    fs::write(&targets, table("bpc")).unwrap();
    let run = buddy(&["sweep", &plan]);
    assert!(run.code == 0, "{}", run.stderr);
}

#[test]
fn specs_are_listed_and_shown_with_the_fields_of_their_base() {
    assert!(
        buddy(&["specs", "list"])
            .stdout
            .contains("h200, gh200, h100, b200, rtx4090, rtx5090\nlinks: 50, 100")
    );
    let shown = buddy(&["specs", "show", "gh200"]).stdout;
    assert!(
        shown.contains("name = \"gh200\"") && shown.contains("[l2]") && shown.contains("slices ="),
        "{shown}"
    );
    assert!(buddy(&["specs", "show", "c2c"]).stdout.contains("gb_per_s"));
}
