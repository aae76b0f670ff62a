//! Conservation of traffic, determinism, and bandwidth limits that are reached but not exceeded.

mod common;

use buddy_core::{SizeClass, Target};
use buddy_sim::{
    Allocation, ClassMap, Classes, Config, Error, Home, KernelSum, Mode, Report, Simulator, spec::Link,
};
use buddy_trace::{
    Inst, Kernel, Launch, NO_REGISTER, Op,
    accel::{self, Reader},
    pattern::{Arithmetic, Array, Gemm, RandomSectors, Stencil, Stream},
};
use common::{Script, paper, run, shares, steady, uniform, v100};

const MIB: u64 = 1 << 20;
/// Bytes of each array of a stream.
const BYTES: u64 = 8 * MIB;

fn array(base: u64) -> Array {
    Array { base, element_bytes: 4 }
}

/// Returns a stream that reads `reads` and writes `writes` arrays of `BYTES` each, from address 0.
fn stream(reads: u64, writes: u64) -> Stream {
    grid_stream(448, reads, writes)
}

fn grid_stream(blocks: u32, reads: u64, writes: u64) -> Stream {
    let at = |from: u64, count: u64| (from..from + count).map(|i| array(i * BYTES)).collect::<Vec<_>>();
    Stream::new(Launch::linear("stream", blocks, 256), &at(0, reads), &at(reads, writes), BYTES / 4, 1)
}

fn random(loads: u32) -> RandomSectors {
    RandomSectors::new(448, 128, 0, 64 * MIB, loads)
}

#[test]
fn requested_and_written_sectors_are_conserved() {
    let report = run(&Config { mode: Mode::Ideal, ..v100() }, stream(1, 1));
    let sectors = BYTES / 32;
    assert_eq!((report.l1.loaded_sectors, report.l1.missed_sectors), (sectors, sectors));
    assert_eq!((report.l2.read_sectors, report.l2.asked_sectors), (sectors, sectors));
    assert_eq!((report.l2.filled_sectors, report.dram.read_bytes), (sectors, BYTES));
    assert_eq!((report.l1.stored_sectors, report.l2.written_sectors), (sectors, sectors));
    assert_eq!(report.dram.written_bytes / 32 + report.l2.dirty_sectors_left, sectors);
    assert_eq!((report.link_traffic.read_bytes, report.link_traffic.written_bytes), (0, 0));
    assert_eq!((report.blocks, report.instructions), (448, 8 * BYTES / 4 / 32));
}

#[test]
fn a_change_of_targets_reads_and_writes_its_bytes_once() {
    let config = v100();
    let (before, mut simulator) = (run(&config, stream(1, 0)), Simulator::new(config.clone()));
    simulator.change(BYTES);
    simulator.run(&mut stream(1, 0), &mut |_| true).unwrap();
    let report = simulator.report();
    let cycles = (2.0 * BYTES as f64 / config.gpu.dram_bytes_per_cycle()).ceil() as u64;
    assert_eq!(report.change_cycles, cycles);
    assert_eq!((report.kernels[0].start, report.cycles), (cycles, report.kernels[0].cycles + cycles));
    let moved = |report: &Report| (report.dram.read_bytes, report.dram.written_bytes);
    assert_eq!(moved(&report), (moved(&before).0 + BYTES, moved(&before).1 + BYTES));
    assert_eq!(before.change_cycles, 0);
}

#[test]
fn the_buddy_half_of_raw_entries_crosses_the_link() {
    let config = paper(Mode::Buddy, Target::X2, uniform(SizeClass::Raw));
    let report = run(&config, stream(1, 0));
    assert_eq!((report.link_traffic.read_bytes, report.buddy.buddy_access_share), (BYTES / 2, 1.0));
    // A metadata line of 128 bytes covers 256 entries.
    assert_eq!(report.buddy.metadata_misses, BYTES / 128 / 256);
    assert_eq!(report.dram.read_bytes, BYTES / 2 + report.buddy.metadata_misses * 128);
    let report = run(&config, stream(0, 1));
    assert!(report.dram.written_bytes > 0);
    assert_eq!(report.dram.written_bytes, report.link_traffic.written_bytes);
}

