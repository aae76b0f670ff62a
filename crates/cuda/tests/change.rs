//! Changes of targets in use, on a real GPU. Without one these tests report that they were skipped;
//! with `BUDDY_REQUIRE_GPU=1` they fail instead.

use buddy_codec::CodecKind;
use buddy_core::{ENTRY_BYTES, Target};
use buddy_cuda::{Allocation, DeviceBytes, Error};
use buddy_gpu_lab::{Fill, Lab, on_gpu};
use buddy_record::TargetTable;

const BYTES: u64 = 4096 * ENTRY_BYTES as u64;

fn download(bytes: &DeviceBytes) -> Vec<u8> {
    let mut host = vec![0; bytes.len() as usize];
    bytes.download(&mut host).unwrap();
    host
}

#[test]
fn an_allocation_gets_another_target_and_loses_nothing() {
    on_gpu(|gpu| {
        let stream = gpu.stream().unwrap();
        let bytes = BYTES - 100;
        let (data, back) = (DeviceBytes::new(gpu, BYTES).unwrap(), DeviceBytes::new(gpu, bytes).unwrap());
        Lab::new(gpu).unwrap().make(data.all(), Fill::Varied, 7, 0.1).unwrap();
        let mut one = Allocation::new(gpu, bytes, Target::X16, CodecKind::Bpc.train(&[])).unwrap();
        one.write(&stream, 0, data.span(0..bytes)).unwrap();
        for target in [Target::X2, Target::X1, Target::X4] {
            one.retarget(&stream, target).unwrap();
            assert_eq!(one.buffer().target(0), target);
            one.read_checked(&stream, 0, back.all()).unwrap();
            assert_eq!(download(&back), download(&data)[..bytes as usize]);
        }
    });
}

/// After each snapshot of a file with changes, allocations have its targets and all their bytes.
#[test]
fn the_changes_of_a_file_are_carried_out_and_lose_nothing() {
    const FILE: &str = r#"
version = 1
program = "example"
[[allocation]]
name = "grows"
bytes = 524288
codec = "bpc"
target = "1x"
[[allocation]]
name = "shrinks"
bytes = 24500
codec = "planes64"
target = "1x"
[[change]]
snapshot = 0
name = "grows"
bytes_moved = 0
ranges = [{ pages = 64, target = "16x" }]
[[change]]
snapshot = 3
name = "grows"
bytes_moved = 100000
ranges = [{ pages = 10, target = "4x" }, { pages = 54, target = "2x" }]
[[change]]
snapshot = 3
name = "shrinks"
bytes_moved = 20000
ranges = [{ pages = 2, target = "4x" }, { pages = 1, target = "1x" }]
"#;
    on_gpu(|gpu| {
        let stream = gpu.stream().unwrap();
        let table = TargetTable::parse(FILE).unwrap();
        let mut all = Allocation::by_table(gpu, &table).unwrap();
        let lab = Lab::new(gpu).unwrap();
        let written: Vec<Vec<u8>> = all
            .iter()
            .map(|(_, one)| {
                let data = DeviceBytes::new(gpu, one.bytes().next_multiple_of(ENTRY_BYTES as u64)).unwrap();
                lab.make(data.all(), Fill::Varied, 7, 0.1).unwrap();
                one.write(&stream, 0, data.span(0..one.bytes())).unwrap();
                download(&data)[..one.bytes() as usize].to_vec()
            })
            .collect();
        assert_eq!(all[0].1.buffer().target(0), Target::X16);
        assert!(Allocation::change(&mut all, &stream, &table, 2).is_empty());
        let changed = Allocation::change(&mut all, &stream, &table, 3);
        assert_eq!(changed.iter().map(|one| &one.name[..]).collect::<Vec<_>>(), ["shrinks", "grows"]);
        for (before, now) in changed.into_iter().map(|one| one.outcome.unwrap()).take(1) {
            assert!(now < before, "{now} of {before}");
        }
        assert_eq!([0, 640].map(|entry| all[0].1.buffer().target(entry)), [Target::X4, Target::X2]);
        for ((name, one), written) in all.iter().zip(&written) {
            let back = DeviceBytes::new(gpu, one.bytes()).unwrap();
            one.read_checked(&stream, 0, back.all()).unwrap();
            assert!(download(&back) == *written, "{name}");
        }
        // Ranges of other pages are rejected, and the allocation is unchanged.
        let mut wrong = table.clone();
        wrong.changes[1].ranges.pop();
        let changed = Allocation::change(&mut all, &stream, &wrong, 3);
        assert!(changed.iter().any(|one| matches!(one.outcome, Err(Error::Targets(_)))));
        assert_eq!(all[0].1.buffer().target(640), Target::X2);
    });
}

/// Changes there and back on one stream, of data just written without waiting, while another stream
/// writes and reads its own allocation.
#[test]
fn changes_come_after_what_their_stream_does_and_leave_other_streams_alone() {
    const FILE: &str = r#"
version = 1
program = "example"
[[allocation]]
name = "changes"
bytes = 8388608
codec = "bpc"
target = "2x"
[[allocation]]
name = "stays"
bytes = 8388608
codec = "planes64"
target = "4x"
[[change]]
snapshot = 1
name = "changes"
bytes_moved = 0
ranges = [{ pages = 1000, target = "16x" }, { pages = 24, target = "1x" }]
[[change]]
snapshot = 2
name = "changes"
bytes_moved = 0
ranges = [{ pages = 1, target = "4/3x" }, { pages = 1023, target = "4x" }]
[[change]]
snapshot = 3
name = "changes"
bytes_moved = 0
ranges = [{ pages = 1024, target = "1x" }]
"#;
    on_gpu(|gpu| {
        let (stream, aside) = (gpu.stream().unwrap(), gpu.stream().unwrap());
        let table = TargetTable::parse(FILE).unwrap();
        let mut all = Allocation::by_table(gpu, &table).unwrap();
        let (_, stays) = all.pop().unwrap();
        let bytes = stays.bytes();
        let [data, kept, back, there] = [(); 4].map(|()| DeviceBytes::new(gpu, bytes).unwrap());
        let lab = Lab::new(gpu).unwrap();
        lab.make(kept.all(), Fill::Varied, 1, 0.2).unwrap();
        for round in 0..12 {
            lab.make(data.all(), Fill::Varied, round, [0.0, 0.1, 1.0][round as usize % 3]).unwrap();
            let written = download(&data);
            for _ in 0..20 {
                stays.write(&aside, 0, kept.all()).unwrap();
                stays.read(&aside, 0, there.all()).unwrap();
            }
            all[0].1.write(&stream, 0, data.all()).unwrap();
            let snapshot = 1 + round as usize % 3;
            let changed = Allocation::change(&mut all, &stream, &table, snapshot);
            assert!(changed.len() == 1 && changed[0].outcome.is_ok(), "{changed:?}");
            let last = all[0].1.buffer().target(64 * 1023);
            assert_eq!(last, [Target::X1, Target::X4, Target::X1][snapshot - 1]);
            all[0].1.read_checked(&stream, 0, back.all()).unwrap();
            assert!(download(&back) == written, "round {round}");
            gpu.wait(&aside).unwrap();
            assert!(download(&there) == download(&kept), "round {round}: the other stream");
        }
    });
}
