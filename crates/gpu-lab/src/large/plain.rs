//! The wave in plain memory.

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
    squares: DeviceBytes,
    table: DeviceBytes,
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
        fill_squares(lab, kernels, &step, at(&squares), &table, 0, u64::from(grid.z))?;
        lab.wait()?;
        Ok(Self { lab, kernels, grid, step, here, before, squares, table, _fault: fault })
    }

    /// Fills the fields with waves everywhere, for measurements independent of the wave's position.
    pub(super) fn fill(&mut self) -> Result<(), Error> {
        for (field, phase) in [(&self.here, PHASES[0]), (&self.before, PHASES[1])] {
            fill_waves(self.lab, self.kernels, &self.step, at(field), phase, 0, u64::from(self.grid.z))?;
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

/// Phases of the waves that fill a field and the one before it.
pub(super) const PHASES: [f32; 2] = [0.0, 0.2];

/// Enqueues waves everywhere on planes of a field, from `first` on; `to` has room for `planes` of them.
pub(super) fn fill_waves(
    lab: &Lab,
    kernels: &WaveKernels,
    step: &Step,
    to: u64,
    phase: f32,
    first: u64,
    planes: u64,
) -> Result<(), Error> {
    let arguments = (to, Dims(step.cells), phase, first as i32, planes as i32);
    // SAFETY: the arguments of `fill_waves`, which writes these planes.
    unsafe { kernels.start(&lab.stream, "fill_waves", row(planes * step.plane()), &arguments) }
}

/// Enqueues the squared velocities of planes, from `first` on; `to` has room for `planes` of them.
pub(super) fn fill_squares(
    lab: &Lab,
    kernels: &WaveKernels,
    step: &Step,
    to: u64,
    table: &DeviceBytes,
    first: u64,
    planes: u64,
) -> Result<(), Error> {
    let arguments = (to, at(table), Dims(step.cells), first as i32, planes as i32);
    // SAFETY: the arguments of `fill_velocity_plain`, which writes these planes.
    unsafe { kernels.start(&lab.stream, "fill_velocity_plain", row(planes * step.plane()), &arguments) }
}

/// Returns the table of a grid in device memory.
pub(super) fn table(lab: &Lab, grid: Grid) -> Result<DeviceBytes, Error> {
    let numbers = grid.table();
    let table = lab.bytes(4 * numbers.len() as u64)?;
    table.upload(bytemuck::cast_slice(&numbers))?;
    Ok(table)
}
