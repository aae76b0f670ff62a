//! Any text as a TOML file of each kind: GPUs, links, targets by name and by address.
#![no_main]

use buddy_core::spec::{Gpu, Link};
use buddy_profile::{read_targets, write_targets};
use buddy_sim::{ClassMap, TargetsFile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Gpu::parse("fuzz.toml", text);
    let _ = Link::parse("fuzz.toml", text);
    if let Ok(table) = read_targets(text) {
        assert_eq!(read_targets(&write_targets(&table, "", |_| String::new())).unwrap(), table);
    }
    if let Ok(TargetsFile::Addressed(rows)) = TargetsFile::parse("fuzz.toml", text)
        && let Ok(map) = ClassMap::new(rows)
    {
        assert!(map.footprint() <= 1 << 40);
    }
});
