//! Logs converted to records.

use buddy_snapshot::Run;

use super::{
    lines::{SUMS, write_part},
    spans::Table,
};
use crate::{collect, parse, report};

const HEAD: &str = "buddy-watch 2\npid 42\nrank 3\nargument /opt/cg\nargument C\ncodec bpc\ncodec zeros32\n\
                    card NVIDIA H200\ndriver 13000\nsite 0 cg.cu:5\nslot 0 0 1 8320 plain\nslot 1 0 2 128 async\n";

/// A snapshot at launch `n` of the first allocation, of 65 entries.
fn look(n: u64) -> String {
    let rows = format!("{} 5", "0".repeat(64));
    format!(
        "look {n} {n}000 kernel_{n}\nsizes 0 0x1000 0 64 0 0 0 0 1 128\nblocks 0 0 1 400000000000 000000000001\n\
         sizes 0 0x1000 1 0 0 0 0 0 65 8320\nblocks 0 1 1 000000000040 000000000001\nrows 0 {rows}\n\
         totals {n} 2 1 128 8448\ndone 500\n"
    )
}

#[test]
fn a_log_becomes_the_record_of_a_run() {
    let watched = parse(&format!("{HEAD}{}{}accesses 0 130\nend 9000\n", look(1), look(2))).unwrap();
    assert_eq!((watched.pid, watched.rank, watched.ended), (42, Some(3), Some(9000)));
    let record = watched.record().unwrap();
    record.validate().unwrap();
    assert_eq!(record.run.program, "cg");
    assert_eq!(record.run.allocations.len(), 1, "the other one was never seen");
    assert_eq!(record.run.allocations[0].name, "cg.cu:5");
    assert_eq!(record.run.snapshots[1].label, "kernel_2");
    assert_eq!(record.sizes[0][0].histograms["zeros32"].classes[5], 65);
    assert!(record.sizes[0][0].pages["bpc"].is_whole());
    assert_eq!(record.sizes[0][0].blocks["bpc"].counts()[1], [0, 0, 0, 0, 0, 1]);
    assert_eq!(watched.name(1), "cg.cu:5#2");
    assert_eq!(watched.accesses_json(), "{\n  \"cg.cu:5\": 130\n}\n");
    let text = report(&watched);
    assert!(text.contains("process 42, rank 3") && text.contains("1 of 2 allocations"), "{text}");
}

#[test]
fn a_crash_keeps_what_was_seen() {
    let whole = format!("{HEAD}{}{}", look(1), look(2));
    for end in HEAD.len()..whole.len() {
        let watched = parse(&whole[..end]).unwrap();
        assert!(watched.looks.len() <= 2);
        if let Some(record) = watched.record() {
            record.validate().unwrap();
        }
    }
    let watched = parse(&whole[..whole.len() - 5]).unwrap();
    assert_eq!(watched.looks.len(), 1);
    assert!(report(&watched).contains("did not end by itself"));
}

#[test]
fn every_second_look_goes_when_there_are_many() {
    let looks: String = (1..=20).map(look).collect();
    let watched = parse(&format!("{HEAD}{looks}halve\n{}", look(22))).unwrap();
    let launches: Vec<u64> = watched.looks.iter().map(|look| look.launches).collect();
    assert_eq!(launches, [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22]);
    assert_eq!((watched.taken, watched.cost_nanoseconds), (21, 10_500));
    assert_eq!(watched.looks[10].index, 20);
}

#[test]
fn a_line_that_is_none_is_named() {
    let error = parse(&format!("{HEAD}sizes 0 0 0\nend 5\n")).unwrap_err().to_string();
    assert!(error.starts_with("line 13 of the log"), "{error}");
    assert!(parse("buddy-watch 3\npid 1\n").is_err());
}

