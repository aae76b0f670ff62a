//! An interruption in the middle of a write. Alone in its process, since nothing can be written
//! afterwards.

use std::{fs, io::Write, sync::mpsc, thread};

use buddy_snapshot::{discard_partial, write_atomic};

#[test]
fn an_interruption_leaves_no_partial_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.bin");
    let (begun, wait) = mpsc::channel();
    let (_never, go_on) = mpsc::channel::<()>();
    thread::spawn(move || {
        write_atomic(&path, |out| {
            out.write_all(&[1; 4 << 20])?;
            begun.send(()).unwrap();
            let _ = go_on.recv();
            Ok(())
        })
    });
    wait.recv().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the file is there under its other name");
    discard_partial();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
