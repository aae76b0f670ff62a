//! `buddy inspect` end to end: its output and exit codes.

use buddy_codec::{Codec, CodecKind, EntryCodec};
use buddy_core::{Entry, Layout, SizeClass, as_entries};
use serde_json::Value;

use crate::common::{Run, SAMPLE, buddy, buddy_with, inspect};

/// 1000, 1004, 1008, ...: the worked example of the command-line contract.
fn counters() -> Vec<u8> {
    (0..32u32).flat_map(|i| (1000 + 4 * i).to_le_bytes()).collect()
}

/// Returns bytes without a pattern.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn json_line_matches_the_contract() {
    let Run { stdout, stderr, code } = inspect(&counters(), &["--codec", "bpc", "--format", "jsonl"]);
    assert_eq!(stdout, "{\"entry\":0,\"bits\":39,\"class\":\"b8\",\"stream\":\"607d0f0012\"}\n");
    assert_eq!((stderr.as_str(), code), ("", 0));
}

#[test]
fn zeros_have_a_stream_and_raw_entries_have_none() {
    let data = [vec![0; 128], noise(128)].concat();
    let Run { stdout, .. } = inspect(&data, &["--format", "jsonl"]);
    assert_eq!(
        stdout,
        "{\"entry\":0,\"bits\":10,\"class\":\"zero\",\"stream\":\"0fc0\"}\n\
         {\"entry\":1,\"bits\":1089,\"class\":\"raw\",\"stream\":null}\n"
    );
}

#[test]
fn streams_of_every_codec_decode_to_the_entries() {
    let data = [std::fs::read(SAMPLE).unwrap(), counters(), noise(256)].concat();
    let entries = as_entries(&data).0;
    for kind in CodecKind::ALL {
        let run = inspect(&data, &["--codec", kind.name(), "--format", "jsonl"]);
        assert_eq!((run.code, run.stdout.lines().count()), (0, entries.len()), "{kind}");
        let codec = kind.train(entries);
        for (index, (line, entry)) in run.stdout.lines().zip(entries).enumerate() {
            check_line(&serde_json::from_str(line).unwrap(), index, entry, &codec);
        }
    }
}

