//! The checksum of a record.

use std::io::{self, Write};

use serde_json::Value;

/// Returns the CRC-32 of a JSON value's compact text with sorted keys. Whitespace and key order do
/// not change it.
pub fn json_checksum(value: &Value) -> u32 {
    let mut sum = Crc32Writer(crc32fast::Hasher::new());
    serde_json::to_writer(&mut sum, value).expect("serializing a JSON value to memory cannot fail");
    sum.0.finalize()
}

struct Crc32Writer(crc32fast::Hasher);

impl Write for Crc32Writer {
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
    use buddy_core::checksum;

    use super::*;

    #[test]
    fn json_whitespace_and_key_order_do_not_change_the_checksum() {
        let sum = |text: &str| json_checksum(&serde_json::from_str(text).unwrap());
        assert_eq!(sum("{\"a\": 1.5,\n \"b\": [2]}"), sum("{\"b\":[2],\"a\":1.5}"));
        assert_eq!(sum("{\"b\":[2],\"a\":1.5}"), checksum(b"{\"a\":1.5,\"b\":[2]}"));
        assert_ne!(sum("{\"a\":1.5}"), sum("{\"a\":1.4}"));
    }
}
