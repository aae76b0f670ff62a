//! Times that a busy machine disturbs little.

use std::{ops::Range, time::Instant};

/// Times one piece this often and keeps the best.
const REPEATS: usize = 15;

/// Seconds that `work` takes over `0..count` on an undisturbed core: the sum, over pieces of `piece`, of the best of
/// several tries. A piece is short, so that at least one of its tries is likely to run without a task switch.
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
