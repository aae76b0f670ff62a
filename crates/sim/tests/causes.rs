//! One microbenchmark for each cost measured on an H200, matched to the cycle.

mod common;

use buddy_sim::{Config, Report};
use buddy_trace::{Inst, NO_REGISTER, Op};
use common::{Script, run, steady};

fn h200() -> Config {
    steady("h200")
}

fn changed(change: impl FnOnce(&mut buddy_sim::spec::Gpu)) -> Config {
    let mut config = h200();
    change(&mut config.gpu);
    config
}

fn repeat(config: &Config, blocks: u32, warps: u32, inst: Inst, times: usize) -> Report {
    run(config, Script::new(warps, vec![inst; times]).blocks(blocks))
}

/// Returns the cycles that ten more of an instruction add in every warp.
fn ten_more(config: &Config, warps: u32, inst: Inst) -> u64 {
    let cycles = |times| repeat(config, 1, warps, inst, times).cycles;
    cycles(30) - cycles(20)
}

fn store(base: u64, stride: i32) -> Inst {
    Inst::new(Op::StoreGlobal, NO_REGISTER, &[2]).at(base, stride, 4)
}

#[test]
fn a_kernel_waits_for_its_launch() {
    let cycles = |launch| {
        repeat(&changed(|gpu| gpu.core.launch_cycles = launch), 1, 1, Inst::new(Op::Int, 4, &[4]), 1).cycles
    };
    assert_eq!((cycles(3300) - cycles(0), cycles(3301) - cycles(0)), (3300, 3301));
}

#[test]
fn block_launches_are_serialized_over_all_sms() {
    let config = changed(|gpu| gpu.core.block_interval = 10.0);
    let cycles = |blocks| repeat(&config, blocks, 1, Inst::new(Op::Int, 4, &[4]), 1).cycles;
    assert_eq!((cycles(2) - cycles(1), cycles(101) - cycles(1)), (10, 1000));
}

#[test]
fn a_block_slot_is_reused_after_the_launch_delay() {
    let cycles = |wait, blocks| {
        let one =
            changed(|gpu| (gpu.core.sms, gpu.core.max_blocks, gpu.core.block_launch_cycles) = (1, 1, wait));
        repeat(&one, blocks, 1, Inst::new(Op::Int, 4, &[4]), 1).cycles
    };
    assert_eq!((cycles(310, 1), cycles(310, 3) - cycles(300, 3)), (cycles(300, 1), 2 * 10));
}

#[test]
fn barrier_arrivals_are_serialized() {
    let barrier = Inst::new(Op::Barrier, NO_REGISTER, &[]);
    // Measured: 14.7, 20.7, 28.8, 44.8 and 76.9 cycles.
    let cycles = [1, 4, 8, 16, 32].map(|warps| ten_more(&h200(), warps, barrier));
    assert_eq!(cycles, [150, 210, 290, 450, 770]);
}

#[test]
fn a_shuffle_takes_24_cycles_at_one_per_cycle_and_sm() {
    let shuffle = Inst::new(Op::Shuffle, 4, &[4]);
    assert_eq!((ten_more(&h200(), 1, shuffle), ten_more(&h200(), 32, shuffle)), (240, 320));
}

#[test]
fn indexed_constants_are_serialized_per_warp_at_two_cycles_a_word() {
    let load = |stride| Inst::new(Op::LoadConstant, 4, &[5]).at(0, stride, 4);
    // A load waits for the previous one, though it does not depend on it.
    assert_eq!((ten_more(&h200(), 1, load(0)), ten_more(&h200(), 1, load(4))), (10 * 29, 10 * (29 + 31 * 2)));
    assert_eq!(
        (ten_more(&h200(), 32, load(0)), ten_more(&h200(), 32, load(4))),
        (10 * 32 * 2, 10 * 32 * 32 * 2)
    );
    let direct = Inst::new(Op::LoadConstant, 4, &[]);
    assert!(ten_more(&h200(), 32, direct) < 10 * 32, "an immediate constant is not serialized");
}

#[test]
fn shared_atomics_on_one_word_serialize_and_loads_broadcast() {
    let atomic = |stride| Inst::new(Op::AtomicShared, 4, &[4]).at(0, stride, 4);
    assert_eq!([4, 8, 0].map(|stride| ten_more(&h200(), 1, atomic(stride))), [260, 270, 260 + 10 * 31]);
    assert_eq!(ten_more(&h200(), 32, atomic(0)), 10 * 32 * 32);
}