#[test]
fn compression_moves_fewer_sectors() {
    for mode in [Mode::Bandwidth, Mode::Buddy] {
        let report = run(&paper(mode, Target::X2, uniform(SizeClass::S2)), stream(1, 0));
        let metadata = report.buddy.metadata_misses * 128;
        assert_eq!(report.dram.read_bytes - metadata, BYTES / 2, "{mode:?}");
        assert_eq!(report.link_traffic.read_bytes, 0);
    }
}

#[test]
fn partial_writes_of_compressed_entries_are_read_modify_writes() {
    // One sector of each line, 8 MiB of lines: twice the L2.
    let store = |lane_base: u64| {
        let store = Inst::new(Op::StoreGlobal, NO_REGISTER, &[2]);
        (0..8u64).map(move |part| store.at(lane_base + part * 32 * 128, 128, 4)).collect::<Vec<_>>()
    };
    let insts: Vec<Inst> = (0..256u64).flat_map(|i| store(i * 8 * 32 * 128)).collect();
    let config = paper(Mode::Buddy, Target::X2, uniform(SizeClass::S2));
    let report = run(&config, Script::new(1, insts));
    assert!(report.l2.write_backs > 0);
    // The partial store missed and fetched the whole entry.
    assert_eq!(report.buddy.read_modify_writes, 0);
    assert_eq!(report.l2.filled_sectors, 4 * 65536);
    let full = |at: u64| Inst::new(Op::StoreGlobal, NO_REGISTER, &[2]).at(at, 128, 16);
    let insts: Vec<Inst> = (0..2048u64).flat_map(|i| [full(i * 4096), full(i * 4096 + 16)]).collect();
    let report = run(&config, Script::new(1, insts));
    assert!(report.l2.write_backs > 0);
    let whole = |at: u64| Inst::new(Op::StoreGlobal, NO_REGISTER, &[2]).at(at, 32, 32).masked(0x1111_1111);
    let insts: Vec<Inst> = (0..16384u64).map(|i| whole(i * 1024)).collect();
    let report = run(&config, Script::new(1, insts));
    assert_eq!(report.buddy.read_modify_writes, report.l2.write_backs);
}

/// Micro kernels on an H200 with compressible memory read zeros and noise by turns 1.33 times as fast as
/// noise, and noise no faster.
#[test]
fn compressible_memory_moves_half_of_an_entry_that_halves() {
    let read = |class| {
        let report = run(&paper(Mode::Compressible, Target::X1, uniform(class)), stream(1, 1));
        (report.dram.read_bytes, report.dram.written_bytes)
    };
    let (all, half) = (read(SizeClass::Raw), read(SizeClass::S2));
    assert_eq!((half.0, read(SizeClass::S3).0), (all.0 / 2, all.0));
    assert_eq!((read(SizeClass::Zero).0, read(SizeClass::B8).0), (half.0, half.0));
    assert!(half.1 > 0 && half.1 <= all.1 / 2 + 65536, "{half:?} {all:?}");
    let by_turns = Classes::each(
        (0..1 << 19).map(|entry| [SizeClass::Zero, SizeClass::Raw][entry % 2]).collect::<Vec<_>>(),
    );
    let speed = |classes| run(&paper(Mode::Compressible, Target::X1, classes), stream(1, 0)).cycles as f64;
    let gain = speed(uniform(SizeClass::Raw)) / speed(by_turns);
    assert!((1.2..1.4).contains(&gain), "{gain}");
}

/// The same on the model of the card. Zeros alone are read 1.64 times as fast there, less than the model
/// says: a limit is missing.
#[test]
fn an_h200_reads_compressible_memory_as_its_micro_kernels_do() {
    let bytes = 64 * MIB;
    let speed = |classes: &[SizeClass]| {
        let each: Vec<_> = classes.iter().copied().cycle().take((bytes / 128) as usize).collect();
        let classes = Classes::each(each);
        let map = ClassMap::new(vec![Allocation { base: 0, bytes, home: Home::Device, classes }]).unwrap();
        let config = Config { mode: Mode::Compressible, map, ..steady("h200") };
        let vectors = Array { base: 0, element_bytes: 16 };
        let launch = Launch::linear("read", 132 * 4, 512);
        run(&config, Stream::new(launch, &[vectors], &[], bytes / 16, 4)).cycles as f64
    };
    let noise = speed(&[SizeClass::Raw]);
    let (by_turns, zeros) =
        (noise / speed(&[SizeClass::Zero, SizeClass::Raw]), noise / speed(&[SizeClass::Zero]));
    assert!((1.27..1.36).contains(&by_turns), "{by_turns}");
    assert!((1.75..2.0).contains(&zeros), "{zeros}");
}

