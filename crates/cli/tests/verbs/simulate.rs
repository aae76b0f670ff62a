//! `buddy simulate` end to end.

use serde_json::Value;

use crate::common::{Run, buddy};

/// Four blocks of a real vectorAdd trace.
const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/vectoradd");

fn folder(name: &str) -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("simulate-{name}"));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn json(path: &std::path::Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn a_trace_folder_its_list_and_its_kernel_are_the_same_program() {
    let folder = folder("trace");
    let cycles = |what: &str| {
        let path = folder.join("one.json");
        let Run { stdout, stderr, code } =
            buddy(&["simulate", what, "--spec", "v100", "--json", path.to_str().unwrap()]);
        assert_eq!((stderr.as_str(), code), ("", 0));
        let record = json(&path);
        assert_eq!(record["kind"], "simulation");
        assert_eq!(record["spec"]["gpu"]["name"], "v100");
        assert!(stdout.lines().next().unwrap().ends_with(": GPU v100, mode ideal"), "{stdout}");
        record["data"]["cycles"].as_u64().unwrap()
    };
    let all = ["", "/kernelslist.g", "/kernel-1.traceg", "/kernel-1.traceg.xz"]
        .map(|end| cycles(&format!("{TRACE}{end}")));
    assert!(all.iter().all(|&cycles| cycles == all[0] && cycles > 400), "{all:?}");
}

#[test]
fn unknown_opcodes_and_list_lines_are_reported() {
    let folder = folder("unknown");
    let kernel = std::fs::read_to_string(format!("{TRACE}/kernel-1.traceg")).unwrap();
    std::fs::write(folder.join("kernel-1.traceg"), kernel.replace("FADD", "NEVER.HEARD")).unwrap();
    std::fs::write(folder.join("kernelslist.g"), "MemcpyDtoH,0x10,4\nkernel-1.traceg\n").unwrap();
    let (path, html) = (folder.join("one.json"), folder.join("one.html"));
    let run = buddy(&[
        "simulate",
        folder.to_str().unwrap(),
        "--json",
        path.to_str().unwrap(),
        "--html",
        html.to_str().unwrap(),
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("'MemcpyDtoH,0x10,4' is neither a copy nor a kernel"), "{}", run.stderr);
    let said = "54 warp instructions (11.0%) have unknown opcodes";
    assert!(run.stdout.contains(said) && run.stdout.contains(": NEVER.HEARD 54\n"), "{}", run.stdout);
    assert_eq!(json(&path)["data"]["kernels"][0]["unknown_opcodes"]["NEVER.HEARD"], 54);
    assert!(std::fs::read_to_string(&html).unwrap().contains(said));
}

#[test]
fn a_copy_may_be_long_but_not_endless() {
    let folder = folder("copies");
    std::fs::copy(format!("{TRACE}/kernel-1.traceg"), folder.join("kernel-1.traceg")).unwrap();
    let copy = |bytes: u64, more: &[&str]| {
        let list = format!("MemcpyHtoD,0x1000,{bytes}\nkernel-1.traceg\n");
        std::fs::write(folder.join("kernelslist.g"), list).unwrap();
        buddy(&[&["simulate", folder.to_str().unwrap()], more].concat())
    };
    for more in [&["--mode", "um"][..], &["--mode", "pinned", "--timed-copies", "--link", "1"]] {
        assert_eq!(copy(1 << 40, more).code, 0);
        let refused = copy(u64::MAX, more);
        assert_eq!(refused.code, 1);
        assert!(refused.stderr.contains("copied so far is 18446744073709551615"), "{}", refused.stderr);
    }
}

#[test]
fn a_sweep_runs_the_grid() {
    let folder = folder("sweep");
    let (path, html) = (folder.join("sweep.json"), folder.join("sweep.html"));
    let run = buddy(&[
        "simulate",
        "stream",
        "--size",
        "2",
        "--targets",
        "2x",
        "--sweep",
        "mode=ideal,buddy",
        "--sweep",
        "link=50,75",
        "--json",
        path.to_str().unwrap(),
        "--html",
        html.to_str().unwrap(),
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let assumed = "note: the compressibility of stream is unknown; assuming 0% zero, 0% b8, 30% s1, 60% s2";
    assert!(run.stderr.starts_with(assumed) && run.stderr.lines().count() == 1, "{}", run.stderr);
    let mut lines = run.stdout.lines();
    assert_eq!(
        lines.next(),
        Some("stream (2 MiB): GPU paper, target 2x"),
        "shared settings are printed once"
    );
    let heads: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(heads[..5], ["mode", "link", "speed", "cycles", "capacity"], "{}", run.stdout);
    assert!(run.stdout.lines().all(|line| line.chars().count() <= 80), "{}", run.stdout);
    assert!(run.stdout.contains("--json and --html have more: IPC"), "{}", run.stdout);
    // Ideal memory uses no link, so it runs once.
    let rows: Vec<&str> = lines.skip(1).take(3).collect();
    assert!(rows[0].starts_with("ideal  -     1.00x") && rows[2].contains("2.00x"), "{rows:?}");
    for said in
        ["speed      speedup over ideal memory on the same GPU", "link in    GB/s over the link into the GPU"]
    {
        assert!(run.stdout.contains(said), "{}", run.stdout);
    }
    let record = json(&path);
    let runs = record["data"]["runs"].as_array().unwrap();
    let settings: Vec<_> = runs.iter().map(|run| (&run["report"]["mode"], &run["report"]["link"])).collect();
    assert_eq!(format!("{settings:?}").matches("buddy").count(), 2);
    assert!(runs.iter().all(|run| run["report"]["cycles"].as_u64().unwrap() > 0));
    // The page of a sweep has its axes and a row for each run with its place along both.
    let page = std::fs::read_to_string(&html).unwrap();
    let (_, data) = page.split_once("id=\"sweep\">").unwrap();
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    assert_eq!((&data["axes"][0]["name"], &data["axes"][1]["values"][1]), (&"mode".into(), &"75".into()));
    let places: Vec<(u64, u64)> = data["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row[0].as_u64().unwrap(), row[1].as_u64().unwrap()))
        .collect();
    assert_eq!(places, [(0, 0), (1, 0), (1, 1)]);
    assert_eq!(data["rows"][0][2], 1.0, "speed comes first");
}

#[test]
fn given_shares_are_not_assumed_and_a_codec_has_no_effect() {
    let run = |more: &[&str]| {
        buddy(&[&["simulate", "stream", "--size", "1", "--mode", "buddy", "--targets", "2x"], more].concat())
    };
    assert_eq!(run(&["--shares", "0,0,0,1,0,0"]).stderr, "");
    let codec = run(&["--codec", "bdi"]);
    assert_eq!(codec.code, 0);
    assert!(codec.stderr.contains("has no data, so a codec has no effect"), "{}", codec.stderr);
}

#[test]
fn the_ranges_of_a_trace_are_a_file_of_targets_that_matches_it() {
    let path = folder("ranges").join("t.toml");
    let listed = buddy(&["simulate", TRACE, "--ranges"]);
    assert_eq!((listed.stderr.as_str(), listed.code), ("", 0));
    assert!(listed.stdout.contains("base = 0x7fb0fc400000\nbytes = 200000\n"), "{}", listed.stdout);
    std::fs::write(&path, listed.stdout.replace("\"1x\"", "\"4x\"")).unwrap();
    let simulate = || buddy(&["simulate", TRACE, "--mode", "buddy", "--targets", path.to_str().unwrap()]);
    let done = simulate();
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(
        !done.stderr.contains("no row matches") && done.stdout.contains("4.00x"),
        "{}{}",
        done.stderr,
        done.stdout
    );
    let elsewhere = "[[allocation]]\nbase = 0x100000\nbytes = 4096\ntarget = \"4x\"\n";
    std::fs::write(&path, elsewhere).unwrap();
    let done = simulate();
    assert!(
        done.stderr.contains("no row matches, so the file has no effect")
            && done.stderr.contains("--ranges` lists")
            && !done.stdout.contains("capacity"),
        "{}",
        done.stderr
    );
    let named = buddy(&["simulate", "cg", "--ranges"]);
    assert_eq!((named.code, named.stderr.lines().count()), (1, 1));
    assert!(named.stderr.contains("go by the names of its allocations"), "{}", named.stderr);
}

#[test]
fn a_timeline_is_chrome_s_json() {
    let path = folder("timeline").join("t.json");
    let run = buddy(&["simulate", "stream", "--size", "2", "--timeline", path.to_str().unwrap()]);
    assert_eq!(run.code, 0);
    let events = json(&path)["traceEvents"].as_array().unwrap().clone();
    let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).count();
    assert!(of("X") == 1 && of("C") > 8, "{} spans, {} counters", of("X"), of("C"));
}

#[test]
fn a_file_of_targets_and_a_file_of_a_gpu() {
    let folder = folder("files");
    let (targets, gpu) = (folder.join("t.toml"), folder.join("g.toml"));
    std::fs::write(
        &targets,
        "[[allocation]]\nbase = 4294967296\nbytes = 1048576\ntarget = \"4x\"\nclass = \"s2\"\n",
    )
    .unwrap();
    let paper = include_str!("../../../../specs/paper.toml");
    std::fs::write(&gpu, paper.replace("name = \"paper\"", "name = \"mine\"")).unwrap();
    let run = |gpu: &str| {
        buddy(&[
            "simulate",
            "random",
            "--size",
            "1",
            "--mode",
            "buddy",
            "--spec",
            gpu,
            "--targets",
            targets.to_str().unwrap(),
        ])
    };
    let done = run(gpu.to_str().unwrap());
    assert!(done.stdout.contains(": GPU mine, mode buddy"), "{} {}", done.stdout, done.stderr);
    assert_eq!(done.stderr, "");
    let known = std::fs::read_to_string(&targets).unwrap();
    std::fs::write(&targets, known.clone() + &known.replace("4294967296", "1048576")).unwrap();
    let done = run(gpu.to_str().unwrap());
    assert!(
        done.stderr.contains("no access reaches memory at 0x100000 (1048576 bytes); data"),
        "{}",
        done.stderr
    );
    std::fs::write(&gpu, paper.replace("sms = 56", "sms = 0")).unwrap();
    let wrong = run(gpu.to_str().unwrap());
    assert_eq!(wrong.code, 1);
    assert!(wrong.stderr.ends_with("core.sms is 0; it must lie between 1 and 1024\n"), "{}", wrong.stderr);
}

#[test]
fn a_workload_runs_by_its_name_with_targets_of_its_own() {
    let path = folder("workload").join("sweep.json");
    let run = buddy(&[
        "simulate",
        "hpgmg",
        "--scale",
        "1MB",
        "--sweep",
        "mode=ideal,bandwidth,buddy",
        "--sweep",
        "link=50,200",
        "--json",
        path.to_str().unwrap(),
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stdout.lines().filter(|line| line.starts_with("b")).count(), 4, "{}", run.stdout);
    assert!(run.stderr.starts_with("hpgmg: snapshot ") && run.stderr.lines().count() == 1, "{}", run.stderr);
    let record = json(&path);
    let reports: Vec<&Value> =
        record["data"]["runs"].as_array().unwrap().iter().map(|run| &run["report"]).collect();
    assert!(reports.iter().all(|report| report["instructions"] == reports[0]["instructions"]));
    // It copies from the host in every mode. The policy leaves all memory uncompressed, so there
    // are no metadata look-ups.
    assert!(reports.iter().all(|report| report["copy_cycles"].as_u64().unwrap() > 0));
    assert!(reports[0]["cycles"].as_u64() > reports[1]["cycles"].as_u64(), "50 GB/s is slower than 200");
    assert_eq!(metadata_hits(&reports), [0; 6]);

    let run = buddy(&[
        "simulate",
        "cg",
        "--scale",
        "1MB",
        "--sweep",
        "mode=ideal,bandwidth,buddy",
        "--json",
        path.to_str().unwrap(),
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let record = json(&path);
    let reports: Vec<&Value> =
        record["data"]["runs"].as_array().unwrap().iter().map(|run| &run["report"]).collect();
    let hits = metadata_hits(&reports);
    assert!(hits[..2] == [0; 2] && hits[2] > 0, "{hits:?}");
}

fn metadata_hits(reports: &[&Value]) -> Vec<u64> {
    reports.iter().map(|report| report["buddy"]["metadata_hits"].as_u64().unwrap()).collect()
}

#[test]
fn a_workload_takes_the_targets_that_profile_wrote() {
    let folder = folder("profiled");
    let (run, targets) = (folder.join("run"), folder.join("targets.toml"));
    let (run, path) = (run.to_str().unwrap(), targets.to_str().unwrap());
    assert_eq!(buddy(&["workload", "run", "ep", "--scale", "1MB", "--out", run]).code, 0);
    let by_page = ["--codec", "auto", "--policy", "page", "--targets", path];
    assert_eq!(buddy(&[&["profile", run], &by_page[..]].concat()).code, 0);
    let simulate = |what, targets| {
        buddy(&[
            "simulate",
            what,
            "--scale",
            "1MB",
            "--mode",
            "buddy",
            "--snapshot",
            "9",
            "--targets",
            targets,
        ])
    };
    let done = simulate("ep", path);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stdout.contains(path), "{}", done.stdout);
    let cycles = |text: &str| text.lines().find(|line| line.contains("cycles")).map(str::to_owned);
    assert_ne!(cycles(&done.stdout), cycles(&simulate("ep", "2x").stdout));
    let other = simulate("seismic", path);
    assert_eq!((other.code, other.stderr.lines().count()), (1, 1));
    assert!(other.stderr.ends_with("the targets are for ep, not for seismic\n"), "{}", other.stderr);
    let text = std::fs::read_to_string(&targets).unwrap();
    std::fs::write(&targets, text.replace("program", "programme")).unwrap();
    let damaged = simulate("ep", path);
    assert_eq!((damaged.code, damaged.stderr.lines().count()), (1, 1));
    assert!(damaged.stderr.contains("unknown field `programme`"), "{}", damaged.stderr);
}

#[test]
fn a_workload_s_page_and_timeline_are_written() {
    let folder = folder("files-of-a-workload");
    let (html, timeline) = (folder.join("p.html"), folder.join("t.json"));
    let (page, line) = (html.to_str().unwrap(), timeline.to_str().unwrap());
    let run = buddy(&["simulate", "bt", "--scale", "1MB", "--html", page, "--timeline", line]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(std::fs::read_to_string(&html).unwrap().contains("Simulation of bt ("));
    let events = json(&timeline)["traceEvents"].as_array().unwrap().clone();
    assert!(events.iter().any(|event| event["ph"] == "X" && event["name"] == "solve z"));
}

#[test]
fn a_network_runs_with_the_tensors_of_its_record() {
    let path = folder("network").join("sweep.json");
    let json_path = path.to_str().unwrap();
    let small = ["simulate", "squeezenet", "--batch", "2", "--sample", "0.01", "--json", json_path];
    let run = buddy(&[&small[..], &["--sweep", "mode=ideal,buddy", "--sweep", "targets=2x,4x"]].concat());
    assert_eq!((run.stderr.as_str(), run.code), ("", 0));
    let record = json(&path);
    let report = |index: usize| &record["data"]["runs"][index]["report"];
    // Ideal memory has no targets, so it is simulated once.
    assert_eq!(record["data"]["runs"].as_array().unwrap().len(), 3);
    assert_eq!(report(0)["instructions"], report(2)["instructions"]);
    // Activations of trained networks do not all fit 32 bytes.
    let over = |index| report(index)["buddy"]["buddy_access_share"].as_f64().unwrap();
    assert!(over(0) == 0.0 && over(2) > over(1), "{} {}", over(1), over(2));
    let policy = buddy(&[&small[..], &["--mode", "buddy"]].concat());
    assert_eq!((policy.stderr.as_str(), policy.code), ("", 0));
    let wrong = buddy(&[&small[..], &["--mode", "buddy", "--recorded", "/nowhere"]].concat());
    assert_eq!((wrong.code, wrong.stderr.lines().count()), (1, 1));
    assert!(wrong.stderr.contains("cannot read /nowhere/squeezenet.json"), "{}", wrong.stderr);
}

#[test]
fn impossible_requests_fail_with_one_line() {
    let cases: [(&[&str], i32, &str); 15] = [
        (&["alexnet", "--sample", "0"], 2, "'0' is not a share above 0, at most 1"),
        (&["alexnet", "--mode", "buddy", "--targets", "x.toml"], 1, "targets of a network are a ratio"),
        (&["cg", "--mode", "buddy", "--snapshot", "10"], 2, "a run has the snapshots 0 to 9"),
        (&["cg", "--scale", "1kB"], 1, "cg: the scale must be from 1MB to 1"),
        (&["cg", "--codec", "gzip"], 2, "gzip"),
        (&["stream", "--shares", "0,0,1"], 2, "'0,0,1' is not six shares"),
        (&["stream", "--json", "/nowhere/x.json"], 1, "no such directory: /nowhere"),
        (&["stream", "--json", "x.out", "--html", "x.out"], 1, "--json and --html name the same file"),
        (&["squeezenet", "--batch", "1", "--sample", "0.001"], 1, "give a larger one"),
        (
            &["nothing"],
            1,
            "'nothing' is neither a trace nor a known program; the programs are arithmetic, stream",
        ),
        (&["stream", "--mode", "buddy"], 1, "mode buddy needs targets"),
        (&["stream", "--spec", "k80"], 1, "unknown GPU 'k80'; use one of paper"),
        (&["stream", "--mode", "pinned", "--link", "fast"], 1, "unknown link 'fast'; use one of 50"),
        (&["stream", "--mode", "magic"], 2, "unknown mode 'magic'"),
        (&["stream", "--sweep", "colour=red"], 2, "unknown setting 'colour'"),
    ];
    for (args, code, message) in cases {
        let run = buddy(&[&["simulate"], args].concat());
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{args:?}");
        assert!(run.stderr.contains(message), "{}", run.stderr);
        assert!(code == 2 || run.stderr.lines().count() == 1, "{}", run.stderr);
    }
}

#[test]
fn a_damaged_trace_is_one_line_that_names_the_place() {
    let folder = folder("damaged");
    let text = std::fs::read_to_string(format!("{TRACE}/kernel-1.traceg")).unwrap();
    let path = folder.join("kernel-1.traceg");
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    let run = buddy(&["simulate", path.to_str().unwrap()]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.lines().count()), (1, "", 1));
    assert!(run.stderr.contains("kernel-1.traceg:"), "{}", run.stderr);
}