#[test]
fn a_branch_waits_for_its_predicate_and_refetches() {
    let (compare, branch) = (Inst::new(Op::Int, NO_REGISTER, &[4]), Inst::new(Op::Branch, NO_REGISTER, &[]));
    let cycles = |insts: &[Inst], times| {
        let mut all = insts.repeat(times);
        all.push(Inst::new(Op::Fp32, 5, &[5]));
        run(&h200(), Script::new(1, all)).cycles
    };
    let each = |insts: &[Inst]| cycles(insts, 11) - cycles(insts, 10);
    assert_eq!((each(&[branch]), each(&[compare, branch])), (11, 13 + 11));
    // Independent work hides the comparison's latency: thirteen cycles, not twelve.
    let free =
        |count| [vec![compare], vec![Inst::new(Op::Control, NO_REGISTER, &[]); count], vec![branch]].concat();
    assert_eq!((each(&free(11)), each(&free(12)), each(&free(13))), (24, 24, 25));
}

#[test]
fn operands_in_one_register_bank_are_read_serially() {
    let multiply_add = |sources: &[u8]| ten_more(&h200(), 16, Inst::new(Op::Fp32, 6, sources));
    // Four warps per scheduler hide a latency of four: issue is limited by register reads alone.
    assert_eq!((multiply_add(&[6, 5]), multiply_add(&[6, 4, 5]), multiply_add(&[6, 4, 2])), (40, 80, 120));
    // A warp that issues back to back reuses its operands.
    let twice = |banks| {
        let config = changed(|gpu| gpu.core.register_banks = banks);
        let pair = [Inst::new(Op::Fp32, 6, &[8, 4]), Inst::new(Op::Fp32, 7, &[8, 4])];
        run(&config, Script::new(1, pair.repeat(50))).cycles
    };
    assert!(twice(2) < twice(0) + 60, "{} {}", twice(2), twice(0));
}

#[test]
fn tensor_and_integer_pipes_have_their_own_rates() {
    let rate = |op| ten_more(&h200(), 32, Inst::new(op, 4, &[])) / 8;
    assert_eq!([Op::Tensor, Op::Int, Op::Imad, Op::Fp64, Op::Fp32].map(rate), [60, 20, 20, 20, 10]);
    let both = Script::new(32, [Inst::new(Op::Int, 4, &[]), Inst::new(Op::Imad, 5, &[])].repeat(100));
    assert!(run(&h200(), both).cycles < 8 * 2 * 100 + 50, "integer and multiply-add units run in parallel");
}

#[test]
fn a_scheduler_sends_a_memory_instruction_every_fourth_cycle() {
    let independent = |warps| {
        let loads = |count: u8| {
            (0..count).map(|i| Inst::new(Op::LoadShared, 10 + i, &[]).at(0, 4, 4)).collect::<Vec<_>>()
        };
        let cycles = |count| run(&h200(), Script::new(warps, loads(count))).cycles;
        cycles(30) - cycles(20)
    };
    // One scheduler, then all four: the load-store unit accepts one per cycle.
    assert_eq!([1, 4, 8].map(independent), [40, 40, 80]);
}

#[test]
fn a_store_occupies_its_port_for_every_sector() {
    let store = |lanes| ten_more(&h200(), 4, store(1 << 20, 4).masked(lanes));
    assert_eq!([0xff, 0xffff, u32::MAX].map(store), [40, 80, 160]);
}

/// Returns the cycles that the last of a chain of dependent loads adds.
fn last_load_cycles(config: &Config, loads: &[(Op, u64)]) -> u64 {
    let chain = |count: usize| {
        let one = |(i, &(op, at)): (usize, &(Op, u64))| {
            Inst::new(op, 11 + i as u8, &[10 + i as u8]).at(at, 4, 4).masked(1)
        };
        let mut insts: Vec<Inst> = loads[..count].iter().enumerate().map(one).collect();
        insts.push(Inst::new(Op::Int, 2, &[10 + count as u8]));
        run(config, Script::new(1, insts)).cycles
    };
    chain(loads.len()) - chain(loads.len() - 1)
}