#[test]
fn runs_are_deterministic() {
    let config = paper(Mode::Buddy, Target::X2, shares(0.3, 0.4, 0.2, 0.1));
    let gemm = || Gemm::new(array(0), array(16 * MIB), array(32 * MIB), [256, 256, 64]);
    assert_eq!(run(&config, gemm()), run(&config, gemm()));
    assert_eq!(run(&config, random(4)), run(&config, random(4)));
}

fn by_link(config: &Config, kernel: impl Fn() -> Stream) -> Vec<u64> {
    let cycles = |link: &str| {
        let config = Config { link: Link::named(link).unwrap(), ..config.clone() };
        run(&config, kernel()).cycles
    };
    ["50", "100", "150", "200"].map(cycles).to_vec()
}

#[test]
fn more_link_bandwidth_is_not_slower() {
    // Many short blocks even out the tail of the run.
    let long = || {
        let at = |array_number: u64| array(array_number * 20 * MIB);
        Stream::new(Launch::linear("long", 5120, 256), &[at(0), at(1)], &[at(2)], 5 * MIB, 1)
    };
    for (s1, overflow) in [(0.0, 0.01), (0.3, 0.1), (0.0, 0.4)] {
        let config = paper(Mode::Buddy, Target::X2, shares(s1, 1.0 - s1 - overflow, 0.0, overflow));
        let cycles = by_link(&config, long);
        assert!(
            cycles.windows(2).all(|pair| pair[1] as f64 <= pair[0] as f64 * 1.01),
            "{overflow} {cycles:?}"
        );
    }
    let pinned = by_link(&paper(Mode::Pinned, Target::X1, uniform(SizeClass::Raw)), || stream(1, 0));
    let ratio = pinned[0] as f64 / pinned[3] as f64;
    assert!((3.8..4.05).contains(&ratio), "{ratio} for four times the bandwidth");
}

#[test]
fn a_larger_metadata_cache_does_not_hit_less() {
    let hit_rate = |bytes| {
        let mut config = paper(Mode::Buddy, Target::X2, shares(0.0, 0.9, 0.0, 0.1));
        config.gpu.buddy.metadata_bytes = bytes;
        run(&config, random(8)).buddy.metadata_hit_rate
    };
    let rates = [1024, 2048, 4096, 8192, 16384].map(hit_rate);
    assert!(rates.windows(2).all(|pair| pair[1] >= pair[0] - 0.01), "{rates:?}");
    assert!(rates[4] > rates[0] + 0.1, "{rates:?}");
}

#[test]
fn more_overflow_is_not_faster_at_equal_fills() {
    // Entries of two and three sectors are both fetched whole; the third sector is in buddy memory.
    let cycles = |overflow: f64| {
        let config = paper(Mode::Buddy, Target::X2, shares(0.0, 1.0 - overflow, overflow, 0.0));
        run(&config, stream(2, 1)).cycles as f64
    };
    let cycles = [0.0, 0.02, 0.1, 0.3, 0.6].map(cycles);
    assert!(cycles.windows(2).all(|pair| pair[1] >= pair[0] * 0.99), "{cycles:?}");
    assert!(cycles[4] > cycles[0] * 1.2);
}

#[test]
fn streams_approach_the_peak_and_scattered_sectors_a_third_of_it() {
    for name in ["paper", "v100", "p100", "a100"] {
        let config = steady(name);
        let share = |report: Report| report.dram.peak_share;
        // As many blocks as fit at once: a single wave.
        let stream = |reads, writes| grid_stream(config.gpu.core.sms * 8, reads, writes);
        let read = share(run(&config, stream(2, 0)));
        assert!((0.85..=0.95).contains(&read), "{name} reads {read}");
        let add = share(run(&config, stream(2, 1)));
        assert!((0.80..=0.95).contains(&add), "{name} adds {add}");
        // The other sectors of a fetch are unused.
        let wanted = 32.0 / f64::from(config.gpu.l2.fetch_bytes);
        let scattered = wanted * share(run(&config, RandomSectors::new(448, 256, 0, 4096 * MIB, 4)));
        assert!((0.22..=0.40).contains(&scattered), "{name} scattered {scattered}");
    }
}

