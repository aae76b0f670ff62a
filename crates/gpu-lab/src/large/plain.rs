//! The wave in plain memory.

use std::sync::Arc;

use buddy_cuda::{DeviceBytes, DeviceSpan};

use super::{
    kernels::{Dims, Slab, Step, WaveKernels, plain_launch, row},
    model::Grid,
};
use crate::{Error, Lab, lab::at};

/// Two fields and the velocities, 12 bytes a cell.
pub(super) struct PlainWave<'a> {
    lab: &'a Lab,
    kernels: &'a WaveKernels,
    pub(super) grid: Grid,
    pub(super) step: Step,
    pub(super) here: DeviceBytes,
    pub(super) before: DeviceBytes,
    /// Constant arrays, shared with slabs of the same wave.
    pub(super) squares: Arc<DeviceBytes>,
    pub(super) table: Arc<DeviceBytes>,
    _fault: DeviceBytes,
}

impl<'a> PlainWave<'a> {
    /// Creates zero fields.
    pub(super) fn new(lab: &'a Lab, kernels: &'a WaveKernels, grid: Grid) -> Result<Self, Error> {
        let field = || lab.bytes(4 * grid.cells());
        let (here, before, squares, fault) = (field()?, field()?, field()?, lab.bytes(8)?);
        here.fill(0)?;
        before.fill(0)?;
        let table = table(lab, grid)?;
        let step = Step::new(grid, at(&fault));
        let arguments = (at(&squares), at(&table), Dims(step.cells), 0i32, grid.z as i32);
        // SAFETY: the arguments of `fill_velocity_plain`, which writes the grid's cells.
        unsafe { kernels.start(&lab.stream, "fill_velocity_plain", row(grid.cells()), &arguments)? };
        lab.wait()?;
        let (squares, table) = (Arc::new(squares), Arc::new(table));
        Ok(Self { lab, kernels, grid, step, here, before, squares, table, _fault: fault })
    }

    /// Fills the fields with waves everywhere, for measurements independent of the wave's position.
    pub(super) fn fill(&mut self) -> Result<(), Error> {
        for (field, phase) in [(&self.here, 0.0f32), (&self.before, 0.2)] {
            let arguments = (at(field), Dims(self.step.cells), phase);
            // SAFETY: the arguments of `fill_waves`, which writes the grid's cells.
            unsafe {
                self.kernels.start(&self.lab.stream, "fill_waves", row(self.grid.cells()), &arguments)?
            };
        }
        self.lab.wait()
    }

    /// Enqueues a step.
    pub(super) fn advance(&mut self, push: f32) -> Result<(), Error> {
        self.step.push = push;
        let planes = self.grid.z as i32;
        let (u, w, squares) = (at(&self.here), at(&self.before), at(&self.squares));
        let slab = Slab { u, w, squares, first: 0, planes, below: 0, above: 0 };
        let launch = plain_launch(self.grid, self.grid.z);
        // SAFETY: the arguments of `wave_plain`; the slab is the whole grid.
        unsafe {
            self.kernels.start(&self.lab.stream, "wave_plain", launch, &(slab, at(&self.table), self.step))?
        };
        std::mem::swap(&mut self.here, &mut self.before);
        Ok(())
    }

    /// Returns planes of a field from `first` on.
    pub(super) fn planes<'b>(&self, field: &'b DeviceBytes, first: u32, planes: u32) -> DeviceSpan<'b> {
        let bytes = 4 * self.grid.plane();
        field.span(u64::from(first) * bytes..u64::from(first + planes) * bytes)
    }
}

/// Returns the table of a grid in device memory.
pub(super) fn table(lab: &Lab, grid: Grid) -> Result<DeviceBytes, Error> {
    let numbers = grid.table();
    let table = lab.bytes(4 * numbers.len() as u64)?;
    table.upload(bytemuck::cast_slice(&numbers))?;
    Ok(table)
}
