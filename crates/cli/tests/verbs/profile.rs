//! `buddy profile` end to end: its output, its files, and that bad input leaves nothing behind.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/run");
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/run-record.json");

fn buddy(dir: &Path, args: &[&str]) -> Output {
    command(dir, args).output().unwrap()
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_buddy"));
    command.current_dir(dir).arg("profile").args(args).env_remove("COLUMNS");
    command
}

fn stdout(dir: &Path, args: &[&str]) -> String {
    let output = buddy(dir, args);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the message of a run that must fail with one line, exit code 1, empty stdout and no new
/// file.
fn refused(dir: &Path, args: &[&str]) -> String {
    let before = fs::read_dir(dir).unwrap().count();
    let outputs = ["--targets", "t.toml", "--json", "p.json", "--html", "p.html"];
    let output = buddy(dir, &[args, &outputs].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_eq!(fs::read_dir(dir).unwrap().count(), before, "something was written");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

/// Copies the example run for a test to corrupt.
fn copy(to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(RUN).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_note_names_codecs_without_kernels() {
    let dir = TempDir::new().unwrap();
    let output = buddy(dir.path(), &[RUN, "--codec", "cpack", "--codecs", "cpack", "--targets", "t.toml"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.starts_with("note: the GPU runtime has no kernels for cpack;"), "{said}");
}

#[test]
fn a_table_targets_a_record_and_a_page() {
    let dir = TempDir::new().unwrap();
    let args = [RUN, "--targets", "t.toml", "--json", "p.json", "--html", "p.html", "--verify"];
    let output = buddy(dir.path(), &args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !said.contains("no kernels"), "{said}");
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap());
    let record = json(&dir.path().join("p.json"));
    assert_eq!((record["kind"].as_str(), record["spec"]["policy"].as_str()), (Some("profile"), Some("link")));
    assert_eq!(record["data"]["verified"]["snapshot"], 2);
    assert_eq!(record["data"]["optimistic"].as_array().unwrap().len(), 3);
    let targets = fs::read_to_string(dir.path().join("t.toml")).unwrap();
    insta::assert_snapshot!(targets.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    let page = fs::read_to_string(dir.path().join("p.html")).unwrap();
    assert!(page.contains("class=\"slider\"") && page.contains("<canvas"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "no temporary file is left");
}

/// The record of the example has all its pages, so it must give the same profile as the snapshots.
#[test]
fn a_record_gives_the_same_profile_as_its_snapshots() {
    let dir = TempDir::new().unwrap();
    stdout(dir.path(), &[RUN, "--json", "run.json", "--codecs", "bpc", "--policy", "page"]);
    stdout(dir.path(), &[RECORD, "--json", "record.json", "--codecs", "bpc", "--policy", "page"]);
    let (run, record) = (json(&dir.path().join("run.json")), json(&dir.path().join("record.json")));
    for what in ["optimistic", "best_ratio"] {
        assert_eq!(run["data"][what], record["data"][what], "{what}");
    }
    let bpc = |json: &serde_json::Value| -> Vec<serde_json::Value> {
        let policies = json["data"]["policies"].as_array().unwrap();
        policies.iter().filter(|one| one["codec"] == "bpc").cloned().collect()
    };
    assert_eq!(bpc(&run), bpc(&record));
    assert_eq!(bpc(&run).len(), 5);
}

#[test]
fn every_policy_and_codec_is_verified() {
    let dir = TempDir::new().unwrap();
    for policy in ["naive", "allocation", "allocation-16x", "page", "link"] {
        for codec in ["bpc", "auto", "fvc", "planes64"] {
            for verify in ["--verify", "--verify=0"] {
                let text = stdout(dir.path(), &[RUN, "--policy", policy, "--codec", codec, verify]);
                assert!(text.contains("read back bit for bit"), "{text}");
            }
        }
    }
}

#[test]
fn a_plan_fits_or_reports_the_missing_memory() {
    let dir = TempDir::new().unwrap();
    let plan = |memory: &str| {
        stdout(dir.path(), &[RUN, "--device-memory", memory, "--spec", "h200", "--link", "pcie5", "--verify"])
    };
    let text = plan("12KiB");
    assert!(
        text.contains("Targets of the plan for 12.0 KiB") && text.contains("of 12.0 KiB with its metadata"),
        "{text}"
    );
    assert!(text.contains("no plan loses less."), "{text}");
    assert!(plan("1MB").contains(", 0 s of link time"));
    let message = refused(dir.path(), &[RUN, "--device-memory", "1KiB"]);
    assert!(message.starts_with("buddy: nothing fits 1.0 KiB of device memory: even with"), "{message}");
    fs::write(dir.path().join("counts.json"), r#"{"heat": 1000, "material": 0}"#).unwrap();
    let counted = stdout(dir.path(), &[RUN, "--device-memory", "12KiB", "--accesses", "counts.json"]);
    assert!(counted.contains("the counted accesses"), "{counted}");
    fs::write(dir.path().join("other.json"), r#"{"heat": 1000}"#).unwrap();
    assert!(
        refused(dir.path(), &[RUN, "--device-memory", "1MB", "--accesses", "other.json"])
            .contains("\"material\"")
    );
}

#[test]
fn a_threshold_of_zero_allows_no_overflow() {
    let dir = TempDir::new().unwrap();
    for policy in ["naive", "allocation-16x", "page"] {
        let text = stdout(dir.path(), &[RUN, "--threshold", "0", "--policy", policy, "--json", "-"]);
        let record: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(record["data"]["threshold"], 0.0);
        for allocation in record["data"]["allocations"].as_array().unwrap() {
            let overflowing = allocation["overflowing"].as_array().unwrap();
            assert!(overflowing.len() == 3 && overflowing.iter().all(|entries| entries == 0), "{allocation}");
        }
    }
}

#[test]
fn wrong_numbers_and_names_are_refused_in_one_line() {
    let dir = TempDir::new().unwrap();
    for threshold in ["1", "-0.5", "1.5", "nan", "inf"] {
        let message = refused(dir.path(), &[RUN, "--threshold", threshold]);
        assert!(message.contains("it must be at least 0"), "{message}");
    }
    let plan = |spec: &str, link: &str| {
        refused(dir.path(), &[RUN, "--device-memory", "1MB", "--spec", spec, "--link", link])
    };
    assert!(plan("h2000", "pcie5").contains("unknown GPU 'h2000'; use one of paper"));
    assert!(plan("h200", "pcie9").contains("unknown link 'pcie9'"));
    assert!(plan("none.toml", "pcie5").contains("none.toml: No such file"));
    assert!(refused(dir.path(), &[RUN, "--device-memory", "1000GB"]).contains("h200 has"));
    assert!(refused(dir.path(), &[RUN, "--verify=3"]).contains("the run has 3 snapshots"));
    assert!(refused(dir.path(), &[RECORD, "--verify"]).contains("--verify needs snapshots"));
    let unknown = refused(dir.path(), &["missing"]);
    assert!(unknown.starts_with("buddy: missing: No such file"), "{unknown}");
    assert!(unknown.contains("resnet50") && unknown.contains("cg"), "the built-in names: {unknown}");
    assert!(!unknown.contains("did you mean"), "{unknown}");
    for (wrong, right) in [("CG", "cg"), ("ResNet50", "resnet50")] {
        let found = refused(dir.path(), &[wrong]);
        assert!(found.contains(&format!("No such file or directory; did you mean '{right}'?")), "{found}");
    }
    assert!(refused(dir.path(), &[RUN, "--filter", "none"]).contains("matches none of 2 names"));
}

#[test]
fn corrupted_runs_are_rejected_in_one_line() {
    let dir = TempDir::new().unwrap();
    let spoil = |name: &str, spoil: &dyn Fn(&Path)| {
        let run = dir.path().join(name);
        copy(&run);
        spoil(&run);
        refused(dir.path(), &[name])
    };
    let edit = |run: &Path, from: &str, to: &str| {
        let path = run.join("run.json");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replace(from, to)).unwrap();
    };
    assert!(
        spoil("lacks", &|run| edit(run, "\"heat\"", "\"cold\""))
            .contains("\"cold\" is missing from this snapshot")
    );
    assert!(
        spoil("twice", &|run| edit(run, "\"material\"", "\"heat\""))
            .contains("two allocations are named \"heat\"")
    );
    assert!(
        spoil("longer", &|run| edit(run, "\"bytes\": 2304", "\"bytes\": 2305"))
            .contains("in the run it has 2305")
    );
    let cut = |run: &Path| {
        let path = run.join("snapshot-1.safetensors");
        let bytes = fs::read(&path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 100]).unwrap();
    };
    assert!(spoil("cut", &cut).contains("snapshot-1.safetensors"));
    let gone = |run: &Path| fs::remove_file(run.join("snapshot-2.safetensors")).unwrap();
    assert!(spoil("gone", &gone).contains("snapshot-2.safetensors: No such file"));
    fs::create_dir(dir.path().join("empty")).unwrap();
    assert!(refused(dir.path(), &["empty"]).contains("this directory is no run"));
    let none = |run: &Path| {
        fs::write(run.join("run.json"), r#"{"version":1,"program":"p","allocations":[],"snapshots":[]}"#)
            .unwrap();
    };
    assert!(spoil("none", &none).contains("the run has no allocations"));
}

#[test]
fn a_length_that_changes_between_dumps_is_rejected() {
    let dir = TempDir::new().unwrap();
    for (snapshot, bytes) in [(0, 256), (1, 384)] {
        let path = dir.path().join(format!("dumps/snapshot-{snapshot}"));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("u.f32"), vec![0; bytes]).unwrap();
    }
    let message = refused(dir.path(), &["dumps"]);
    assert!(message.contains("\"u.f32\" has 384 bytes in this snapshot; in the run it has 256"), "{message}");
}

#[test]
fn corrupted_records_are_rejected_in_one_line() {
    let dir = TempDir::new().unwrap();
    let text = fs::read_to_string(RECORD).unwrap();
    let refused = |text: &str, args: &[&str]| {
        fs::write(dir.path().join("r.json"), text).unwrap();
        let message = refused(dir.path(), &[&["r.json"], args].concat());
        assert!(message.starts_with("buddy: r.json: "), "{message}");
        message
    };
    assert!(refused(&text[..text.len() / 2], &[]).contains("not a record of kind 'run'"));
    assert!(refused(&text.replace("\"run\",", "\"walk\","), &[]).contains("kind 'walk'"));
    assert!(refused(&text.replace("\"bpc\"", "\"bcp\""), &[]).contains("unknown codec 'bcp'"));
    assert!(refused(&text, &["--codec", "fvc"]).contains("no sizes of fvc for allocation"));
    fs::write(dir.path().join("r.json"), [0xff, 0xfe]).unwrap();
    let outputs = buddy(dir.path(), &["r.json"]);
    assert_eq!(outputs.status.code(), Some(1));
}

#[test]
fn the_input_run_is_never_overwritten() {
    let dir = TempDir::new().unwrap();
    copy(&dir.path().join("run"));
    let output = buddy(dir.path(), &["run", "--json", "run/run.json"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("is an input"));
    let output = buddy(dir.path(), &["run", "--json", "a", "--html", "a"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("--json and --html name the same file"));
}

/// The best measured codec is chosen and shown next to the paper's design.
#[test]
fn the_best_that_was_measured_is_recommended() {
    let dir = TempDir::new().unwrap();
    let text = stdout(dir.path(), &[RUN, "--json", "p.json"]);
    let data = &json(&dir.path().join("p.json"))["data"];
    let policies = data["policies"].as_array().unwrap();
    let ratio = |one: &serde_json::Value| one["ratio"].as_f64().unwrap();
    let best = policies.iter().filter(|one| one["policy"] == "link").map(ratio).fold(0.0, f64::max);
    let chosen = policies.iter().find(|one| one["policy"] == data["policy"] && one["codec"] == data["codec"]);
    assert_eq!(chosen.map(ratio), Some(best));
    assert!(text.contains("Recommended, and chosen here") && text.contains("The paper's design"), "{text}");
    let paper = stdout(dir.path(), &[RUN, "--policy", "allocation-16x", "--codec", "bpc"]);
    assert!(paper.contains("Chosen here: policy allocation-16x, bpc"), "{paper}");
}

/// A slow link leaves less to recommend than a fast one; a threshold ignores the link, as ever.
#[test]
fn the_recommendation_follows_the_link() {
    let dir = TempDir::new().unwrap();
    let data = |args: &[&str]| {
        stdout(dir.path(), &[&[RUN, "--json", "p.json"], args].concat());
        json(&dir.path().join("p.json"))["data"].take()
    };
    let chosen = |data: &serde_json::Value| {
        let policies = data["policies"].as_array().unwrap();
        let found =
            policies.iter().find(|one| one["policy"] == data["policy"] && one["codec"] == data["codec"]);
        found.unwrap().clone()
    };
    let ratio = |args: &[&str]| chosen(&data(args))["ratio"].as_f64().unwrap();
    let slow = ratio(&["--link", "pcie3", "--max-slowdown", "0"]);
    let fast = ratio(&["--spec", "v100", "--link", "150GB/s", "--max-slowdown", "200%"]);
    assert!(1.0 < slow && slow < fast, "{slow} {fast}");
    let limited = data(&["--max-slowdown", "20%"]);
    for allocation in limited["allocations"].as_array().unwrap() {
        assert!(allocation["link"]["slowdown"].as_f64().unwrap() <= 0.2, "{allocation}");
    }
    let curve = limited["advice"]["curve"].as_array().unwrap();
    let ratios: Vec<f64> = curve.iter().map(|point| point["ratio"].as_f64().unwrap()).collect();
    assert!(ratios.is_sorted() && ratios.len() == 9, "{ratios:?}");
    let by_threshold = data(&["--threshold", "30%"]);
    assert_eq!(by_threshold["policy"], "page");
    let both = data(&["--threshold", "1%", "--max-slowdown", "200%"]);
    assert!(both["policy"] == "link" && chosen(&both)["worst_overflow"].as_f64().unwrap() <= 0.01, "{both}");
    let counts = dir.path().join("counts.json");
    fs::write(&counts, r#"{"heat": 144, "material": 0}"#).unwrap();
    let counted = data(&["--threshold", "30%", "--accesses", counts.to_str().unwrap()]);
    assert_eq!(counted["advice"]["counted"], true);
    let message = command(dir.path(), &[RUN, "--max-slowdown", "fast"]).output().unwrap();
    assert!(String::from_utf8_lossy(&message.stderr).contains("such as 0.05 or 5%"));
}

/// The maps of a page show the codec chosen for each allocation.
#[test]
fn maps_are_of_the_chosen_codec() {
    let dir = TempDir::new().unwrap();
    for codec in ["bpc", "auto", "zeros32"] {
        stdout(dir.path(), &[RUN, "--codec", codec, "--json", "p.json", "--html", "p.html"]);
        let data = &json(&dir.path().join("p.json"))["data"];
        let targets = data["targets"]["allocation"].as_array().unwrap();
        for (found, row) in data["allocations"].as_array().unwrap().iter().zip(targets) {
            assert_eq!(found["pages_codec"], row["codec"], "{codec}");
            let map: String = serde_json::to_string(&found["pages"]).unwrap();
            let last =
                found["histograms"][row["codec"].as_str().unwrap()].as_array().unwrap().last().unwrap();
            assert!(!map.is_empty() && last["classes"].is_array(), "{map}");
        }
        let page = fs::read_to_string(dir.path().join("p.html")).unwrap();
        assert!(!page.contains("; sizes with"), "{codec}");
    }
    // A record has pages of the paper's codec only, and its page notes this.
    stdout(dir.path(), &[RECORD, "--codec", "auto", "--json", "p.json", "--html", "p.html"]);
    let data = &json(&dir.path().join("p.json"))["data"];
    assert_eq!(data["allocations"][0]["pages_codec"], "bpc");
}

#[test]
fn a_network_a_workload_a_file_and_stdin_are_profiled() {
    let dir = TempDir::new().unwrap();
    let network = stdout(dir.path(), &["squeezenet", "--top", "3", "--html", "s.html"]);
    assert!(network.contains("Recommended") && network.contains("more allocations"), "{network}");
    let workload = stdout(dir.path(), &["cg", "--scale", "1MB", "--policy", "allocation"]);
    assert!(workload.starts_with("cg: ") && workload.contains("10 snapshots"), "{workload}");
    let file = format!("{RUN}/snapshot-2.safetensors");
    let one = stdout(dir.path(), &[&file, "--verify"]);
    assert!(one.contains("2 allocations, 1 snapshot.") && one.contains("read back bit for bit"), "{one}");
    let piped = |path: &str, args: &[&str]| {
        let input = fs::File::open(path).unwrap();
        let output = command(dir.path(), &[&["-"], args].concat()).stdin(input).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let csv = piped(&file, &["--csv", "-"]);
    assert!(csv.starts_with("name,call_site,dtype,bytes,codec,") && csv.lines().count() == 3, "{csv}");
    let record: serde_json::Value = serde_json::from_str(&piped(RECORD, &["--json", "-"])).unwrap();
    assert_eq!(record["kind"], "profile");
    assert!(piped(RECORD, &["--targets", "-"]).contains("[[allocation]]"));
}

/// A model's folder is one snapshot of its shards; `config.json` is not a tensor.
#[test]
fn a_models_folder_is_one_snapshot() {
    let dir = TempDir::new().unwrap();
    let model = dir.path().join("model");
    fs::create_dir(&model).unwrap();
    for shard in 1..=2 {
        let header =
            format!(r#"{{"layers.{shard}.weight":{{"dtype":"F32","shape":[64],"data_offsets":[0,256]}}}}"#);
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend([0; 256]);
        fs::write(model.join(format!("model-0000{shard}-of-00002.safetensors")), file).unwrap();
    }
    fs::write(model.join("config.json"), "{}").unwrap();
    let output = command(dir.path(), &["model"]).env("COLUMNS", "80").output().unwrap();
    let (said, text) = (String::from_utf8(output.stderr).unwrap(), String::from_utf8(output.stdout).unwrap());
    assert!(said.contains("read as the files of a model: 1 snapshot of 2 allocations"), "{said}");
    assert!(text.contains("layers.[1-2].weight"), "tensors keep their names: {text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// A plan explains unused memory, and claims no threshold.
#[test]
fn a_plan_explains_what_it_leaves_unused() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("counts.json"), r#"{"heat": 1000, "material": 0}"#).unwrap();
    let plan = [RUN, "--device-memory", "12KiB", "--accesses", "counts.json", "--html", "p.html"];
    let text = stdout(dir.path(), &plan);
    assert!(text.contains("that are left are too few for the next larger target"), "{text}");
    assert!(text.contains("Without a limit of device memory") && !text.contains("threshold 30%"), "{text}");
    let page = fs::read_to_string(dir.path().join("p.html")).unwrap();
    let said = page.split("<h2>The plan</h2>").nth(1).unwrap().split("</section>").next().unwrap();
    assert!(
        said.contains("that are left are too few") && !said.contains('\\'),
        "no escapes on the page: {said}"
    );
}

#[test]
fn a_threshold_may_be_a_percentage() {
    let dir = TempDir::new().unwrap();
    let text = stdout(dir.path(), &[RUN, "--threshold", "12.5%"]);
    assert!(text.contains("threshold 12.50%:"), "{text}");
    assert_eq!(text, stdout(dir.path(), &[RUN, "--threshold", "0.125"]));
}