#[test]
fn remote_partition_reads_add_latency_and_are_cached_locally() {
    let base = 1u64 << 30;
    let cold =
        |i: u64| last_load_cycles(&h200(), &[(Op::LoadStrong, 7 << 20), (Op::LoadStrong, base + i * 4096)]);
    let times: Vec<u64> = (0..64).map(cold).collect();
    let near = *times.iter().min().unwrap();
    assert!(times.iter().all(|&time| time == near || time == near + 172), "{times:?}");
    assert!((20..44).contains(&times.iter().filter(|&&time| time > near).count()), "{times:?}");
    for i in 0..8 {
        let at = base + i * 4096;
        assert_eq!(last_load_cycles(&h200(), &[(Op::LoadStrong, at), (Op::LoadStrong, at)]), 280);
    }
}

#[test]
fn a_read_fetches_64_bytes_and_a_partial_write_32() {
    let bytes = |fetch, inst: Inst| {
        repeat(&changed(|gpu| gpu.l2.fetch_bytes = fetch), 1, 1, inst.masked(1), 1).dram.read_bytes
    };
    let load = Inst::new(Op::LoadGlobal, 4, &[]).at(1 << 20, 4, 4);
    assert_eq!([32, 64, 128].map(|fetch| bytes(fetch, load)), [32, 64, 128]);
    assert_eq!(bytes(64, store(1 << 20, 4)), 32);
}

#[test]
fn neighbouring_lines_share_a_slice() {
    // 16 SMs write lines of one slice, or of several.
    let cycles = |interleave| {
        let config =
            changed(|gpu| (gpu.l2.interleave_bytes, gpu.l2.written_sectors_per_cycle) = (interleave, 0.1));
        let lines = (0..4).map(|line| store((1 << 20) + line * 128, 4)).collect::<Vec<_>>().repeat(20);
        run(&config, Script::new(1, lines).blocks(16)).cycles
    };
    assert!(cycles(512) > 3 * cycles(128) / 2, "{} {}", cycles(512), cycles(128));
}

#[test]
fn partial_sector_writes_take_longer_in_l2() {
    // Ten SMs write one line: its slice is the bottleneck, 4 sectors at 0.5 sectors per cycle, plus
    // 0.25 cycles each if partial.
    let cycles = |stride: i32| {
        let config = changed(|gpu| {
            (gpu.l2.partitions, gpu.l2.written_sectors_per_cycle, gpu.l2.partial_cycles) = (1, 0.5, 0.25);
        });
        let part = store(1 << 20, stride).masked(if stride == 4 { u32::MAX } else { 0b1111 });
        let count = |times| repeat(&config, 10, 1, part, times).cycles;
        count(300) - count(200)
    };
    assert_eq!((cycles(4), cycles(32)), (10 * 100 * 8, 10 * 100 * 9));
}

#[test]
fn l2_atomics_serialize_on_a_word_and_combine_on_a_line() {
    let cycles = |stride| {
        let config = changed(|gpu| (gpu.l2.partitions, gpu.l2.atomic_cycles) = (1, 1.5));
        let add = Inst::new(Op::Reduce, NO_REGISTER, &[2]).at(1 << 20, stride, 4);
        let count = |times| repeat(&config, 4, 1, add, times).cycles;
        count(300) - count(200)
    };
    assert_eq!((cycles(0), cycles(4)), (4 * 100 * 48, 4 * 100 * 6));
}

#[test]
fn the_first_access_to_a_page_waits_for_the_walk() {
    let walk = |cycles| {
        let config = changed(|gpu| gpu.tlb.walk_cycles = cycles);
        last_load_cycles(&config, &[(Op::LoadStrong, 1 << 30), (Op::LoadStrong, 1 << 31)])
    };
    assert_eq!((walk(500) - walk(0), walk(501) - walk(0)), (500, 501));
    let same =
        last_load_cycles(&changed(|_| ()), &[(Op::LoadStrong, 1 << 30), (Op::LoadStrong, (1 << 30) + 4096)]);
    let known = changed(|gpu| gpu.tlb.walk_cycles = 500);
    assert_eq!(
        last_load_cycles(&known, &[(Op::LoadStrong, 1 << 30), (Op::LoadStrong, (1 << 30) + 4096)]),
        same
    );
}

#[test]
fn unknown_instructions_are_counted() {
    let report = repeat(&h200(), 2, 4, Inst::new(Op::Unknown, 4, &[4]), 10);
    assert_eq!((report.unknown_instructions, report.instructions), (80, 80));
}
