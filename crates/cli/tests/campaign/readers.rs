//! Every reader of a file, a valid file for it, and the checks on accepted data.

use std::{fs, io::Cursor, path::Path};

use buddy_codec::{CodecKind, Frozen, Tight};
use buddy_dl::Accuracy;
use buddy_profile::{Measured, Settings, Tried, profile, read_targets, write_targets};
use buddy_record::{
    Analysis, Figure, Profile, Record, RecordKind, RunRecord,
    spec::{Gpu, Link},
};
use buddy_report::{View, analysis_page, profile_page, profile_text, study_page};
use buddy_sim::{ClassMap, TargetsFile};
use buddy_snapshot::{Format, Run, read_memory};
use buddy_trace::{At, Code, Kernel, accel, packed};

use crate::stores;

/// A reader and a valid file to corrupt. It panics if it accepted data that it should reject.
pub(crate) struct Reader {
    pub(crate) name: &'static str,
    pub(crate) honest: Vec<u8>,
    /// Returns whether the bytes were accepted. The folder is for readers of paths.
    pub(crate) read: fn(&[u8], &Path) -> bool,
}

/// Returns all readers.
pub(crate) fn readers() -> Vec<Reader> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = |name: &str| fs::read(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let reader = |name, honest, read| Reader { name, honest: file(honest), read };
    vec![
        reader("npy", "fuzz/seeds/npy/f4.npy", |bytes, _| arrays(Format::Npy, bytes)),
        reader("npz stored", "fuzz/seeds/npz/stored.npz", |bytes, _| arrays(Format::Npz, bytes)),
        reader("npz deflated", "fuzz/seeds/npz/deflated.npz", |bytes, _| arrays(Format::Npz, bytes)),
        reader("safetensors", "fuzz/seeds/safetensors/two.safetensors", |bytes, _| {
            arrays(Format::Safetensors, bytes)
        }),
        reader("HDF5", "crates/snapshot/tests/data/fields.h5", |bytes, _| arrays(Format::Hdf5, bytes)),
        reader("PyTorch", "crates/snapshot/tests/data/state.pt", |bytes, _| {
            arrays(Format::Torch, &checked(bytes))
        }),
        reader("GGUF", "fuzz/seeds/gguf/two.gguf", |bytes, _| arrays(Format::Gguf, bytes)),
        reader("packed model of version 1", "data/versions/model-1/model.safetensors", stores::packed),
        reader("packed folder of version 1", "data/versions/model-1/buddy.json", stores::packed_folder_1),
        reader("packed model", "data/versions/model-2/model.safetensors", stores::packed_model),
        reader("packed folder", "data/versions/model-2/buddy.json", stores::packed_folder),
        reader("plan of a sweep", "data/versions/sweep-1.toml", |bytes, _| text(bytes, stores::plan)),
        reader("point of a sweep", "fuzz/seeds/records/sweep-point", stores::point),
        reader("log of a watched program", "data/versions/watch-1.log", |bytes, _| text(bytes, stores::log)),
        reader("run.json", "examples/run/run.json", run_directory),
        reader("record of a run", "data/versions/run-1.json", |bytes, _| record(bytes, run)),
        reader("record of a profile", "data/versions/profile-1.json", |bytes, _| {
            record(bytes, |record: &Record<Profile>| {
                drop((profile_text(&record.data, &View::default()), profile_page(record)))
            })
        }),
        reader("record of a figure", "data/versions/figure-1.json", |bytes, _| {
            record(bytes, |found: &Record<Figure>| {
                study_page(std::slice::from_ref(found), &[], &[], ("x", ""));
            })
        }),
        reader("record of an analysis", "data/versions/analysis-1.json", |bytes, _| {
            record(bytes, |record: &Record<Analysis>| drop(analysis_page(record)))
        }),
        reader("record of accuracy", "data/versions/accuracy-1.json", |bytes, _| {
            record(bytes, |record: &Record<Accuracy>| {
                let shares = record.data.summaries().into_iter().map(|one| one.last);
                assert!({ shares }.all(|share| (0.0..=1.0).contains(&share)));
            })
        }),
        reader("record of a simulation", "data/versions/simulation-1.json", |bytes, _| {
            record(bytes, |_: &Record<buddy_sim::Report>| ())
        }),
        reader("spec of a GPU", "specs/h200.toml", |bytes, _| {
            text(bytes, |text| Gpu::parse("x", text).is_ok())
        }),
        reader("spec of a link", "specs/link-150.toml", |bytes, _| {
            text(bytes, |text| Link::parse("x", text).is_ok())
        }),
        reader("targets by name", "data/versions/targets-1.toml", |bytes, _| text(bytes, named)),
        Reader {
            name: "targets by address",
            honest: BY_ADDRESS.into(),
            read: |bytes, _| text(bytes, addressed),
        },
        reader("trace as text", "crates/trace/tests/vectoradd/kernel-1.traceg", |bytes, _| {
            kernel(accel::Reader::new("x", Cursor::new(bytes.to_vec())))
        }),
        reader("trace as xz", "crates/trace/tests/vectoradd/kernel-1.traceg.xz", |bytes, _| {
            kernel(accel::Reader::new_xz("x", Cursor::new(bytes.to_vec())))
        }),
        reader("packed trace", "data/versions/trace-1.warps", |bytes, _| {
            kernel(packed::Reader::new("x", Cursor::new(sealed(bytes))))
        }),
        reader("list of kernels", "crates/trace/tests/vectoradd/kernelslist.g", |bytes, dir| {
            fs::write(dir.join("kernelslist.g"), bytes).unwrap();
            accel::read_list(dir).is_ok()
        }),
        reader("frozen buffer", "data/versions/frozen-1.bin", |bytes, _| frozen(bytes)),
        reader("frozen buffer with checksums", "data/versions/frozen-3.bin", |bytes, _| frozen(bytes)),
        reader("tight matrix", "data/versions/frozen-4.bin", |bytes, _| tight(bytes)),
    ]
}

