//! The example record is that of the example run, and the reference page shows the script that made
//! it.

use std::{fs, path::PathBuf};

use buddy_codec::CodecKind;
use buddy_profile::record_run;
use buddy_record::{Record, RunRecord};
use buddy_snapshot::Run;

fn shipped(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn the_example_record_is_that_of_the_example_run() {
    let text = fs::read_to_string(shipped("examples/run-record.json")).unwrap();
    let record = Record::<RunRecord>::from_json(&text).unwrap();
    record.data.validate().unwrap();
    let run = Run::open(&shipped("examples/run")).unwrap();
    assert_eq!(record_run(&run, &[CodecKind::Bpc], &|_| ()).unwrap(), record.data);
}

#[test]
fn the_reference_page_shows_the_example_script() {
    let page = fs::read_to_string(shipped("docs/reference/snapshots.md")).unwrap();
    let script = fs::read_to_string(shipped("examples/heat_run.py")).unwrap();
    assert!(page.contains(&script), "docs/reference/snapshots.md and examples/heat_run.py differ");
}
