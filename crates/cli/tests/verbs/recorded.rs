//! Every record in `data/recorded` is read, profiled and drawn.

use std::{fs, path::Path, process::Command};

use buddy_dl::{PAPER, TODAY};
use tempfile::TempDir;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/recorded");
const KINDS: [&str; 5] = ["weights", "gradients", "optimizer", "activations", "input"];

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn every_network_is_there_and_has_a_profile_and_heat_maps() {
    let dir = TempDir::new().unwrap();
    for network in PAPER.iter().chain(&TODAY).map(|info| info.name) {
        let record = Path::new(RECORDED).join(network).with_extension("json");
        let mut command = Command::new(env!("CARGO_BIN_EXE_buddy"));
        command.current_dir(dir.path()).arg("profile").arg(&record);
        let output = command.args(["--json", "p.json", "--html", "p.html"]).output().unwrap();
        assert!(output.status.success(), "{network}: {output:?}");
        let profile = json(&dir.path().join("p.json"));
        let run = &profile["data"]["run"];
        assert_eq!(run["snapshots"].as_array().unwrap().len(), 10, "{network}");
        for allocation in run["allocations"].as_array().unwrap() {
            let (name, kind) =
                (allocation["name"].as_str().unwrap(), allocation["call_site"].as_str().unwrap());
            assert!(KINDS.contains(&kind) && name.starts_with(&format!("{kind}/")), "{network}: {name}");
        }
        let page = fs::read_to_string(dir.path().join("p.html")).unwrap();
        assert!(page.matches("<canvas").count() > 10, "{network} has heat maps");
        fs::remove_file(dir.path().join("p.json")).unwrap();
        fs::remove_file(dir.path().join("p.html")).unwrap();
    }
}
