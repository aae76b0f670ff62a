//! Contract of every workload's kernels: they stay inside its arrays, use most of them, are
//! deterministic, and run in every mode of the model.

use buddy_core::{SizeClass, Target};
use buddy_record::TargetTable;
use buddy_sim::{
    ClassMap, Classes, Config, Mode, Report, Simulator,
    spec::{Gpu, Link},
};
use buddy_trace::{Addresses, Application, At, Code, Kernel, Launch, Step};
use buddy_workloads::{ALL, Info, describe};

const MEGABYTE: u64 = 1_000_000;

fn application(info: &Info, bytes: u64) -> Application {
    (info.build)(bytes, 1).application()
}

/// Calls `see` with every chunk of every warp of every distinct kernel, in order.
fn each_chunk(application: &Application, mut see: impl FnMut(&str, &Code)) {
    let mut seen: Vec<(Launch, Code)> = Vec::new();
    for step in &application.steps {
        let Step::Kernel(make) = step else { continue };
        let mut kernel = make();
        let launch = kernel.launch().clone();
        // Steps repeat: skip a kernel whose launch and first chunk were seen before.
        let mut first = Code::default();
        kernel.fill(At { block: 0, warp: 0, step: 0 }, &mut first).unwrap();
        let both = (launch.clone(), first);
        if seen.contains(&both) {
            continue;
        }
        seen.push(both);
        for block in 0..launch.blocks() {
            for warp in 0..launch.warps() {
                each_of_warp(kernel.as_mut(), block, warp, |code| see(&launch.name, code));
            }
        }
    }
}

fn each_of_warp(kernel: &mut dyn Kernel, block: u64, warp: u32, mut see: impl FnMut(&Code)) {
    let mut code = Code::default();
    for step in 0.. {
        code.clear();
        kernel.fill(At { block, warp, step }, &mut code).unwrap();
        if code.insts().is_empty() {
            return;
        }
        see(&code);
    }
}

#[test]
fn kernels_stay_inside_the_arrays_of_the_snapshots() {
    for info in ALL {
        let workload = (info.build)(MEGABYTE, 1);
        let application = workload.application();
        assert_eq!(application.name, info.name);
        assert_eq!(application.allocations, describe(info, workload.as_ref(), 1).allocations);
        let mut used = vec![false; application.allocations.len()];
        each_chunk(&application, |kernel, code| {
            for inst in code.insts().iter().filter(|inst| inst.op.is_global()) {
                let lanes = u64::from(inst.lanes());
                let mut touch = |address: u64| {
                    let holds = |index: &usize| {
                        let of = &application.allocations[*index];
                        address >= of.base && address + u64::from(inst.width) <= of.base + of.bytes
                    };
                    let found = (0..used.len()).find(holds);
                    let found = found.unwrap_or_else(|| panic!("{}, {kernel}: {address:#x}", info.name));
                    used[found] = true;
                    assert_eq!(address % u64::from(inst.width), 0, "{}, {kernel}", info.name);
                };
                match code.addresses(inst) {
                    Addresses::List(list) => list.iter().for_each(|&address| touch(address)),
                    Addresses::Strided { base, stride } => (0..lanes as i64)
                        .for_each(|lane| touch((base as i64 + lane * i64::from(stride)) as u64)),
                }
            }
        });
        let share = |used: &[bool]| {
            let bytes = |used: &bool, of: &buddy_record::AllocationInfo| if *used { of.bytes } else { 0 };
            let sum: u64 = used.iter().zip(&application.allocations).map(|(used, of)| bytes(used, of)).sum();
            sum as f64 / application.allocations.iter().map(|of| of.bytes).sum::<u64>() as f64
        };
        assert!(share(&used) > 0.9, "{} uses {} of its memory", info.name, share(&used));
    }
}

fn config(application: &Application, mode: Mode) -> Config {
    let table = TargetTable::uniform(&application.name, &application.allocations, Target::X2, "bpc");
    let mut config = Config::new(Gpu::named("paper").unwrap(), Link::named("150").unwrap());
    config.mode = mode;
    config.oversubscription = if mode == Mode::Um { 0.3 } else { 0.0 };
    config.map = ClassMap::bind(application, Some(&table), &mut |_, info| {
        let class = |entry| if entry % 10 == 0 { SizeClass::Raw } else { SizeClass::S2 };
        Classes::each((0..info.entries()).map(class).collect::<Vec<_>>())
    })
    .unwrap();
    config
}

fn simulate(application: &Application, mode: Mode) -> Report {
    let mut simulator = Simulator::new(config(application, mode));
    assert!(simulator.run_application(application, &mut |_| true).unwrap());
    simulator.report()
}

/// Asserts that traffic is conserved between levels; without compression, memory supplies exactly
/// the requested sectors.
fn assert_conserved(application: &Application, report: &Report) {
    let (l1, l2) = (&report.l1, &report.l2);
    let name = (&application.name, report.mode);
    assert_eq!((l1.missed_sectors, l1.stored_sectors), (l2.read_sectors, l2.written_sectors), "{name:?}");
    let copied = |step: &Step| if let Step::Copy { bytes } = step { *bytes } else { 0 };
    let copied: u64 = application.steps.iter().map(copied).sum();
    let read = report.dram.read_bytes + report.link_traffic.read_bytes - copied;
    if matches!(report.mode, Mode::Ideal | Mode::Pinned) {
        assert_eq!(read, 32 * l2.asked_sectors, "{name:?}");
    }
}

#[test]
fn all_modes_execute_the_same_instructions() {
    for info in ALL {
        let application = application(info, MEGABYTE);
        let reports = Mode::ALL.map(|mode| simulate(&application, mode));
        for report in &reports {
            assert_eq!(report.instructions, reports[0].instructions, "{}", info.name);
            assert!(report.cycles > 0 && report.instructions > 100_000, "{}: {report:?}", info.name);
            assert_conserved(&application, report);
        }
        let slowest = reports.iter().max_by_key(|report| report.cycles).unwrap();
        assert!(matches!(slowest.mode, Mode::Pinned | Mode::Um), "{}: {:?}", info.name, slowest.mode);
    }
}

#[test]
fn simulations_are_deterministic() {
    for info in ALL {
        let first = simulate(&application(info, MEGABYTE), Mode::Buddy);
        assert_eq!(first, simulate(&application(info, MEGABYTE), Mode::Buddy), "{}", info.name);
    }
}