/// Checks that a line has the codec's sizes and a stream that decodes to the entry.
fn check_line(line: &Value, index: usize, entry: &Entry, codec: &Codec) {
    let class = codec.class(entry);
    assert_eq!(line["entry"], index);
    assert_eq!(line["bits"], codec.size_bits(entry));
    assert_eq!(line["class"], class.name());
    match &line["stream"] {
        Value::Null => assert_eq!(class, SizeClass::Raw),
        stream => {
            let stream = bytes(stream.as_str().unwrap());
            assert_eq!(stream.len(), codec.size_bits(entry).div_ceil(8) as usize);
            let layout = line
                .get("layout")
                .map_or(Layout::A, |layout| serde_json::from_value(layout.clone()).unwrap());
            assert_eq!(codec.decode(&stream, layout).as_ref(), Ok(entry), "{line}");
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn the_table_of_the_sample() {
    let Run { stdout, stderr, code } = buddy(&["inspect", SAMPLE]);
    insta::assert_snapshot!(stdout);
    assert_eq!(
        (stderr.as_str(), code),
        ("30 entries: zero 2, b8 5, s1 9, s2 6, s3 4, raw 4\nbpc: 3840 bytes in 1608, ratio 2.39\n", 0)
    );
}

#[test]
fn a_file_and_stdin_print_the_same() {
    let piped = inspect(&std::fs::read(SAMPLE).unwrap(), &[]);
    assert_eq!(buddy(&["inspect", SAMPLE]).stdout, piped.stdout);
}

#[test]
fn all_zeros_have_no_ratio() {
    let summary = inspect(&[0; 256], &[]).stderr;
    assert!(summary.ends_with("bpc: 256 bytes in 0, every entry is zero\n"), "{summary}");
}

#[test]
fn a_short_last_entry_is_padded_with_a_note() {
    let data = [counters(), vec![7; 3]].concat();
    let mut padded = data.clone();
    padded.resize(256, 0);
    let run = inspect(&data, &["--format", "jsonl"]);
    assert_eq!(run.stdout, inspect(&padded, &["--format", "jsonl"]).stdout);
    assert_eq!(
        (run.stderr.as_str(), run.code),
        ("note: the last entry of stdin is padded with 125 zero bytes\n", 0)
    );
}

#[test]
fn unreadable_input_is_one_line_and_exit_code_1() {
    let folder = tempdir("unreadable");
    let empty = folder.join("empty");
    std::fs::write(&empty, "").unwrap();
    for (path, cause) in [
        (folder.join("missing"), "No such file or directory"),
        (folder.clone(), "Is a directory"),
        (empty, "is empty"),
    ] {
        let path = path.to_str().unwrap();
        for format in ["table", "jsonl"] {
            let run = buddy(&["inspect", path, "--format", format]);
            assert_eq!((run.code, run.stdout.as_str(), run.stderr.lines().count()), (1, "", 1));
            assert!(run.stderr.starts_with("buddy: ") && run.stderr.contains(path), "{}", run.stderr);
            assert!(run.stderr.contains(cause), "{}", run.stderr);
        }
    }
    assert_eq!(inspect(&[], &[]).stderr, "buddy: stdin is empty: there is no entry to inspect\n");
}

/// Root can read the file, so the verb succeeds for root.
#[cfg(unix)]
#[test]
fn a_file_without_permission_is_one_line_and_exit_code_1() {
    use std::os::unix::fs::PermissionsExt;
    let path = tempdir("forbidden").join("secret");
    std::fs::write(&path, counters()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    let run = buddy(&["inspect", path.to_str().unwrap()]);
    if std::fs::File::open(&path).is_ok() {
        eprintln!("skipped: this user may read every file");
    } else {
        assert_eq!((run.code, run.stderr.lines().count()), (1, 1));
        assert!(run.stderr.contains("Permission denied"), "{}", run.stderr);
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    // More than a pipe holds, so that the command is still writing when its reader closes.
    let data = noise(1 << 20);
    for format in ["table", "jsonl"] {
        let run = buddy_with(&["inspect", "-", "--format", format], &data, Some(1));
        assert_eq!((run.stdout.lines().count(), run.stderr.as_str(), run.code), (1, "", 0));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::File::create("/dev/full").unwrap();
    let run = crate::common::command(&["inspect", SAMPLE]).stdout(full).output().unwrap();
    assert_eq!(run.status.code(), Some(1));
    assert!(
        String::from_utf8(run.stderr).unwrap().starts_with("buddy: cannot write to stdout: No space left")
    );
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [
        &["inspect"][..],
        &["inspect", SAMPLE, "--codec", "zip"],
        &["inspect", SAMPLE, "--format", "xml"],
        &["inspect", SAMPLE, SAMPLE],
        &["explode"],
        &[],
    ] {
        let run = buddy(args);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{args:?}");
        assert!(!run.stderr.is_empty());
    }
}

/// Creates an empty folder for one test.
fn tempdir(name: &str) -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn a_container_is_shown_as_it_lies_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let note = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let run = buddy(&["inspect", path.to_str().unwrap(), "--format", "jsonl"]);
        assert_eq!((run.code, run.stdout.lines().count()), (0, 1), "{}", run.stderr);
        run.stderr.replace(path.to_str().unwrap(), name)
    };
    let numpy = note("a.npy", b"\x93NUMPY\x01\0");
    assert!(
        numpy.starts_with("note: a.npy is .npy; its bytes are shown as they lie in the file; buddy analyze"),
        "{numpy}"
    );
    let packed = note("a.gz", b"\x1f\x8b\x08\0");
    assert!(
        packed.starts_with("note: a.gz is gzip; its bytes are shown as they lie in the file\n"),
        "{packed}"
    );
    assert_eq!(note("a.bin", &[0; 128]), "");
}
