//! Reads any bytes as a frozen buffer or a tight matrix: data of the stated length, or an error.
//! Bytes that match their checksum always decode.

use buddy_codec::{Frozen, Tight, TightHeader};

pub(crate) fn read(bytes: &[u8]) {
    if TightHeader::is_tight(bytes) {
        return tight(bytes);
    }
    let Ok(frozen) = Frozen::open(bytes) else { return };
    let header = frozen.header();
    for entry in [0, 1, header.entries() / 2, header.entries(), u64::MAX] {
        let _ = frozen.entry(entry);
    }
    let checked = frozen.check();
    match frozen.read() {
        Ok(data) => assert_eq!(data.len() as u64, frozen.header().bytes),
        Err(error) => assert_ne!(checked, Ok(true), "{error}"),
    }
}

fn tight(bytes: &[u8]) {
    let Ok(tight) = Tight::open(bytes) else { return };
    let header = tight.header();
    let entries: Vec<_> =
        [0, 1, header.entries() / 2, header.entries(), u64::MAX].map(|entry| tight.entry(entry)).into();
    let checked = tight.check();
    match tight.read() {
        Ok(data) => {
            assert_eq!(data.len() as u64, header.bytes);
            assert!(
                data.is_empty() || entries[0].as_ref().is_ok_and(|entry| entry[..] == data[..entry.len()])
            );
        }
        Err(error) => assert_ne!(checked, Ok(true), "{error}"),
    }
}
