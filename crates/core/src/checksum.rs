//! The one checksum of files that we write and read again: CRC-32 of zip, gzip and PNG, which any tool computes.
//!
//! It finds accidents (a bad disk, a cut copy, an edit), not forgery.

use std::io::{self, Write};

use serde_json::Value;

/// The checksum of bytes.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// The checksum of what a JSON value means: of its compact text with sorted keys. Line breaks and the order of keys make
/// no difference to it; a digit does.
pub fn json_checksum(value: &Value) -> u32 {
    let mut sum = Summing(crc32fast::Hasher::new());
    serde_json::to_writer(&mut sum, value).expect("a value is JSON, and a sum takes any bytes");
    sum.0.finalize()
}

struct Summing(crc32fast::Hasher);

impl Write for Summing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_one() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn the_form_of_json_makes_no_difference_and_a_digit_does() {
        let sum = |text: &str| json_checksum(&serde_json::from_str(text).unwrap());
        assert_eq!(sum("{\"a\": 1.5,\n \"b\": [2]}"), sum("{\"b\":[2],\"a\":1.5}"));
        assert_eq!(sum("{\"b\":[2],\"a\":1.5}"), checksum(b"{\"a\":1.5,\"b\":[2]}"));
        assert_ne!(sum("{\"a\":1.5}"), sum("{\"a\":1.4}"));
    }
}
