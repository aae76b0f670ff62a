//! Reads any bytes as an array file: arrays within the file and the size limit, or an error.

use buddy_snapshot::{Format, inflate_limit, read_memory};

pub(crate) fn read(format: Format, bytes: &[u8]) {
    let arrays = read_memory(format, "x", bytes.to_vec(), None).unwrap_or_default();
    let mut total = 0;
    for array in arrays {
        let elements: u64 = array.shape.iter().product();
        assert_eq!(array.bytes().len() as u64, elements * array.dtype.bytes() as u64);
        total += array.bytes().len() as u64;
    }
    assert!(total <= inflate_limit(bytes.len() as u64));
}
