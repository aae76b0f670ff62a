//! Timing that tolerates a busy machine.

use std::{ops::Range, time::Instant};

/// Runs per piece; the fastest counts.
const REPEATS: usize = 15;

/// Returns the seconds of `work` over `0..count` on an undisturbed core: the sum, over pieces of
/// `piece`, of the fastest run. Pieces are short, so one run of each is likely to finish without a
/// task switch.
pub(crate) fn best_seconds(count: usize, piece: usize, mut work: impl FnMut(Range<usize>)) -> f64 {
    let mut total = 0.0;
    for start in (0..count).step_by(piece) {
        let range = start..count.min(start + piece);
        let tries = (0..REPEATS).map(|_| {
            let begin = Instant::now();
            work(range.clone());
            begin.elapsed().as_secs_f64()
        });
        total += tries.fold(f64::INFINITY, f64::min);
    }
    total
}
