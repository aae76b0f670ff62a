//! Latency of one load through each level, computed by hand and matched to the cycle.

mod common;

use buddy_core::{SizeClass, Target};
use buddy_sim::{Allocation, ClassMap, Config, Home, Mode};
use buddy_trace::{Inst, NO_REGISTER, Op};
use common::{Script, run, uniform, v100};

/// Returns a load by one lane with address register `from`.
fn load(op: Op, to: u8, from: u8, address: u64) -> Inst {
    Inst::new(op, to, &[from]).at(address, 4, 4).masked(1)
}

/// Returns the cycles that the last of a chain of dependent loads adds.
fn last_load_cycles(config: &Config, loads: &[(Op, u64)]) -> u64 {
    let chain = |count: usize| {
        let chained = loads[..count].iter().enumerate();
        let mut insts: Vec<Inst> =
            chained.map(|(i, &(op, address))| load(op, 11 + i as u8, 10 + i as u8, address)).collect();
        insts.push(Inst::new(Op::Int, 2, &[10 + count as u8]));
        run(config, Script::new(1, insts)).cycles
    };
    chain(loads.len()) - chain(loads.len() - 1)
}

/// Rounds the sum of latencies up to a cycle.
fn cycles(parts: &[f64]) -> u64 {
    parts.iter().sum::<f64>().ceil() as u64
}

/// The V100's memory clock in core cycles.
const CLOCK: f64 = 1380.0 / 877.0;
/// Request to L2 and its latency; reply with half a cycle for one sector at 64 bytes per cycle.
const TO_L2: f64 = 50.0 + 92.0;
const BACK: f64 = 50.0 + 0.5;
/// Transfer of a sector on a channel of 32 bytes per clock, lengthened by refresh.
const SECTOR: f64 = CLOCK / (1.0 - 0.067);
const CONTROLLER: f64 = 143.0;

const A: u64 = 1 << 20;

#[test]
fn arithmetic_takes_its_latency() {
    for (op, latency) in [(Op::Int, 4), (Op::Fp32, 4), (Op::Fp64, 8), (Op::Fp16, 6), (Op::Sfu, 18)] {
        let chain = |n: u8| (0..n).map(|_| Inst::new(op, 4, &[4])).collect::<Vec<_>>();
        let cycles = |n| run(&v100(), Script::new(1, chain(n))).cycles;
        assert_eq!(cycles(21) - cycles(20), latency, "{op:?}");
    }
}

#[test]
fn an_l1_hit_takes_28_cycles() {
    assert_eq!(last_load_cycles(&v100(), &[(Op::LoadGlobal, A), (Op::LoadGlobal, A)]), 28);
}

#[test]
fn an_l2_hit_takes_193_cycles() {
    assert_eq!(cycles(&[TO_L2, BACK]), 193);
    assert_eq!(last_load_cycles(&v100(), &[(Op::LoadGlobal, A), (Op::LoadStrong, A)]), 193);
}

#[test]
fn a_row_miss_takes_375_cycles_and_a_row_hit_357() {
    let closed = cycles(&[TO_L2, 24.0 * CLOCK, SECTOR, CONTROLLER, BACK]);
    let open = cycles(&[TO_L2, 12.0 * CLOCK, SECTOR, CONTROLLER, BACK]);
    assert_eq!((closed, open), (375, 357));
    assert_eq!(last_load_cycles(&v100(), &[(Op::LoadGlobal, A), (Op::LoadGlobal, A << 8)]), closed);
    assert_eq!(last_load_cycles(&v100(), &[(Op::LoadGlobal, A), (Op::LoadGlobal, A + 32)]), open);
}

#[test]
fn shared_memory_takes_19_cycles_plus_one_per_bank_conflict() {
    let cycles = |stride| {
        let shared = Inst::new(Op::LoadShared, 4, &[4]).at(0, stride, 4);
        let count = |n| run(&v100(), Script::new(1, vec![shared; n])).cycles;
        count(9) - count(8)
    };
    assert_eq!([cycles(4), cycles(0), cycles(8), cycles(128)], [19, 19, 20, 50]);
}

#[test]
fn pinned_memory_adds_the_link_latency() {
    let pinned = Config { mode: Mode::Pinned, ..v100() };
    // 700 ns, and 32 bytes at 150 GB/s.
    let expected = cycles(&[TO_L2, 700.0 * 1.38, 32.0 / 150.0 * 1.38, BACK]);
    assert_eq!(last_load_cycles(&pinned, &[(Op::LoadGlobal, A), (Op::LoadGlobal, A << 8)]), expected);
}

/// Returns the V100 in buddy mode: pages at A and 2A of one class.
fn buddy(class: SizeClass, target: Target) -> Config {
    let at = |base| Allocation { base, bytes: 8192, home: Home::Compressed(target), classes: uniform(class) };
    let map = ClassMap::new(vec![at(A), at(2 * A)]).unwrap();
    Config { mode: Mode::Buddy, map, ..v100() }
}

#[test]
fn a_zero_entry_with_cached_metadata_needs_no_memory_access() {
    let config = buddy(SizeClass::Zero, Target::X4);
    assert_eq!(last_load_cycles(&config, &[(Op::LoadGlobal, A), (Op::LoadGlobal, A + 128)]), 193);
}

#[test]
fn an_entry_in_buddy_memory_waits_for_link_and_codec() {
    let config = buddy(SizeClass::S1, Target::X16);
    let (link, codec) = (700.0 * 1.38 + 32.0 / 150.0 * 1.38, 11.0 * CLOCK);
    // The metadata was fetched with the first entry's.
    let expected = cycles(&[TO_L2, link, codec, BACK]);
    assert_eq!(last_load_cycles(&config, &[(Op::LoadGlobal, A), (Op::LoadGlobal, A + 128)]), expected);
}

#[test]
fn a_metadata_miss_delays_the_link_read() {
    // The device sector and the metadata, a line of 128 bytes, are fetched in parallel.
    let config = buddy(SizeClass::S2, Target::X4);
    let (link, codec) = (700.0 * 1.38 + 32.0 / 150.0 * 1.38, 11.0 * CLOCK);
    let metadata = 24.0 * CLOCK + 4.0 * SECTOR + CONTROLLER;
    let expected = cycles(&[TO_L2, metadata, link, codec, BACK]);
    assert_eq!(last_load_cycles(&config, &[(Op::Int, 0), (Op::LoadGlobal, A)]), expected);
}

#[test]
fn compressed_entries_wait_for_the_codec() {
    let config = Config { mode: Mode::Bandwidth, ..buddy(SizeClass::S1, Target::X2) };
    let expected = cycles(&[TO_L2, 24.0 * CLOCK, SECTOR, CONTROLLER, 11.0 * CLOCK, BACK]);
    assert_eq!(last_load_cycles(&config, &[(Op::LoadGlobal, A << 8), (Op::LoadGlobal, A)]), expected);
    // The whole entry was fetched: its other sectors are in L2.
    assert_eq!(last_load_cycles(&config, &[(Op::LoadGlobal, A), (Op::LoadGlobal, A + 96)]), 193);
}

#[test]
fn a_barrier_waits_for_the_last_warp() {
    let barrier = Inst::new(Op::Barrier, NO_REGISTER, &[]);
    let count = |n| run(&v100(), Script::new(4, vec![barrier; n])).cycles;
    // Four arrivals of two cycles, then eight cycles.
    assert_eq!(count(11) - count(10), 16);
}