#[test]
fn the_v100_streams_within_5_percent_of_the_published_figure() {
    // BabelStream on a V100 gives 92 to 93% of 898 GB/s for its reads and sums.
    let report = run(&v100(), stream(2, 0));
    assert!((report.dram.gb_per_s / 833.0 - 1.0).abs() < 0.05, "{}", report.dram.gb_per_s);
}

#[test]
fn the_link_reaches_but_never_exceeds_its_bandwidth() {
    let config = paper(Mode::Pinned, Target::X1, uniform(SizeClass::Raw));
    let report = run(&config, stream(1, 1));
    assert!((140.0..=150.0).contains(&report.link_traffic.read_gb_per_s), "{:?}", report.link_traffic);
    assert!(report.link_traffic.written_gb_per_s <= 150.0);
}

#[test]
fn the_peak_issue_rate_is_reached_but_not_exceeded() {
    let report = run(
        &paper(Mode::Ideal, Target::X1, uniform(SizeClass::Raw)),
        Arithmetic::new(448, 256, Op::Fp32, 20, 4),
    );
    assert!((110.0..=112.0).contains(&report.ipc), "{} of 2 for each of 56 SMs", report.ipc);
    let half = run(&v100(), Arithmetic::new(640, 256, Op::Fp32, 20, 4));
    // The last instruction occupies its unit past the end.
    assert!((155.0..=160.1).contains(&half.ipc), "{}: 16 lanes for each of 4 schedulers of 80 SMs", half.ipc);
    let stalls = &half.stalls;
    assert!(stalls.unit_busy > stalls.memory + stalls.barrier);
}

#[test]
fn stencil_neighbours_hit_in_the_caches() {
    let kernel = Stencil::new(array(0), array(32 * MIB), [128, 128, 16], &Stencil::star(1));
    let report = run(&v100(), kernel);
    assert!(report.l1.hit_rate > 0.5, "{:?}", report.l1);
    let once = 128 * 128 * 16 * 4;
    assert!((once..once + once / 100).contains(&report.dram.read_bytes), "each point is fetched about once");
}

#[test]
fn unified_memory_slows_down_with_oversubscription() {
    let cycles = |share| {
        let mut config = paper(Mode::Um, Target::X1, uniform(SizeClass::Raw));
        config.oversubscription = share;
        let report = run(&config, stream(4, 4));
        (report.cycles as f64, report.um.faults, report.um.migrated_blocks)
    };
    let ideal = run(&paper(Mode::Ideal, Target::X1, uniform(SizeClass::Raw)), stream(4, 4)).cycles as f64;
    let (none, quarter, half) = (cycles(0.0), cycles(0.25), cycles(0.5));
    assert_eq!((none.0, none.1), (ideal, 0));
    assert!(quarter.0 > 2.0 * none.0 && half.0 >= quarter.0 * 0.99, "{none:?} {quarter:?} {half:?}");
    assert!(quarter.2 >= 256 && quarter.1 < quarter.2, "neighbours are prefetched: {quarter:?}");
}

#[test]
fn an_accel_sim_trace_runs() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/vectoradd");
    let path = std::path::Path::new(folder).join("kernel-1.traceg");
    let report = run(&v100(), Reader::open(&path).unwrap());
    assert_eq!((report.blocks, report.instructions), (4, 489));
    assert_eq!(report.l1.memory_instructions, 81, "two loads and a store in 27 of 32 warps");
    assert!((400..3000).contains(&report.cycles), "{}", report.cycles);
}

#[test]
fn a_written_trace_takes_the_same_cycles_as_its_kernel() {
    let mut text = Vec::new();
    accel::write(&mut text, &mut random(2)).unwrap();
    let traced = run(&v100(), Reader::new("written", std::io::Cursor::new(text)).unwrap());
    assert_eq!(traced.cycles, run(&v100(), random(2)).cycles);
}

