//! All fuzz targets in one program; `BUDDY_FUZZ=npz` selects one. Built by `tools/fuzz.sh`.
#![no_main]

mod arrays;
mod codecs;
mod folder;
mod frozen;
mod model;
mod records;
mod settings;
mod traces;
mod watch;

use std::sync::LazyLock;

use buddy_snapshot::Format;
use libfuzzer_sys::fuzz_target;

/// Targets by name; each takes any bytes and panics if its promise is broken.
const TARGETS: [(&str, fn(&[u8])); 20] = [
    ("decode", codecs::decode),
    ("round_trip", codecs::round_trip),
    ("frozen", frozen::read),
    ("model", model::unpack),
    ("folder", folder::model),
    ("open", folder::open),
    ("watch", |bytes| text(bytes, watch::read)),
    ("npy", |bytes| arrays::read(Format::Npy, bytes)),
    ("npz", |bytes| arrays::read(Format::Npz, bytes)),
    ("safetensors", |bytes| arrays::read(Format::Safetensors, bytes)),
    ("hdf5", |bytes| arrays::read(Format::Hdf5, bytes)),
    ("netcdf", |bytes| arrays::read(Format::NetCdf, bytes)),
    ("gguf", |bytes| arrays::read(Format::Gguf, bytes)),
    ("torch", |bytes| arrays::read(Format::Torch, bytes)),
    ("records", |bytes| text(bytes, records::read)),
    ("toml", |bytes| text(bytes, settings::read)),
    ("sweep", |bytes| text(bytes, settings::plan)),
    ("trace", traces::read),
    ("xz", traces::xz),
    ("tracez", traces::tracez),
];

static CHOSEN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("BUDDY_FUZZ").unwrap_or_default();
    let found = TARGETS.iter().find(|(other, _)| *other == name);
    found.unwrap_or_else(|| panic!("BUDDY_FUZZ is '{name}', which is not a target")).1
});

fuzz_target!(|bytes: &[u8]| CHOSEN(bytes));

fn text(bytes: &[u8], read: fn(&str)) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        read(text);
    }
}
