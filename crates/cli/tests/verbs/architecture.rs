//! Checks ARCHITECTURE.md's crate table against the crates.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use serde_json::Value;

/// Crates by folder name, with the crates they use.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// One row of the table.
struct Row {
    name: String,
    uses: BTreeSet<String>,
}

#[test]
fn every_crate_has_a_row_and_uses_what_the_row_says() {
    let uses = packages().iter().map(|package| (folder(manifest(package).parent()), uses(package))).collect();
    assert_eq!(violations(&table(&architecture()), &uses), [""; 0]);
}

/// Unused dependencies would make the table wrong.
#[test]
fn every_dependency_is_named_in_the_sources() {
    for package in packages() {
        let sources = sources(&manifest(&package).parent().unwrap().join("src"));
        for dependency in workspace_dependencies(&package) {
            let name =
                text(dependency.get("rename").filter(|name| name.is_string()).unwrap_or(&dependency["name"]))
                    .replace('-', "_")
                    + "::";
            assert!(sources.contains(&name), "{} does not use {name}", package["name"]);
        }
    }
}

#[test]
fn a_row_depends_only_on_rows_above_it() {
    let mut above = BTreeSet::new();
    for row in table(&architecture()) {
        assert!(row.uses.is_subset(&above), "{} uses {:?}", row.name, row.uses);
        above.insert(row.name);
    }
}

/// `libbuddy.so` is linked into other programs, so it must not contain file readers or the GPU lab.
#[test]
fn libbuddy_links_no_file_readers() {
    let carried = carried("buddy-c");
    assert!(carried.contains("buddy-cuda"), "{carried:?}");
    for unwanted in FILE_READERS.into_iter().chain(["buddy-gpu-lab", "buddy-profile"]) {
        assert!(!carried.contains(unwanted), "libbuddy.so carries {unwanted}");
    }
}

/// A program that compresses buffers compiles no readers of files unless it asks for them.
#[test]
fn the_rust_library_has_file_readers_only_by_its_feature() {
    let carried = carried("buddy");
    assert!(carried.contains("buddy-memory"), "{carried:?}");
    for unwanted in FILE_READERS.into_iter().chain(["buddy-cuda"]) {
        assert!(!carried.contains(unwanted), "buddy carries {unwanted}");
    }
}

/// Packages that read or write files.
const FILE_READERS: [&str; 8] =
    ["serde_json", "toml", "buddy-record", "buddy-snapshot", "hdf5-reader", "memmap2", "safetensors", "zip"];

/// Returns the names of the packages that a package links, with its default features.
fn carried(package: &str) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges=normal", "--prefix=none", "--package", package])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn every_kind_of_table_error_is_reported() {
    let table = table(
        "| crate | what | depends on |\n|---|---|---|\n| core | x | nothing |\n| codec | x | core |\n\
         | sim | x | core |\n| cli | x | core, codec |\n\nand other text",
    );
    let broken = |changed: &[(&str, &[&str])]| {
        let right: [(&str, &[&str]); 4] =
            [("core", &[]), ("codec", &["core"]), ("sim", &["core"]), ("cli", &["core", "codec"])];
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let all = right.iter().chain(changed).map(|(name, uses)| (name.to_string(), set(uses)));
        let mut all: Uses = all.collect();
        all.retain(|_, uses| *uses != set(&["gone"]));
        violations(&table, &all)
    };
    assert_eq!(broken(&[]), [""; 0]);
    assert_eq!(broken(&[("core", &["codec"])]), ["core may not use codec"]);
    assert_eq!(broken(&[("cli", &["core"])]), ["cli does not use codec"]);
    assert_eq!(broken(&[("sim", &["gone"])]), ["sim has a row but no crate"]);
    assert_eq!(broken(&[("gui", &[])]), ["gui has no row"]);
}

/// Returns the differences between `crates` and the table.
fn violations(table: &[Row], crates: &Uses) -> Vec<String> {
    let mut found = Vec::new();
    for (name, uses) in crates {
        match table.iter().find(|row| row.name == *name) {
            Some(row) => {
                found.extend(uses.difference(&row.uses).map(|used| format!("{name} may not use {used}")));
                found.extend(row.uses.difference(uses).map(|unused| format!("{name} does not use {unused}")));
            }
            None => found.push(format!("{name} has no row")),
        }
    }
    let missing = table.iter().filter(|row| !crates.contains_key(&row.name));
    found.extend(missing.map(|row| format!("{} has a row but no crate", row.name)));
    found
}

fn architecture() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md")).unwrap()
}

/// Parses the crate table: name, description, dependencies.
fn table(text: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let head = text.lines().skip_while(|line| !line.starts_with("| crate |"));
    for line in head.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, _, uses] = cells[..] else { panic!("a row has three cells: {line}") };
        let uses = uses.split(", ").filter(|name| *name != "nothing").map(str::to_owned).collect();
        rows.push(Row { name: name.to_owned(), uses });
    }
    assert!(rows.len() > 3, "the crate table was not found");
    rows
}

/// Returns the workspace's crates.
fn packages() -> Vec<Value> {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Returns the folders of the workspace crates that a package depends on.
fn uses(package: &Value) -> BTreeSet<String> {
    workspace_dependencies(package).map(|used| folder(Some(Path::new(text(&used["path"]))))).collect()
}

/// Returns the dependencies on workspace crates, which have a path; not dev-dependencies.
fn workspace_dependencies(package: &Value) -> impl Iterator<Item = &Value> {
    let dependencies = package["dependencies"].as_array().unwrap().iter();
    dependencies.filter(|dependency| dependency["kind"] != "dev" && dependency["path"].is_string())
}

/// Concatenates every source file below a folder.
fn sources(dir: &Path) -> String {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| match path.is_dir() {
            true => sources(&path),
            false => std::fs::read_to_string(&path).unwrap_or_default(),
        })
        .collect()
}

fn manifest(package: &Value) -> &Path {
    Path::new(text(&package["manifest_path"]))
}

fn folder(path: Option<&Path>) -> String {
    path.and_then(Path::file_name).unwrap().to_str().unwrap().to_owned()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}