/// A product of 64 x N x 16 has 2 x 64 x N x 16 operations; the H200 does 4096 a cycle and SM.
#[test]
fn products_of_a_warpgroup_reach_the_peak_of_the_tensor_cores() {
    let run_products = |columns: u64, count: u64| {
        let line = |n: u64| {
            format!("{n:04x} ffffffff 1 R24 HGMMA.64x{columns}x16.F32.BF16 2 R24 R4 0 0\n", n = 16 * n)
        };
        let lines: String = (0..count).map(line).collect();
        let warps: String = (0..4).map(|warp| format!("warp = {warp}\ninsts = {count}\n{lines}")).collect();
        let text = format!(
            "-kernel name = k\n-grid dim = (1,1,1)\n-block dim = (128,1,1)\n-shmem = 0\n-nregs = 200\n\
             #BEGIN_TB\nthread block = 0,0,0\n{warps}#END_TB\n"
        );
        run(&steady("h200"), Reader::new("k", std::io::Cursor::new(text.into_bytes())).unwrap()).cycles
    };
    for columns in [64, 128, 256] {
        let cycles = run_products(columns, 30) - run_products(columns, 10);
        assert_eq!(20 * 2 * 64 * columns * 16 / cycles, 4096, "{columns} columns take {cycles} cycles");
    }
}

#[test]
fn the_sums_by_kernel_are_those_of_the_run() {
    let mut simulator = Simulator::new(v100());
    for _ in 0..2 {
        simulator.run(&mut stream(1, 1), &mut |_| true).unwrap();
        simulator.run(&mut Arithmetic::new(80, 256, Op::Fp32, 400, 4), &mut |_| true).unwrap();
    }
    let report = simulator.report();
    let all = &report.by_kernel;
    assert_eq!((all.len(), all.iter().map(|kernel| kernel.launches).sum::<u64>()), (2, 4));
    assert!(all[0].cycles >= all[1].cycles);
    let sum = |of: fn(&KernelSum) -> u64| all.iter().map(of).sum::<u64>();
    assert_eq!(sum(|kernel| kernel.cycles), report.kernels.iter().map(|kernel| kernel.cycles).sum::<u64>());
    assert_eq!(sum(|kernel| kernel.instructions), report.instructions);
    assert_eq!(sum(|kernel| kernel.stalls.memory), report.stalls.memory);
    assert_eq!(sum(|kernel| kernel.stalls.no_warp), report.stalls.no_warp);
    assert_eq!(sum(|kernel| kernel.l2_read_bytes), 32 * report.l2.read_sectors);
    assert_eq!(sum(|kernel| kernel.dram_read_bytes), report.dram.read_bytes);
    assert_eq!(sum(|kernel| kernel.dram_written_bytes), report.dram.written_bytes);
    let of = |name: &str| all.iter().find(|kernel| kernel.name == name).unwrap();
    assert_eq!(of("stream").limit, "device memory");
    let arithmetic = all.iter().find(|kernel| kernel.name != "stream").unwrap();
    assert_eq!(arithmetic.limit, "issue slots");
    assert!(arithmetic.limit_share > 0.5 && arithmetic.l1_loaded_bytes == 0, "{arithmetic:?}");
}

#[test]
fn a_block_too_big_for_an_sm_is_an_error() {
    let mut simulator = Simulator::new(v100());
    let mut fails = |kernel: &mut dyn Kernel| simulator.run(kernel, &mut |_| true).unwrap_err();
    let mut big = Stream::new(
        Launch { shared_bytes: 100 << 10, ..Launch::linear("big", 1, 32) },
        &[array(0)],
        &[],
        32,
        0,
    );
    assert_eq!(
        fails(&mut big).to_string(),
        "a block of big needs 102400 bytes of shared memory; an SM has 98304"
    );
    assert!(matches!(fails(&mut Arithmetic::new(1, 4096, Op::Int, 1, 1)), Error::BlockTooBig { .. }));
}

#[test]
fn per_entry_classes_are_used() {
    let each = Classes::each([SizeClass::S1; 32768]);
    let report = run(&paper(Mode::Bandwidth, Target::X4, each), stream(1, 0));
    // Half of the array is listed; the rest is raw.
    assert_eq!(report.dram.read_bytes, BYTES / 2 / 4 + BYTES / 2);
}
