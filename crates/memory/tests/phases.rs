//! Applying a target file with changes: no data is lost, and space is released.

use buddy_core::Targets;
use buddy_memory::{BuddyMemory, Error, Handle, Request, Spec};
use buddy_record::TargetTable;

/// Two allocations of four pages: one fills up and one empties at the same snapshot.
const TABLE: &str = r#"
version = 1
program = "p"
[[allocation]]
name = "fills"
bytes = 32768
codec = "bpc"
target = "1x"
[[allocation]]
name = "empties"
bytes = 32768
codec = "bpc"
target = "1x"
[[change]]
snapshot = 0
name = "fills"
bytes_moved = 0
ranges = [{ pages = 4, target = "16x" }]
[[change]]
snapshot = 3
name = "fills"
bytes_moved = 32768
ranges = [{ pages = 1, target = "4x" }, { pages = 3, target = "1x" }]
[[change]]
snapshot = 3
name = "empties"
bytes_moved = 0
ranges = [{ pages = 4, target = "16x" }]
"#;

const PAGE_BYTES: u64 = 8192;

fn noise(seed: u32) -> Vec<u8> {
    let next = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((*state >> 24) as u8)
    };
    std::iter::repeat(()).scan(seed, |state, ()| next(state)).take(4 * PAGE_BYTES as usize).collect()
}

fn read(memory: &BuddyMemory, handle: Handle) -> Vec<u8> {
    let mut bytes = vec![0; 4 * PAGE_BYTES as usize];
    memory.read(handle, 0, &mut bytes).unwrap();
    bytes
}

/// Returns the memory after the changes of the first snapshot, with noise in one allocation and
/// little in the other.
fn begun(device_bytes: u64) -> (BuddyMemory, TargetTable, [Handle; 2]) {
    let table = TargetTable::parse(TABLE).unwrap();
    let memory = BuddyMemory::new(Spec { page_bytes: PAGE_BYTES, ..Spec::new(device_bytes) }).unwrap();
    let allocate = |name: &str| {
        let row = table.get(name).unwrap();
        let codec = buddy_record::codec_with_parameters(&row.codec, &row.parameters, Vec::new).unwrap();
        let first = table.changes.iter().find(|change| change.snapshot == 0 && change.name == name);
        let targets = first.map_or(row.targets.clone(), |change| Targets::Pages(change.ranges.clone()));
        memory.allocate(&Request::new(row.bytes, codec, targets)).unwrap()
    };
    let handles = ["fills", "empties"].map(allocate);
    memory.write(handles[0], 5000, &[7; 300]).unwrap();
    memory.write(handles[1], 0, &noise(1)).unwrap();
    (memory, table, handles)
}

fn of(handles: [Handle; 2]) -> impl Fn(&str) -> Option<Handle> {
    move |name| ["fills", "empties"].iter().position(|known| *known == name).map(|at| handles[at])
}

#[test]
fn changes_apply_at_their_snapshot_and_lose_no_data() {
    let (memory, table, handles) = begun(1 << 20);
    let before = handles.map(|handle| read(&memory, handle));
    assert!(memory.change(&table, 1, of(handles)).is_empty(), "nothing is due");
    assert!(memory.change(&table, 3, |_| None).is_empty(), "no handle is known");
    let changed = memory.change(&table, 3, of(handles));
    let order: Vec<&str> = changed.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(order, ["empties", "fills"], "changes that release memory go first");
    let device: Vec<u64> =
        changed.iter().map(|one| one.outcome.clone().unwrap().device_bytes_after).collect();
    assert_eq!(device, [4 * 64 * 8, 64 * 32 + 3 * 64 * 128]);
    assert_eq!(handles.map(|handle| read(&memory, handle)), before);
    memory.write(handles[0], 0, &noise(2)).unwrap();
    assert_eq!(read(&memory, handles[0]), noise(2));
    assert_eq!(read(&memory, handles[1]), before[1]);
}

/// 40 KiB of device memory: the growing allocation fits only in the space of the shrinking one.
#[test]
fn space_released_by_one_change_serves_the_next() {
    let (memory, table, handles) = begun(40 << 10);
    let before = handles.map(|handle| read(&memory, handle));
    let changed = memory.change(&table, 3, of(handles));
    assert!(changed.iter().all(|one| one.outcome.is_ok()), "{changed:?}");
    assert_eq!(handles.map(|handle| read(&memory, handle)), before);
}

#[test]
fn a_change_without_space_fails_alone() {
    let (memory, table, handles) = begun(40 << 10);
    let before = handles.map(|handle| read(&memory, handle));
    let only = of(handles);
    let changed = memory.change(&table, 3, |name| (name == "fills").then(|| only(name)).flatten());
    assert!(matches!(changed[0].outcome, Err(Error::DeviceExhausted { .. })), "{changed:?}");
    assert_eq!(handles.map(|handle| read(&memory, handle)), before);
}
