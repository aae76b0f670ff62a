//! Files of every version of every format, in `data/versions`, stay readable for ever. A new
//! version adds a file there and a test here, and removes none.

use std::{fs, path::PathBuf};

use buddy_codec::{CodecKind, Frozen, Tight, freeze, samples::Noise, seal, tighten};
use buddy_core::Target;
use buddy_dl::Accuracy;
use buddy_gpu_lab::{
    AttentionReport, BenchReport, CgReport, CheckReport, CompressibleReport, FusedReport, LargeReport,
    SoakReport,
};
use buddy_model::{Job, unpack};
use buddy_record::{Analysis, Figure, Profile, Record, RecordError, RecordKind, RunRecord};
use buddy_snapshot::Run;
use buddy_sweep::{Outcome, Plan, Points, Results};
use buddy_trace::{At, Code, Kernel};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(path("data/versions").join(name)).unwrap()
}

#[test]
fn records_of_version_1_are_readable() {
    let run = Record::<RunRecord>::from_json(&text("run-1.json")).unwrap().data;
    assert_eq!((run.run.allocations.len(), run.sizes.len()), (2, 3));
    let profile = Record::<Profile>::from_json(&text("profile-1.json")).unwrap().data;
    assert_eq!((profile.run.snapshots.len(), profile.policies.len() > 2), (3, true));
    let analysis = Record::<Analysis>::from_json(&text("analysis-1.json")).unwrap().data;
    assert_eq!(analysis.arrays.len(), 2);
    let figure = Record::<Figure>::from_json(&text("figure-1.json")).unwrap().data;
    assert_eq!((figure.name.as_str(), figure.panels.len()), ("table2", 1));
    let accuracy = Record::<Accuracy>::from_json(&text("accuracy-1.json")).unwrap().data;
    assert_eq!((accuracy.epochs, accuracy.runs.len()), (2, 3));
    let simulation = Record::<buddy_sim::Report>::from_json(&text("simulation-1.json")).unwrap().data;
    assert!(simulation.cycles > 6000, "{}", simulation.cycles);
}

/// GPU measurements and sweeps that the documentation shows.
#[test]
fn records_of_the_documentation_are_readable() {
    fn read<T: RecordKind>(text: &str) -> Result<(), RecordError> {
        Record::<T>::from_json(text).map(drop)
    }
    let mut read_of: u32 = 0;
    for entry in fs::read_dir(path("docs/records")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let result = match value["kind"].as_str() {
            Some("correlation") => read::<buddy_study::correlate::Correlation>(&text),
            Some("gpu-attention") => read::<AttentionReport>(&text),
            Some("gpu-bench") => read::<BenchReport>(&text),
            Some("gpu-cg") => read::<CgReport>(&text),
            Some("gpu-compressible") => read::<CompressibleReport>(&text),
            Some("gpu-fused") => read::<FusedReport>(&text),
            Some("gpu-large") => read::<LargeReport>(&text),
            Some("gpu-soak") => read::<SoakReport>(&text),
            Some("gpu-test") => read::<CheckReport>(&text),
            Some("sweep") => read::<Results>(&text),
            _ => continue, // written by a script of Python, which reads it
        };
        // An older measurement keeps its version and is rejected by it, not misread.
        let is_older =
            matches!(&result, Err(RecordError::Version { found, expected, .. }) if found < expected);
        assert!(result.is_ok() || is_older, "{}: {result:?}", path.display());
        read_of += u32::from(result.is_ok());
    }
    assert!(read_of >= 15, "{read_of}");
}

#[test]
fn a_plan_and_a_point_of_a_sweep_of_version_1() {
    let plan = Plan::read(&path("data/versions/sweep-1.toml")).unwrap();
    assert_eq!((plan.name.as_str(), plan.size()), ("old", 2 * 3 * 2 * 2 * 2));
    assert_eq!(Points::of(plan).unwrap().len(), 16, "what is skipped, and what is not among the only ones");
    let point = Record::<Outcome>::from_json(&text("sweep-point-1.json")).unwrap().data;
    assert_eq!((point.capacity, point.report.cycles), (Some(2.0), 9123));
}

