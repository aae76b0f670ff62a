//! Pages, baselines and refused options of `buddy simulate`, and the single runs of the notes.

use serde_json::Value;

use crate::common::buddy;

fn path(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("simulate-page-{name}"))
}

fn json(path: &std::path::Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the numbers after `name` in its row of a page's table, without thin spaces.
fn row(page: &str, name: &str) -> Vec<f64> {
    let (_, rest) = page.split_once(&format!("<td>{name}</td>")).unwrap_or_else(|| panic!("no row {name}"));
    let (cells, _) = rest.split_once("</tr>").unwrap();
    let text =
        |cell: &str| cell.split_once('>')?.1.split_once('<')?.0.replace(['\u{202f}', '%'], "").parse().ok();
    cells.split("<td").filter_map(text).collect()
}

#[test]
fn the_page_of_a_run_has_its_kernels_stalls_and_limits() {
    let (html, record) = (path("run.html"), path("run.json"));
    let run = buddy(&[
        "simulate",
        "bt",
        "--scale",
        "1MB",
        "--html",
        html.to_str().unwrap(),
        "--json",
        record.to_str().unwrap(),
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let (page, data) = (std::fs::read_to_string(&html).unwrap(), json(&record)["data"].clone());
    let solve = data["kernels"].as_array().unwrap().iter().filter(|kernel| kernel["name"] == "solve z");
    let cycles: Vec<u64> = solve.map(|kernel| kernel["cycles"].as_u64().unwrap()).collect();
    assert!(cycles.len() > 1, "a kernel is launched several times");
    assert_eq!(row(&page, "solve z")[..2], [cycles.len() as f64, cycles.iter().sum::<u64>() as f64]);
    assert_eq!(row(&page, "barrier")[0], data["stalls"]["barrier"].as_f64().unwrap());
    assert_eq!(row(&page, "issuing")[0], data["instructions"].as_f64().unwrap());
    let reasons = ["issuing", "memory", "arithmetic", "unit", "memory queue", "barrier", "no warp"];
    let all = reasons.iter().map(|reason| row(&page, reason)[0]).sum::<f64>();
    assert_eq!(
        all,
        data["cycles"].as_f64().unwrap() * 112.0,
        "every cycle of every scheduler is one of them"
    );
    let limit = |name: &str| {
        let limits = data["limits"].as_array().unwrap().iter();
        limits.clone().find(|limit| limit["name"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
    };
    let memory = limit("device memory");
    assert_eq!(memory["share"], data["dram"]["peak_share"]);
    assert_eq!(memory["peak"].as_f64().unwrap().round(), 896.0);
    assert_eq!(limit("issue slots")["peak"], 112.0, "56 multiprocessors, two schedulers each");
    let l2 = data["l2"]["read_sectors"].as_f64().unwrap() * 32.0 / data["seconds"].as_f64().unwrap() / 1e9;
    assert!((limit("L2 reads")["used"].as_f64().unwrap() / l2 - 1.0).abs() < 1e-9);
    let sums = data["by_kernel"].as_array().unwrap();
    let sum = sums.iter().find(|sum| sum["name"] == "solve z").unwrap();
    assert_eq!(
        (&sum["launches"], &sum["cycles"]),
        (&cycles.len().into(), &cycles.iter().sum::<u64>().into())
    );
    let limit = sum["limit"].as_str().unwrap();
    let row = page.split("<td>solve z</td>").nth(1).unwrap().split("</tr>").next().unwrap();
    assert!(page.contains("nearest limit") && row.contains(limit), "{limit}: {row}");
    for heading in ["Traffic and limits", "What the schedulers wait for", "Kernels"] {
        assert!(page.contains(&format!("<h2>{heading}</h2>")), "{heading}");
    }
}

#[test]
fn speed_is_relative_to_ideal_memory_of_the_same_gpu_in_any_order() {
    let record = path("base.json");
    let sweep = |modes: &str| {
        let all =
            ["simulate", "stream", "--size", "4", "--targets", "4x", "--json", record.to_str().unwrap()];
        let sweeps = ["--sweep", "spec=v100,h200", "--sweep", modes];
        let run = buddy(&[&all[..], &sweeps].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        (run.stdout, json(&record)["data"]["runs"].clone())
    };
    let (text, runs) = sweep("mode=buddy,ideal");
    assert!(text.contains("speedup over ideal memory on the same GPU"), "{text}");
    let seconds = |index: usize| runs[index]["report"]["seconds"].as_f64().unwrap();
    let speeds = [seconds(1) / seconds(0), 1.0, seconds(3) / seconds(2), 1.0];
    for (line, speed) in text.lines().skip(3).zip(speeds) {
        assert!(line.contains(&format!("{speed:.2}x")), "{line}: {speed}");
    }
    assert!((speeds[0] / speeds[2] - 1.0).abs() > 0.01, "the GPUs differ: {speeds:?}");
    let (text, _) = sweep("mode=buddy,pinned");
    assert!(text.contains("speedup over the first run"), "{text}");
}

#[test]
fn a_sweep_runs_each_combination_that_a_mode_distinguishes_once() {
    let record = path("distinct.json");
    let run = buddy(&[
        "simulate",
        "stream",
        "--size",
        "1",
        "--targets",
        "2x",
        "--sweep",
        "mode=ideal,buddy",
        "--sweep",
        "metadata=4096,8192",
        "--json",
        record.to_str().unwrap(),
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let ideal = run.stdout.lines().find(|line| line.starts_with("ideal")).unwrap();
    assert_eq!(ideal.split_whitespace().nth(1), Some("-"), "ideal memory has no metadata: {ideal}");
    let data = json(&record);
    let runs: Vec<(&str, &Value)> = data["data"]["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| (run["report"]["mode"].as_str().unwrap(), &run["metadata_bytes"]))
        .collect();
    assert_eq!(runs.iter().map(|run| run.0).collect::<Vec<_>>(), ["ideal", "buddy", "buddy"]);
    assert_eq!((runs[1].1, runs[2].1), (&4096.into(), &8192.into()));
}

#[test]
fn options_that_no_run_uses_are_refused() {
    let refused = |more: &[&str], why: &str| {
        let run = buddy(&[&["simulate"], more].concat());
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{more:?}");
        assert!(run.stderr.contains(why) && run.stderr.lines().count() == 1, "{more:?}: {}", run.stderr);
    };
    let stream = ["stream", "--size", "1"];
    let with = |more: &[&'static str]| [&stream[..], more].concat();
    refused(
        &with(&["--targets", "2x"]),
        "--targets has no effect in mode ideal; it needs --mode bandwidth or buddy",
    );
    refused(
        &with(&["--oversubscription", "0.2", "--mode", "pinned"]),
        "--oversubscription has no effect in mode pinned",
    );
    refused(&with(&["--shares", "0,0,0,1,0,0"]), "--shares has no effect");
    refused(&with(&["--link", "50"]), "--link has no effect in mode ideal");
    refused(&with(&["--targets", "2x", "--sweep", "mode=ideal,um"]), "no effect in mode ideal or um");
    refused(&["bt", "--scale", "1MB", "--codec", "bdi"], "--codec has no effect");
    refused(&["bt", "--scale", "1MB", "--snapshot", "1"], "--snapshot has no effect");
    refused(&with(&["--targets", "2x", "--mode", "buddy", "--snapshot", "1"]), "--snapshot is for workloads");
    refused(&with(&["--recorded", "."]), "--recorded is for networks");
    refused(&with(&["--batch", "8"]), "--batch has no effect on stream; it is for networks");
    refused(&with(&["--sample", "0.1"]), "--sample has no effect on stream; it is for networks");
    refused(&with(&["--scale", "1MB"]), "--scale has no effect on stream; it is for workloads");
    refused(
        &["bt", "--scale", "1MB", "--size", "2"],
        "--size has no effect on bt; it is for generated programs",
    );
    refused(&["bt", "--scale", "1MB", "--link", "50"], "--link has no effect in mode ideal");
    refused(&["gemm", "--ranges", "--batch", "8"], "--batch has no effect on gemm; it is for networks");
    refused(
        &["bt", "--scale", "1MB", "--mode", "buddy", "--shares", "0,0,0,1,0,0"],
        "--shares is for programs",
    );
    for more in [
        &["--mode", "pinned", "--link", "50"][..],
        &["--timed-copies", "--link", "50"],
        &["--mode", "um", "--oversubscription", "0.2", "--link", "50"],
    ] {
        assert_eq!(buddy(&[&["simulate"], &stream[..], more].concat()).code, 0, "{more:?}");
    }
}

/// Bandwidths of `docs/notes/simulator.md` that one run of the command gives.
#[test]
fn the_notes_have_the_bandwidths_of_the_model() {
    let notes = include_str!("../../../../docs/notes/simulator.md");
    let rows = notes.lines().filter(|line| line.contains("| `buddy simulate ") && line.contains(" GB/s"));
    let mut checked = 0;
    for line in rows {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let stated: f64 = cells[2].split_once(" GB/s").unwrap().0.parse().unwrap();
        let record = path("notes.json");
        let command: Vec<&str> = cells[4].trim_matches('`').split(' ').skip(1).collect();
        assert_eq!(buddy(&[&command[..], &["--json", record.to_str().unwrap()]].concat()).code, 0, "{line}");
        let found = json(&record)["data"]["dram"]["gb_per_s"].as_f64().unwrap();
        assert!((found / stated - 1.0).abs() < 0.01, "{line}: {found}");
        checked += 1;
    }
    assert_eq!(checked, 4);
}
