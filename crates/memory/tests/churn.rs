//! A million allocations and frees leave all space free and unfragmented.

use buddy_codec::CodecKind;
use buddy_core::Target;
use buddy_memory::{BuddyMemory, Free, Request, Spec};

#[test]
fn a_million_operations_leak_nothing() {
    let device = 1 << 20;
    let memory = BuddyMemory::new(Spec::new(device)).unwrap();
    let codec = CodecKind::Bpc.train(&[]);
    let (mut live, mut refused, mut noise) = (Vec::new(), 0, 0x9e37_79b9_7f4a_7c15u64);
    let mut next = |below: usize| {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        (noise >> 20) as usize % below
    };
    for step in 0..1_000_000 {
        if next(300) < live.len() {
            memory.free(live.swap_remove(next(live.len()))).unwrap();
        } else {
            let target = Target::ALL[next(5)];
            match memory.allocate(&Request::new(1 + next(20_000) as u64, codec.clone(), target)) {
                Ok(handle) => live.push(handle),
                Err(_) => refused += 1,
            }
        }
        if step % 50_000 == 0 {
            let report = memory.report();
            assert_eq!(report.total.device_bytes + report.free.device.total, device);
            assert_eq!(report.total.buddy_bytes + report.free.carve_out.total, 3 * device);
        }
    }
    assert!(refused > 1000, "the memory was never full: {refused} refusals");
    assert!(memory.free_space().device.runs > 1, "never fragmented");
    live.into_iter().for_each(|handle| memory.free(handle).unwrap());
    let whole = |len| Free { total: len, largest: len, runs: 1 };
    let free = memory.free_space();
    assert_eq!((free.device, free.carve_out), (whole(device), whole(3 * device)));
    assert_eq!(free.pages, whole(4 * device / 8192));
}
