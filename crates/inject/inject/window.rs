//! What the codec `bf16` learns of an allocation: a window of sixteen exponents, the one that holds the most entries of a
//! sample whole. The twin of `Bf16::train` of buddy-codec, which a test compares.

/// Bytes of each run of a sample.
pub(crate) const SAMPLE_BYTES: u64 = 1024;
const RUNS: u64 = 64;
const ENTRY_BYTES: usize = 128;
const WINDOW: u8 = 16;

/// Where the runs of a sample begin: evenly spaced, each at an entry.
pub(crate) fn places(bytes: u64) -> impl Iterator<Item = u64> {
    let room = bytes.saturating_sub(SAMPLE_BYTES) / ENTRY_BYTES as u64;
    let runs = RUNS.min(bytes / SAMPLE_BYTES).max(1);
    (0..runs).map(move |run| room * run / (runs - 1).max(1) * ENTRY_BYTES as u64)
}

/// The first exponent of the best window, the lowest of equals; none if all is zero.
pub(crate) fn learned(sample: &[u8]) -> Option<u64> {
    if sample.iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut change = [0i64; 257];
    for entry in sample.chunks_exact(ENTRY_BYTES) {
        let exponents = || entry.chunks_exact(2).map(|two| two[1] << 1 | two[0] >> 7);
        let (low, high) = (exponents().min().unwrap_or(0), exponents().max().unwrap_or(0));
        let first = high.saturating_sub(WINDOW - 1);
        if first <= low {
            change[usize::from(first)] += 1;
            change[usize::from(low) + 1] -= 1;
        }
    }
    let mut best = (0, None);
    let mut count = 0;
    for (window, change) in (0..=240).zip(change) {
        count += change;
        if count > best.0 {
            best = (count, Some(window));
        }
    }
    best.1
}