const BY_ADDRESS: &str = "[[allocation]]\nbase = 4096\nbytes = 4096\ntarget = \"4x\"\nclass = \"s1\"\n\
    [[allocation]]\nbase = 32768\nbytes = 128\ntarget = \"2x\"\nshares = [0.25, 0, 0, 0.25, 0, 0.5]\nseed = 3\n";

fn arrays(format: Format, bytes: &[u8]) -> bool {
    let Ok(arrays) = read_memory(format, "x", bytes.to_vec(), None) else { return false };
    let total: u64 = arrays.iter().map(|array| array.bytes().len() as u64).sum();
    assert!(total <= buddy_snapshot::inflate_limit(bytes.len() as u64), "more than the inflation limit");
    for array in &arrays {
        let elements: u64 = array.shape.iter().product();
        assert_eq!(array.bytes().len() as u64, elements * array.dtype.bytes() as u64);
    }
    true
}

/// Clears the checksums of a zip, as PyTorch may, so that mutations reach the data behind them.
fn checked(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (mark, sum) in [(b"PK\x03\x04", 14), (b"PK\x01\x02", 16)] {
        let found = bytes.windows(4).enumerate().filter(|(_, four)| four == mark).map(|(at, _)| at + sum);
        for at in found.collect::<Vec<_>>() {
            if let Some(sum) = bytes.get_mut(at..at + 4) {
                sum.fill(0);
            }
        }
    }
    bytes
}

/// Opens the example run with another description.
fn run_directory(bytes: &[u8], dir: &Path) -> bool {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/run");
    for file in ["snapshot-0.safetensors", "snapshot-1.safetensors", "snapshot-2.safetensors"] {
        if !dir.join(file).exists() {
            fs::copy(example.join(file), dir.join(file)).unwrap();
        }
    }
    fs::write(dir.join("run.json"), bytes).unwrap();
    let Ok(run) = Run::open(dir) else { return false };
    assert_eq!(run.info().bytes(), 20_736, "the size comes from the snapshots, not the description");
    true
}

