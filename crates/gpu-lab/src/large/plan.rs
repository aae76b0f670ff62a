//! Targets from a profile of a smaller run: how many pages will be lit at the end, how many of
//! their bricks fit a window, and what of them the room takes.

use serde::{Deserialize, Serialize};

use super::{
    kernels::{BRICKS, UNITS, WaveKernels, pages},
    model::{Grid, push},
    packed::PackedWave,
};
use crate::{Error, Lab};

/// A side of the smaller run.
const SCALE: f64 = 0.25;
/// Steps at its end by which bricks become windows, so that they are counted.
const WINDOW_STEPS: u32 = 4;

/// Memory plan of a large run, extrapolated from a smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Cells of the smaller run.
    pub profiled: Grid,
    /// Share of pages that had units at its end: at most as many will have in the larger one, whose
    /// front is thinner.
    pub lit: f64,
    /// Share of bricks that were not zero.
    pub alive: f64,
    /// Of these, share that fit a window (112 of 128 bytes).
    pub windows: f64,
    /// Bytes of fields at 1x, when the wave has passed every boundary.
    pub raw_bytes: u64,
    /// Bytes for fields on the device.
    pub room_bytes: u64,
    /// True if pages need target 8/7 and host memory before the end.
    pub retargets: bool,
    /// Bytes of host memory that this takes.
    pub host_bytes: u64,
}

/// Makes the smaller run and the plan.
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

/// All but the fields: velocities, references, kinds, marks, the stack, and a reserve.
fn books_bytes(grid: Grid) -> u64 {
    grid.cells() + pages(grid) * (2 * (4 * UNITS + BRICKS + 1) + 16) + (1 << 30)
}

/// Host memory for fields of so many bytes at 1x: none if they fit; else an eighth, and what of the
/// rest does not fit. A twentieth more, for pages that are lit while others are being retargeted.
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
        // 8/7 is enough: last units alone.
        let last = host_bytes(112 * GB, 100 * GB);
        assert!((14 * GB..18 * GB).contains(&last), "{last}");
        // And 40 GB of others.
        let more = host_bytes(160 * GB, 100 * GB);
        assert!((60 * GB..67 * GB).contains(&more), "{more}");
    }
}
