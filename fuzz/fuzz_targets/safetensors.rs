//! Any bytes as a `.safetensors` file: arrays that lie within it, or an error.
#![no_main]

use buddy_snapshot::{Format, read_memory};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for array in read_memory(Format::Safetensors, "x", bytes.to_vec(), None).unwrap_or_default() {
        let elements: u64 = array.shape.iter().product();
        assert_eq!(array.bytes().len() as u64, elements * array.dtype.bytes() as u64);
    }
});
