//! ARCHITECTURE.md's crate table against the crates as they are, so that the drawing stays true.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use serde_json::Value;

/// Crates by the name of their folder, and the crates they use.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// One row of the table.
struct Row {
    name: String,
    to_come: bool,
    allowed: BTreeSet<String>,
}

#[test]
fn every_crate_has_a_row_and_uses_only_what_the_row_allows() {
    assert_eq!(violations(&table(&architecture()), &workspace()), [""; 0]);
}

#[test]
fn a_row_depends_only_on_rows_above_it() {
    let mut above = BTreeSet::new();
    for row in table(&architecture()) {
        assert!(row.allowed.is_subset(&above), "{} may use {:?}", row.name, row.allowed);
        above.insert(row.name);
    }
}

/// `libbuddy.so` goes into other programs, so it carries neither the readers of files nor the laboratory.
#[test]
fn what_programs_link_reads_no_files() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--package=buddy-capi", "--edges=normal", "--prefix=none"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    let carried: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(carried.contains("buddy-cuda"), "{tree}");
    for unwanted in ["buddy-gpu-lab", "buddy-profile", "buddy-snapshot", "memmap2", "safetensors", "zip"] {
        assert!(!carried.contains(unwanted), "libbuddy.so carries {unwanted}");
    }
}

#[test]
fn each_way_to_break_the_table_is_found() {
    let table = table(
        "| crate | what | may depend on |\n|---|---|---|\n| core | x | nothing |\n| codec | x | core |\n\
         | *sim* (to come) | x | core |\n| cli | x | everything above |\n\nand other text",
    );
    let broken = |crates: &[(&str, &[&str])]| {
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        violations(&table, &crates.iter().map(|(name, uses)| (name.to_string(), set(uses))).collect())
    };
    assert_eq!(broken(&[("core", &[]), ("codec", &["core"]), ("cli", &["core", "codec"])]), [""; 0]);
    assert_eq!(broken(&[("core", &["codec"]), ("codec", &[]), ("cli", &[])]), ["core may not use codec"]);
    assert_eq!(broken(&[("core", &[]), ("cli", &[])]), ["codec has a row but no crate"]);
    assert_eq!(
        broken(&[("core", &[]), ("codec", &[]), ("cli", &["gui"]), ("gui", &[])]),
        ["cli may not use gui", "gui has no row"]
    );
}

/// What in `crates` the table does not allow.
fn violations(table: &[Row], crates: &Uses) -> Vec<String> {
    let mut found = Vec::new();
    for (name, uses) in crates {
        match table.iter().find(|row| row.name == *name) {
            Some(row) => {
                found.extend(uses.difference(&row.allowed).map(|used| format!("{name} may not use {used}")))
            }
            None => found.push(format!("{name} has no row")),
        }
    }
    let missing = table.iter().filter(|row| !row.to_come && !crates.contains_key(&row.name));
    found.extend(missing.map(|row| format!("{} has a row but no crate", row.name)));
    found
}

fn architecture() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md")).unwrap()
}

/// The rows of the crate table: a crate, what it is, and what it may depend on.
fn table(text: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let head = text.lines().skip_while(|line| !line.starts_with("| crate |"));
    for line in head.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, _, allowed] = cells[..] else { panic!("a row has three cells: {line}") };
        let to_come = name.ends_with("(to come)");
        let name = name.trim_end_matches("(to come)").trim().trim_matches('*').to_owned();
        let allowed = match allowed {
            "nothing" => BTreeSet::new(),
            "everything above" => rows.iter().map(|row| row.name.clone()).collect(),
            names => names.split(", ").map(str::to_owned).collect(),
        };
        rows.push(Row { name, to_come, allowed });
    }
    assert!(rows.len() > 3, "the crate table was not found");
    rows
}

/// The workspace's crates and their dependencies on each other, those of tests left out.
fn workspace() -> Uses {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| (folder(Path::new(text(&package["manifest_path"])).parent()), uses(package)))
        .collect()
}

/// The folders of the workspace crates that a package depends on. Only those have a path.
fn uses(package: &Value) -> BTreeSet<String> {
    let dependencies = package["dependencies"].as_array().unwrap().iter();
    dependencies
        .filter(|dependency| dependency["kind"] != "dev" && dependency["path"].is_string())
        .map(|dependency| folder(Some(Path::new(text(&dependency["path"])))))
        .collect()
}

fn folder(path: Option<&Path>) -> String {
    path.and_then(Path::file_name).unwrap().to_str().unwrap().to_owned()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}
