//! The host's memory.

use std::fs;

/// Returns the available bytes, and the process's limit of locked memory as the kernel prints it.
pub(crate) fn memory() -> (u64, String) {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    (available(&info).unwrap_or(u64::MAX), locked(&limits).unwrap_or("unknown").to_owned())
}

fn available(info: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

fn locked(limits: &str) -> Option<&str> {
    limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   12 kB\n"), Some(12 * 1024));
        assert_eq!(available("nothing"), None);
        let limits =
            "Limit Soft Hard Units\nMax locked memory         65536                unlimited  bytes\n";
        assert_eq!(locked(limits), Some("65536"));
    }
}
