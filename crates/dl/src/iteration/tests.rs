//! Traces access all of their allocations and nothing else.

use std::collections::BTreeSet;

use buddy_trace::{Addresses, At, Code, Kernel, Step};

use super::*;

/// Returns the first and last address of an instruction.
fn ends(code: &Code, inst: &buddy_trace::Inst) -> [u64; 2] {
    match code.addresses(inst) {
        Addresses::List(list) => [*list.iter().min().unwrap(), *list.iter().max().unwrap()],
        Addresses::Strided { base, stride } => {
            [base, base.strict_add_signed(i64::from(stride) * i64::from(inst.lanes() - 1))]
        }
    }
}

/// Returns the number of chunks of a block's first warp.
fn chunks(kernel: &mut dyn Kernel, block: u64, code: &mut Code) -> u32 {
    let mut empty = |step: &u32| {
        code.clear();
        kernel.fill(At { block, warp: 0, step: *step }, code).unwrap();
        code.insts().is_empty()
    };
    let mut end = 1;
    while !empty(&end) {
        end *= 2;
    }
    let mut full = end / 2;
    while end - full > 1 {
        let middle = (full + end) / 2;
        if empty(&middle) { end = middle } else { full = middle }
    }
    end
}

/// Returns the allocations that some blocks of every kernel access; panics on an address outside
/// all of them.
fn accessed(application: &Application) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let allocations = &application.allocations;
    let mut code = Code::default();
    for step in &application.steps {
        let Step::Kernel(make) = step else { continue };
        let mut kernel = make();
        let (last, warps) = (kernel.launch().blocks() - 1, kernel.launch().warps());
        for block in [0, last / 2, last] {
            let end = chunks(kernel.as_mut(), block, &mut code);
            let some = [0, end / 3, end.saturating_sub(2), end - 1];
            for (warp, step) in [0, warps - 1].into_iter().flat_map(|warp| some.map(|step| (warp, step))) {
                code.clear();
                kernel.fill(At { block, warp, step }, &mut code).unwrap();
                for inst in code.insts().iter().filter(|inst| inst.op.is_global()) {
                    for address in ends(&code, inst) {
                        let number = allocations.partition_point(|one| one.base <= address);
                        let one = number.checked_sub(1).map(|number| &allocations[number]);
                        let one = one.filter(|one| address + u64::from(inst.width) <= one.base + one.bytes);
                        let one = one.unwrap_or_else(|| panic!("{}: {address:#x}", kernel.launch().name));
                        found.insert(one.name.as_str());
                    }
                }
            }
        }
    }
    found
}

#[test]
fn kernels_access_every_allocation_and_nothing_else() {
    for network in Network::all() {
        let application = network.application(2);
        let found = accessed(&application);
        let missing: Vec<_> =
            application.allocations.iter().filter(|one| !found.contains(one.name.as_str())).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", network.name);
    }
}

#[test]
fn allocations_are_named_by_kind_and_layer() {
    let application = Network::named("alexnet").unwrap().application(4);
    let find = |name: &str| application.allocations.iter().find(|one| one.name == name);
    let conv2 = find("weights/conv2").unwrap();
    assert_eq!((conv2.call_site.as_str(), conv2.bytes), ("weights", 4 * (256 * 48 * 25 + 256)));
    assert_eq!(find("activations/conv1").unwrap().bytes, 4 * 4 * 96 * 55 * 55);
    assert_eq!(find("gradients/conv1.output").unwrap().bytes, find("activations/conv1").unwrap().bytes);
    assert_eq!(find("input/batch").unwrap().bytes, 4 * 4 * 3 * 227 * 227);
    assert!(find("optimizer/fc8").is_some() && find("activations/conv1.relu").is_none());
    let sorted = application.allocations.windows(2).all(|pair| pair[0].base + pair[0].bytes <= pair[1].base);
    assert!(sorted && application.allocations.iter().all(|one| one.base % 128 == 0));
}

#[test]
fn instruction_counts_match_the_network_arithmetic() {
    for network in Network::all() {
        // 18 instructions of a tile's step do 16 multiply-adds for each of 32 lanes.
        let instructions = network.warp_instructions(32) as f64;
        let least = 3.0 * 32.0 * network.multiply_adds() as f64 / 32.0;
        assert!((1.0..2.6).contains(&(instructions / least)), "{}: {}", network.name, instructions / least);
    }
}
