//! Initial content of arrays, the same on the GPU and in the tracer.

use buddy_trace::{pattern, sass::Content};

use super::cases::Holds;

/// Returns the words of an array that begins at `base`.
pub(super) fn content(holds: Holds, base: u64, bytes: u64) -> Content {
    let words = (bytes / 4) as usize;
    Content::Words(match holds {
        Holds::Anything => return Content::Unknown,
        Holds::Zeros => vec![0; words],
        Holds::Random { below } => {
            (0..words as u64).map(|word| (scramble(word) % u64::from(below)) as u32).collect()
        }
        Holds::Rows => {
            let mut end = 0;
            let row = |row: u64| {
                let next = end + 8 + (scramble(row) % 17) as u32;
                std::mem::replace(&mut end, next)
            };
            (0..words as u64).map(row).collect()
        }
        Holds::Ring { every } => ring(base, bytes, every),
    })
}

/// Returns one ring through all slots: a permutation with a single cycle (Sattolo).
fn ring(base: u64, bytes: u64, every: u64) -> Vec<u32> {
    let slots = (bytes / every) as usize;
    let mut order: Vec<u64> = (0..slots as u64).collect();
    for last in (1..slots).rev() {
        order.swap(last, (scramble(last as u64) % last as u64) as usize);
    }
    let mut words = vec![0; (bytes / 4) as usize];
    for (slot, next) in order.iter().enumerate() {
        let (at, to) = (slot * (every / 4) as usize, base + next * every);
        (words[at], words[at + 1]) = (to as u32, (to >> 32) as u32);
    }
    words
}

/// Returns a pseudo-random number.
fn scramble(value: u64) -> u64 {
    pattern::scramble(value.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_passes_every_slot_once() {
        let Content::Words(words) = content(Holds::Ring { every: 64 }, 1 << 40, 64 * 100) else { panic!() };
        let next = |at: u64| {
            let word = ((at - (1 << 40)) / 4) as usize;
            u64::from(words[word + 1]) << 32 | u64::from(words[word])
        };
        let mut at = 1 << 40;
        for step in 1..=100 {
            at = next(at);
            assert_eq!(at == 1 << 40, step == 100, "after {step} steps");
        }
    }

    #[test]
    fn rows_grow() {
        let Content::Words(rows) = content(Holds::Rows, 0, 400) else { panic!() };
        assert!(rows[0] == 0 && rows.windows(2).all(|pair| (8..25).contains(&(pair[1] - pair[0]))));
    }
}
