//! `buddy gpu correlate` without a GPU: traces and times from a folder.

use serde_json::{Value, json};

use crate::common::buddy;

/// Makes a folder with one real trace, cold and warm, and the given times.
fn folder(name: &str, measured: &Value) -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("correlate-{name}"));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/vectoradd/kernel-1.traceg");
    std::fs::copy(trace, path.join("add.traceg")).unwrap();
    let packed = path.join("warm.warps");
    assert_eq!(buddy(&["trace", "convert", trace, packed.to_str().unwrap()]).code, 0);
    std::fs::write(path.join("measured.json"), measured.to_string()).unwrap();
    path
}

#[test]
fn a_folder_of_traces_is_compared_with_a_model() {
    let measured = json!([
        {"trace": "add.traceg", "program": "vectorAdd", "cycles": 1000.0, "ns": 5.0, "registers": 12},
        {"trace": "warm.warps", "group": "warm ones", "ns": 1000.0, "warm": true},
    ]);
    let folder = folder("two", &measured);
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let run = buddy(&[
        "gpu",
        "correlate",
        "--traces",
        folder.to_str().unwrap(),
        "--spec",
        "h200",
        "--json",
        &path("out.json"),
        "--html",
        &path("out.html"),
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("all            2 kernels: mean error"), "{}", run.stdout);
    let record: Value = serde_json::from_str(&std::fs::read_to_string(path("out.json")).unwrap()).unwrap();
    assert_eq!((&record["kind"], &record["data"]["spec"]), (&json!("correlation"), &json!("h200")));
    let rows = record["data"]["rows"].as_array().unwrap();
    let (cold, warm) = (&rows[0], &rows[1]);
    assert_eq!((&cold["name"], &cold["group"]), (&json!("add"), &json!("programs")));
    assert_eq!((&warm["name"], &warm["group"]), (&json!("warm"), &json!("warm ones")));
    // The model's clock converts cycles to time; the warm run hits in L2.
    let clock = record["data"]["clock_mhz"].as_f64().unwrap();
    assert!((cold["card_ns"].as_f64().unwrap() - 1e6 / clock).abs() < 1e-6);
    assert!(warm["model_ns"].as_f64().unwrap() < cold["model_ns"].as_f64().unwrap());
    assert_eq!((&warm["model_read_bytes"], warm["card_ns"].as_f64()), (&json!(0), Some(1000.0)));
    assert!(std::fs::read_to_string(path("out.html")).unwrap().contains("<svg"));
}

#[test]
fn correlate_rejects_bad_folders() {
    let outside = json!([{"trace": "../add.traceg", "ns": 5.0}]);
    let folder = folder("outside", &outside);
    let run =
        |spec: &[&str]| buddy(&[&["gpu", "correlate", "--traces", folder.to_str().unwrap()], spec].concat());
    assert!(run(&["--spec", "h200"]).stderr.contains("is not inside the folder"));
    assert!(run(&[]).stderr.contains("--traces needs --spec"));
    std::fs::remove_file(folder.join("measured.json")).unwrap();
    assert!(run(&["--spec", "h200"]).stderr.contains("measured.json: No such file"));
}