#[test]
fn dumps_become_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("42"), dir.path().join("run"));
    let mut second = look(2);
    second.insert_str(
        second.find("rows").unwrap(),
        "sizes 1 0x9000 0 1 0 0 0 0 0 0\nblocks 1 0 1 010000000000\n\
                       sizes 1 0x9000 1 1 0 0 0 0 0 0\nblocks 1 1 1 010000000000\nrows 1 0\n",
    );
    let watched = parse(&format!("{HEAD}{}{second}", look(1))).unwrap();
    for (snapshot, slot, bytes) in [(0, 0, 8320), (1, 0, 8320), (1, 1, 128)] {
        let folder = from.join(format!("snapshot-{snapshot}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(slot.to_string()), vec![7u8; bytes]).unwrap();
    }
    assert_eq!(collect(&watched, &from, &to).unwrap(), 1);
    let run: buddy_record::RunInfo =
        serde_json::from_str(&std::fs::read_to_string(to.join("run.json")).unwrap()).unwrap();
    assert_eq!(run.allocations.len(), 1);
    assert_eq!(run.snapshots[1].file.as_deref(), Some("snapshot-1"));
    assert_eq!(std::fs::read(to.join("snapshot-1/cg.cu:5")).unwrap().len(), 8320);
    assert_eq!(std::fs::read(to.join("sometimes/snapshot-1/cg.cu:5#2")).unwrap().len(), 128);
    assert!(!from.exists());
    // `buddy profile` reads the result.
    let arrays = Run::open(&to).unwrap().snapshot(1).unwrap();
    assert_eq!((arrays[0].name.as_str(), arrays[0].bytes()), ("cg.cu:5", &[7; 8320][..]));
}

/// The reader parses what the library writes: an allocation of 300 pages in blocks of two, whose
/// counts need two digits, and one of 3 entries.
#[test]
fn blocks_are_read_as_they_are_written() {
    let table = Table::new(&[(0, 0x1000, 300 * 8192), (1, 0x90_0000, 384)]);
    let block = |index: u64| {
        if index < 100 { [128, 0, 0, 0, 0, 0, 0] } else { [index - 100, 0, 1, 0, 0, 228 - index, 9] }
    };
    let last = [0, 3, 0, 0, 0, 0, 24];
    let mut sums: Vec<u64> = (0..150).flat_map(block).chain(last).collect();
    sums.resize(SUMS * table.spans, 0);
    let mut log = format!("{HEAD}look 1 1 kernel\n").replace("codec zeros32\n", "").into_bytes();
    let classes = vec![5; 64 * table.picture_pages];
    table.parts.iter().for_each(|part| write_part(&mut log, &table, part, &sums, &classes));
    log.extend(b"totals 1 2 0 0 0\ndone 1\n");
    let text = String::from_utf8(log).unwrap();
    assert!(text.contains("blocks 0 0 2 100*800000000000 000001000080 "), "{text}");
    let seen = &parse(&text).unwrap().looks[0].seen;
    let six = |index: u64| block(index)[..6].try_into().unwrap();
    assert_eq!(seen[&0].blocks[0].counts(), (0..150).map(six).collect::<Vec<[u64; 6]>>());
    assert_eq!(seen[&0].histograms[0].classes[0], 100 * 128 + (0..50).sum::<u64>());
    assert_eq!(seen[&1].blocks[0].counts(), [[0, 3, 0, 0, 0, 0]]);
    assert_eq!(seen[&1].rows, ["555"]);
}

/// A process killed during a snapshot: the snapshot's file is truncated, and it does not count.
#[test]
fn looks_are_read_from_their_own_files() {
    let dir = tempfile::tempdir().unwrap();
    let whole = look(1);
    let lines: Vec<&str> = whole
        .lines()
        .filter(|line| ["sizes", "blocks", "rows"].contains(&&line[..line.find(' ').unwrap()]))
        .collect();
    let text = lines.join("\n");
    std::fs::write(dir.path().join("42.0.look"), &text).unwrap();
    std::fs::write(dir.path().join("42.1.look"), &text[..text.len() / 2]).unwrap();
    let bare = |n: u64| format!("look {n} {n}000 kernel_{n}\ntotals {n} 2 1 128 8448\ndone 500\n");
    let mut watched = parse(&format!("{HEAD}{}{}{}", bare(1), bare(2), bare(3))).unwrap();
    let whole: Vec<bool> = watched.looks.iter_mut().map(|look| look.is_whole_in(dir.path(), "42")).collect();
    assert_eq!(whole, [true, false, false]);
    assert_eq!(watched.looks[0].seen, parse(&format!("{HEAD}{}", look(1))).unwrap().looks[0].seen);
}
