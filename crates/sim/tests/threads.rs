//! Results do not depend on the number of threads.

mod common;

use buddy_core::{SizeClass, Target};
use buddy_sim::{
    Allocation, ClassMap, Classes, Config, Error, Home, Mode, Simulator,
    spec::{Gpu, Link},
};
use buddy_trace::{At, Code, Inst, Kernel, Launch, Op, Problem, pattern::program};
use common::shares;

/// Programs whose blocks end in many windows, so that the order of SMs decides which runs the next.
const PROGRAMS: [&str; 4] = ["stream", "csr", "gemm", "random"];

/// Returns a GPU of 24 SMs with a small L2, and launch and translation costs as they are.
fn config(gpu: &str, mode: Mode, threads: usize) -> Config {
    let mut config = Config::new(Gpu::named(gpu).unwrap(), Link::named("150").unwrap());
    config.gpu.core.sms = 24;
    config.gpu.l2.bytes = 16 * 128 * u64::from(config.gpu.l2.ways * config.gpu.l2.slices);
    (config.mode, config.threads, config.sample_cycles) = (mode, threads, Some(1000));
    config
}

/// Returns a map of a program's arrays, every entry compressed to 2x, some of them not fitting.
fn map(allocations: &[(u64, u64)], home: Home) -> ClassMap {
    let classes = shares(0.3, 0.4, 0.0, 0.3);
    let one = |&(base, bytes)| Allocation { base, bytes, home, classes: classes.clone() };
    ClassMap::new(allocations.iter().map(one).collect()).unwrap()
}

/// Runs a program; returns its report and timeline as text.
fn result(config: &Config, name: &str, home: Home) -> String {
    let mut program = program(name, 1 << 20).unwrap();
    let map = map(&program.allocations, home);
    let mut simulator = Simulator::new(Config { map, ..config.clone() });
    for kernel in &mut program.kernels {
        simulator.run(kernel.as_mut(), &mut |_| true).unwrap();
    }
    let report = simulator.report();
    let mut timeline = Vec::new();
    simulator.timeline().unwrap().write(&report, &mut timeline).unwrap();
    format!("{}\n{}", serde_json::to_string(&report).unwrap(), String::from_utf8(timeline).unwrap())
}

/// Asserts that two and three threads give the bytes of one.
fn same_on_all_threads(gpu: &str, mode: Mode, name: &str, home: Home) {
    let one = result(&config(gpu, mode, 1), name, home);
    for threads in [2, 3] {
        let other = result(&config(gpu, mode, threads), name, home);
        assert!(one == other, "{name} on {gpu} in mode {} with {threads} threads", mode.name());
    }
}

#[test]
fn every_mode_gives_the_same_bytes_on_any_number_of_threads() {
    for mode in Mode::ALL {
        same_on_all_threads("v100", mode, "stream", Home::Compressed(Target::X2));
    }
}

#[test]
fn every_program_gives_the_same_bytes_on_any_number_of_threads() {
    for name in PROGRAMS {
        same_on_all_threads("h200", Mode::Bandwidth, name, Home::Compressed(Target::X2));
    }
}

#[test]
fn buddy_memory_gives_the_same_bytes_where_partitions_share_slices() {
    same_on_all_threads("h200", Mode::Buddy, "csr", Home::Compressed(Target::X2));
}

#[test]
fn memory_of_the_host_gives_the_same_bytes_on_any_number_of_threads() {
    same_on_all_threads("v100", Mode::Ideal, "stream", Home::Host);
}

/// A kernel whose source fails, or panics, at some block.
struct Failing {
    launch: Launch,
    at: u64,
    panics: bool,
}

impl Kernel for Failing {
    fn launch(&self) -> &Launch {
        &self.launch
    }
    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), buddy_trace::Error> {
        if at.block >= self.at {
            assert!(!self.panics, "the source of the kernel panics");
            let problem = Problem::NoList;
            return Err(buddy_trace::Error { file: "failing".to_owned(), line: at.block, problem });
        }
        if at.step < 20 {
            code.push(Inst::new(Op::Int, 3, &[3]));
        }
        Ok(())
    }
}

#[test]
fn an_error_is_the_same_on_any_number_of_threads() {
    let fails = |threads| {
        let mut kernel = Failing { launch: Launch::linear("failing", 4000, 128), at: 900, panics: false };
        let mut simulator = Simulator::new(config("v100", Mode::Ideal, threads));
        let error: Error = simulator.run(&mut kernel, &mut |_| true).unwrap_err();
        error.to_string()
    };
    assert!([2, 3].iter().all(|&threads| fails(threads) == fails(1)));
}

#[test]
#[should_panic]
fn a_panic_on_one_thread_ends_all() {
    let mut kernel = Failing { launch: Launch::linear("failing", 4000, 128), at: 900, panics: true };
    let _ = Simulator::new(config("v100", Mode::Ideal, 3)).run(&mut kernel, &mut |_| true);
}

#[test]
fn groups_of_slices_share_nothing() {
    // Both modes divide L2 by threads: the mode bandwidth with raw data reads what the mode ideal reads.
    let raw = |mode, threads| {
        let mut program = program("stream", 1 << 20).unwrap();
        let one = |&(base, bytes)| Allocation {
            base,
            bytes,
            home: Home::Device,
            classes: Classes::Uniform(SizeClass::Raw),
        };
        let map = ClassMap::new(program.allocations.iter().map(one).collect()).unwrap();
        let mut simulator = Simulator::new(Config { map, ..config("h200", mode, threads) });
        program.kernels.iter_mut().for_each(|kernel| simulator.run(kernel.as_mut(), &mut |_| true).unwrap());
        (simulator.report().cycles, simulator.untouched())
    };
    assert_eq!(raw(Mode::Ideal, 1), raw(Mode::Bandwidth, 3));
}