#[test]
fn packed_models_of_versions_1_and_2_are_the_file_that_they_were_made_from() {
    for (version, unchecked) in [(1, 1), (2, 0)] {
        let (from, to) = (path(&format!("data/versions/model-{version}")), tempfile::tempdir().unwrap());
        let report = unpack(&Job { from: &from, to: to.path(), verify: false }, &|_| ()).unwrap();
        assert_eq!((report.files, report.sizes.plain, report.unchecked), (1, 8384, unchecked));
        assert_eq!(buddy_model::verify(&from, &|_| ()).unwrap().unchecked, unchecked);
        let plain = fs::read(to.path().join("model.safetensors")).unwrap();
        assert_eq!(buddy_core::checksum(&plain), 0x83603611, "version {version}");
        let config = fs::read_to_string(to.path().join("config.json")).unwrap();
        assert_eq!(config, "{\"model_type\": \"llama\", \"hidden_size\": 256}\n");
    }
}

#[test]
fn a_log_of_a_watched_program_of_version_1() {
    let watched = buddy_inject::parse(&text("watch-1.log")).unwrap();
    let record = watched.record().unwrap();
    assert_eq!((watched.pid, record.run.allocations.len(), record.sizes.len()), (42, 1, 1));
}

#[test]
fn a_run_of_version_1_with_its_snapshots() {
    let run = Run::open(&path("examples/run")).unwrap();
    assert_eq!((run.info().version, run.info().snapshots.len()), (1, 3));
}

#[test]
fn targets_of_version_1() {
    let table = buddy_profile::read_targets(&text("targets-1.toml")).unwrap();
    assert_eq!((table.version, table.allocations.len()), (1, 2));
}

#[test]
fn a_packed_trace_of_version_1_is_the_text_that_it_was_made_from() {
    let mut packed = buddy_trace::open_kernel(&path("data/versions/trace-1.warps")).unwrap();
    let mut plain = buddy_trace::open_kernel(&path("crates/trace/tests/vectoradd/kernel-1.traceg")).unwrap();
    assert_eq!(packed.launch(), plain.launch());
    let read = |kernel: &mut dyn Kernel| {
        let mut code = Code::default();
        kernel.fill(At { block: 0, warp: 0, step: 0 }, &mut code).unwrap();
        code.insts().iter().map(|inst| format!("{:?}", code.addresses(inst))).collect::<Vec<_>>()
    };
    let (packed, plain) = (read(packed.as_mut()), read(plain.as_mut()));
    assert!(!plain.is_empty() && packed == plain);
}

/// Returns rising numbers, zeros and noise.
fn data() -> Vec<u8> {
    let word = |i: u32| match i / 512 {
        0 => 7 * i,
        1 => 0,
        _ => i.wrapping_mul(2_654_435_761),
    };
    (0..1536).flat_map(|i| word(i).to_le_bytes()).collect()
}

#[test]
fn frozen_buffers_of_versions_1_to_3() {
    if std::env::var_os("BUDDY_WRITE_VERSIONS").is_some() {
        let codec = CodecKind::Bpc.train(&[]);
        let mut frozen = freeze(&codec, Target::X2, 0, &data()).unwrap();
        fs::write(path("data/versions/frozen-2.bin"), &frozen).unwrap();
        seal(&mut frozen).unwrap();
        fs::write(path("data/versions/frozen-3.bin"), &frozen).unwrap();
    }
    for (version, sealed) in [(1, false), (2, false), (3, true)] {
        let bytes = fs::read(path(&format!("data/versions/frozen-{version}.bin"))).unwrap();
        let frozen = Frozen::open(&bytes).unwrap();
        assert_eq!(frozen.check(), Ok(sealed), "version {version}");
        assert!(frozen.read().unwrap() == data(), "version {version}");
    }
}

/// Returns a bf16 matrix of 40 rows of 192 values, a few of them far from the others.
fn matrix() -> Vec<u8> {
    let mut noise = Noise(1);
    let mut value = |i: u32| match i % 997 {
        0 => 0x7f80,
        1 => (i % 0x10000) as u16,
        _ => (((0.02 * noise.normal()) as f32).to_bits() >> 16) as u16,
    };
    (0..40 * 192).flat_map(|i| value(i).to_le_bytes()).collect()
}

#[test]
fn a_tight_matrix_of_version_4() {
    if std::env::var_os("BUDDY_WRITE_VERSIONS").is_some() {
        fs::write(path("data/versions/frozen-4.bin"), tighten(3, &matrix()).unwrap()).unwrap();
    }
    let bytes = fs::read(path("data/versions/frozen-4.bin")).unwrap();
    let tight = Tight::open(&bytes).unwrap();
    assert_eq!((tight.header().row, tight.header().bytes, tight.check()), (3, 15360, Ok(true)));
    assert!(tight.read().unwrap() == matrix());
}
