//! Targets from a profile of a smaller run: the final number of pages in use, the fraction of their
//! bricks that fit a window, and the memory that they take.

use serde::{Deserialize, Serialize};

use super::{
    kernels::{BRICKS, UNITS, WaveKernels, pages},
    model::{Grid, push},
    packed::PackedWave,
};
use crate::{Error, Lab};

/// Scale of the smaller run, per side.
const SCALE: f64 = 0.25;
/// Steps at its end in which bricks become windows, to count them.
const WINDOW_STEPS: u32 = 4;

/// Memory plan of a large run, extrapolated from a smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Cells of the smaller run.
    pub profiled: Grid,
    /// Fraction of pages with units at its end: an upper bound for the larger run, whose front is
    /// thinner.
    pub lit: f64,
    /// Fraction of bricks that were not zero.
    pub alive: f64,
    /// Fraction of these that fit a window (112 of 128 bytes).
    pub windows: f64,
    /// Bytes of fields at 1x, once the wave has passed every boundary.
    pub raw_bytes: u64,
    /// Bytes for fields on the device.
    pub room_bytes: u64,
    /// True if pages need target 8/7 and host memory.
    pub retargets: bool,
    /// Bytes of host memory for these.
    pub host_bytes: u64,
}

/// Performs the smaller run and makes the plan.
pub(super) fn plan(
    lab: &Lab,
    kernels: &WaveKernels,
    grid: Grid,
    room: Option<u64>,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<Plan, Error> {
    let profiled = grid.scaled(SCALE);
    let mut wave = PackedWave::new(lab, kernels, profiled, Some(8 * profiled.cells()), 0)?;
    let steps = profiled.steps_to_boundaries();
    for step in 0..steps {
        wave.windows = step + WINDOW_STEPS >= steps;
        wave.advance(push(step))?;
        if step % 64 == 63 {
            lab.wait()?;
            if !goes_on() {
                break;
            }
        }
    }
    wave.look()?;
    let [zero, window, ..] = wave.kinds()?;
    let lit = f64::from(wave.books.lit) / (2 * pages(profiled)) as f64;
    drop(wave);
    let room_bytes = match room {
        Some(room) => room,
        None => lab.gpu.info()?.free_bytes.saturating_sub(books_bytes(grid)),
    };
    let raw_bytes = (lit * 8.0 * grid.cells() as f64) as u64;
    let host_bytes = host_bytes(raw_bytes, room_bytes);
    let (alive, windows) = (1.0 - zero, window / (1.0 - zero).max(1e-9));
    Ok(Plan { profiled, lit, alive, windows, raw_bytes, room_bytes, retargets: host_bytes > 0, host_bytes })
}

/// Returns the bytes of everything but the fields: velocities, references, kinds, marks, the stack,
/// and a reserve.
fn books_bytes(grid: Grid) -> u64 {
    grid.cells() + pages(grid) * (2 * (4 * UNITS + BRICKS + 1) + 16) + (1 << 30)
}

/// Returns the host memory for fields of `raw` bytes at 1x: none if they fit; else an eighth, plus
/// the rest that does not fit; plus a twentieth, for pages allocated during retargeting.
fn host_bytes(raw: u64, room: u64) -> u64 {
    if raw <= room / 100 * 98 {
        return 0;
    }
    let (last_units, rest) = (raw / 8, raw / 8 * 7);
    let bytes = last_units + rest.saturating_sub(room);
    (bytes + bytes / 20 + raw / 50).next_multiple_of(1 << 21)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_is_for_what_does_not_fit() {
        const GB: u64 = 1_000_000_000;
        assert_eq!(host_bytes(90 * GB, 100 * GB), 0);
        // 8/7 suffices: only last units.
        let last = host_bytes(112 * GB, 100 * GB);
        assert!((14 * GB..18 * GB).contains(&last), "{last}");
        // And 40 GB of others.
        let more = host_bytes(160 * GB, 100 * GB);
        assert!((60 * GB..67 * GB).contains(&more), "{more}");
    }
}