fn text(bytes: &[u8], read: impl FnOnce(&str) -> bool) -> bool {
    std::str::from_utf8(bytes).is_ok_and(read)
}

fn record<T: RecordKind>(bytes: &[u8], used: impl FnOnce(&Record<T>)) -> bool {
    text(bytes, |text| {
        let Ok(record) = Record::<T>::from_json(text) else { return false };
        used(&record);
        true
    })
}

fn run(record: &Record<RunRecord>) {
    let tried = Tried { kinds: vec![CodecKind::Bpc], auto: true, threshold: 0.3 };
    let Ok(measured) = Measured::from_record(&record.data, &tried) else { return };
    let Ok((profile, _)) = profile(&measured, &Settings::final_design(CodecKind::Bpc)) else { return };
    let ratios = profile.policies.iter().map(|one| one.ratio);
    assert!({ ratios }.all(|ratio| ratio > 0.0 && ratio <= 16.0), "no target gives more than 16x");
    assert!(profile.best_ratio.is_none_or(|best| best >= 1.0), "no class is larger than an entry");
}

fn named(text: &str) -> bool {
    let Ok(table) = read_targets(text) else { return false };
    assert_eq!(read_targets(&write_targets(&table, "", |_| String::new())).unwrap(), table);
    true
}

fn addressed(text: &str) -> bool {
    let Ok(TargetsFile::Addressed(rows)) = TargetsFile::parse("x", text) else { return false };
    let Ok(map) = ClassMap::new(rows) else { return false };
    // Counting a terabyte of entries would take too long.
    if map.footprint() < 1 << 30 {
        assert!((0.0..=1.0).contains(&map.overflow_share()));
    }
    true
}

fn kernel<K: Kernel>(opened: Result<K, buddy_trace::Error>) -> bool {
    let Ok(mut kernel) = opened else { return false };
    let (blocks, warps) = (kernel.launch().blocks(), kernel.launch().warps());
    let all = (0..blocks).flat_map(|block| (0..warps).map(move |warp| At { block, warp, step: 0 }));
    let mut code = Code::default();
    for at in all.take(64) {
        code.clear();
        if kernel.fill(at, &mut code).is_err() {
            return false;
        }
        for inst in code.insts() {
            std::hint::black_box(code.addresses(inst));
        }
    }
    true
}

/// Recomputes the checksums of a packed trace, so that mutations reach the data behind them.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let (mut bytes, mut at) = (bytes.to_vec(), 12);
    while let Some(head) = bytes.get(at..at + 4) {
        let length = u32::from_le_bytes(head.try_into().expect("four bytes")) as usize;
        let Some(frame) = bytes.get(at + 8..).and_then(|rest| rest.get(..length)) else { break };
        let sum = buddy_core::checksum(frame).to_le_bytes();
        bytes[at + 4..at + 8].copy_from_slice(&sum);
        at += 8 + length;
    }
    bytes
}

/// A buffer whose checksum matches decodes; any other gives data or an error.
fn frozen(bytes: &[u8]) -> bool {
    let Ok(frozen) = Frozen::open(bytes) else { return false };
    let whole = frozen.check();
    let Ok(data) = frozen.read() else {
        assert_ne!(whole, Ok(true), "bytes that match their checksum do not decode");
        return false;
    };
    assert_eq!(data.len() as u64, frozen.header().bytes);
    whole.is_ok()
}

/// As [`frozen`].
fn tight(bytes: &[u8]) -> bool {
    let Ok(tight) = Tight::open(bytes) else { return false };
    let whole = tight.check();
    let entry = tight.entry(0);
    let Ok(data) = tight.read() else {
        assert_ne!(whole, Ok(true), "bytes that match their checksum do not decode");
        return false;
    };
    assert_eq!(data.len() as u64, tight.header().bytes);
    assert!(data.is_empty() || entry.is_ok_and(|entry| entry == data[..entry.len()]));
    whole.is_ok()
}
