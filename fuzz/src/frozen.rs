//! Reads any bytes as a frozen buffer: data of the stated length, or an error.

use buddy_codec::Frozen;

pub(crate) fn read(bytes: &[u8]) {
    let Ok(frozen) = Frozen::open(bytes) else { return };
    let header = frozen.header();
    for entry in [0, 1, header.entries() / 2, header.entries(), u64::MAX] {
        let _ = frozen.entry(entry);
    }
    if let Ok(data) = frozen.read() {
        assert_eq!(data.len() as u64, frozen.header().bytes);
    }
}
