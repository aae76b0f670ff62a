//! The paper's first example at a thousandth of its size: 24 MiB of data in a 12 MiB device memory.
//!
//! `cargo run --release -p buddy-memory --example fit_24_in_12`

use buddy_codec::CodecKind;
use buddy_core::{SizeClass, Target, TargetRange, as_entries};
use buddy_memory::{AllocationReport, BuddyMemory, Error, MemoryReport, Request, Spec};

const MIB: usize = 1 << 20;

fn main() -> Result<(), Error> {
    let report = fit(&mut |line| println!("{line}"))?;
    assert_eq!(report.total.bytes, 24 * MIB as u64);
    Ok(())
}

/// Stores the data, reads it back, and reports the layout line by line.
pub(crate) fn fit(say: &mut impl FnMut(String)) -> Result<MemoryReport, Error> {
    let memory = BuddyMemory::new(Spec::new(12 * MIB as u64))?;
    let arrays = [("counters", counters(8 * MIB)), ("waves", waves(12 * MIB)), ("flags", flags(4 * MIB))];
    let mut handles = Vec::new();
    for (name, data) in &arrays {
        let codec = CodecKind::Bpc.train(as_entries(data).0);
        let pages = |share: usize| (share * MIB / 8192) as u64;
        let request = match *name {
            "counters" => Request::new(data.len() as u64, codec, Target::X4),
            "flags" => Request::new(data.len() as u64, codec, Target::X16),
            // The waves are smooth except for the last part.
            _ => Request::by_pages(
                data.len() as u64,
                codec,
                vec![
                    TargetRange { pages: pages(9), target: Target::X2 },
                    TargetRange { pages: pages(3), target: Target::X1 },
                ],
            ),
        };
        let handle = memory.allocate(&request)?;
        memory.write(handle, 0, data)?;
        handles.push(handle);
    }
    for ((name, data), handle) in arrays.iter().zip(&handles) {
        let mut out = vec![0; data.len()];
        memory.read(*handle, 0, &mut out)?;
        assert!(out == *data, "{name} came back changed");
        tell(name, &memory.report_allocation(*handle)?, say);
    }
    let report = memory.report();
    say(summary(&report));
    Ok(report)
}

fn tell(name: &str, allocation: &AllocationReport, say: &mut impl FnMut(String)) {
    let usage = &allocation.usage;
    say(format!("{name}: {} of data", mib(usage.bytes)));
    for extent in &allocation.extents {
        let range = |base: u64, bytes: u64| format!("{base:#08x} to {:#08x}", base + bytes);
        let device = range(extent.device_base, extent.device_bytes());
        let buddy = match extent.buddy_bytes() {
            0 => "no buddy".to_owned(),
            bytes => format!("buddy at GBBR + {}", range(extent.buddy_base, bytes)),
        };
        say(format!("  {:>4}: {} entries at device {device}, {buddy}", extent.target, extent.entries));
    }
    let classes = SizeClass::ALL.map(|class| format!("{} {class}", usage.entries(class))).join(", ");
    say(format!("  entries: {classes}; {} overflow to the buddy", usage.entries_overflowing));
}

fn summary(report: &MemoryReport) -> String {
    let total = &report.total;
    format!(
        "in all: {} of data on {} of device memory, {:.2}x; {} of metadata ({:.1}% of the data); {} device and {} \
         buddy sectors moved; {:.0}% of device bandwidth saved; {:.1}% of metadata accesses hit",
        mib(total.bytes),
        mib(total.device_bytes),
        total.ratio.unwrap_or(1.0),
        mib(total.metadata_bytes),
        100.0 * total.metadata_bytes as f64 / total.bytes as f64,
        total.traffic.device_sectors(),
        total.traffic.buddy_sectors(),
        100.0 * total.bandwidth_saved.unwrap_or(0.0),
        100.0 * total.metadata_hit_rate.unwrap_or(0.0),
    )
}

fn mib(bytes: u64) -> String {
    format!("{:.2} MiB", bytes as f64 / MIB as f64)
}

/// Consecutive integers.
fn counters(bytes: usize) -> Vec<u8> {
    (0..bytes as u32 / 4).flat_map(|i| (i * 3).to_le_bytes()).collect()
}

/// A slow wave with few significant digits, and a rough last quarter.
fn waves(bytes: usize) -> Vec<u8> {
    let words = bytes as u32 / 4;
    let mut noise = 1u32;
    let mut word = |i: u32| {
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        let wave = (i as f32 * 3e-3).sin() + 2.0;
        if i < words / 4 * 3 { wave.to_bits() & !0xf } else { noise }
    };
    (0..words).flat_map(|i| word(i).to_le_bytes()).collect()
}

/// Mostly zeros.
fn flags(bytes: usize) -> Vec<u8> {
    let word = |i: u32| if i.is_multiple_of(5003) { i } else { 0 };
    (0..bytes as u32 / 4).flat_map(|i| word(i).to_le_bytes()).collect()
}
