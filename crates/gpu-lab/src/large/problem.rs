//! A small wave as a file, to run the kernels on a machine without a GPU.

use super::{
    kernels,
    model::{Grid, push},
};

/// Input of `tests/wave.cpp`.
#[derive(Debug, Clone, Copy)]
pub struct WaveProblem {
    /// Cells.
    pub grid: Grid,
    /// Steps.
    pub steps: u32,
    /// True if bricks are stored as windows.
    pub windows: bool,
    /// Percentage of the units on the device.
    pub percent: u32,
    /// True if pages are retargeted during the run.
    pub retarget: bool,
}

impl WaveProblem {
    /// Encodes the file: seven numbers, the table, and the source's amplitude in each step.
    pub fn to_bytes(self) -> Vec<u8> {
        let Self { grid, steps, windows, percent, retarget } = self;
        let head = [grid.x, grid.y, grid.z, steps, u32::from(windows), percent, u32::from(retarget)];
        let floats = grid.table().into_iter().chain((0..steps).map(push)).map(f32::to_bits);
        head.into_iter().chain(floats).flat_map(u32::to_le_bytes).collect()
    }

    /// Returns the kernels' macros, with a number of planes per block in compressed and in plain
    /// memory.
    pub fn defines(planes: u32, plain_planes: u32) -> Vec<String> {
        [kernels::defines(planes, plain_planes), buddy_cuda::constants()].concat()
    }
}
