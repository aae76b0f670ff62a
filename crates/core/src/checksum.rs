//! The checksum of every file that we write and read back: CRC-32 as in zip, gzip and PNG.
//!
//! It detects accidents (a bad disk, a truncated copy, an edit), not forgery.

/// Returns the CRC-32 of `bytes`.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_matches_the_published_check_value() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
    }
}
