//! The wave with some planes in host memory: copied in slabs while others are computed, or accessed
//! in place.

use std::sync::Arc;

use buddy_cuda::{CudaStream, DeviceBytes};
use cudarc::driver::{CudaEvent, sys};

use super::{
    host::HostBytes,
    kernels::{Slab, Step, WaveKernels, plain_launch},
    model::{Grid, RADIUS},
    plain::{PHASES, fill_squares, fill_waves, table},
};
use crate::{Error, Lab, lab::at};

/// Planes of a slab.
const SLAB: u64 = 16;
/// Slabs in flight at a time.
const BUFFERS: usize = 3;
const RIM: u64 = RADIUS as u64;

/// Device memory for a slab.
struct Buffer {
    u: DeviceBytes,
    w: DeviceBytes,
    squares: DeviceBytes,
    /// Recorded when it was computed, and when its result is back in host memory.
    ran: Option<CudaEvent>,
    left: Option<CudaEvent>,
}

/// Planes below `resident` are on the device, the others in host memory, preceded by four planes of
/// margin.
pub(super) struct SlabWave<'a> {
    lab: &'a Lab,
    kernels: &'a WaveKernels,
    grid: Grid,
    step: Step,
    squares: DeviceBytes,
    table: DeviceBytes,
    _fault: DeviceBytes,
    resident: u64,
    outside: u64,
    plane: u64,
    near: [DeviceBytes; 2],
    far: [HostBytes; 3],
    buffers: Vec<Buffer>,
    streams: [Arc<CudaStream>; 3],
}

/// Returns the planes on the device and in host memory.
fn split(grid: Grid, share: f64) -> (u64, u64) {
    let planes = u64::from(grid.z);
    let resident = ((planes as f64 * share) as u64).clamp(2 * RIM, planes - 2 * RIM);
    (resident, planes - resident)
}

impl<'a> SlabWave<'a> {
    /// Creates fields of waves everywhere, as [`PlainWave::fill`](super::plain::PlainWave::fill) does, with
    /// a fraction of the planes on the device.
    pub(super) fn new(lab: &'a Lab, kernels: &'a WaveKernels, grid: Grid, share: f64) -> Result<Self, Error> {
        let plane = 4 * grid.plane();
        let (resident, outside) = split(grid, share);
        let near = || lab.bytes((resident + RIM) * plane);
        let far = || HostBytes::new(&lab.gpu, (outside + RIM) * plane);
        let buffer = |_| {
            let (u, w, squares) =
                (lab.bytes((SLAB + 2 * RIM) * plane)?, lab.bytes(SLAB * plane)?, lab.bytes(SLAB * plane)?);
            Ok(Buffer { u, w, squares, ran: None, left: None })
        };
        let fault = lab.bytes(8)?;
        let wave = Self {
            lab,
            kernels,
            grid,
            step: Step::new(grid, at(&fault)),
            squares: lab.bytes(resident * plane)?,
            table: table(lab, grid)?,
            _fault: fault,
            resident,
            outside,
            plane,
            near: [near()?, near()?],
            far: [far()?, far()?, far()?],
            buffers: (0..BUFFERS).map(buffer).collect::<Result<_, Error>>()?,
            streams: [lab.gpu.stream()?, lab.gpu.stream()?, lab.gpu.stream()?],
        };
        let targets = [at(&wave.near[0]), at(&wave.near[1]), at(&wave.squares)];
        for (index, near) in targets.into_iter().enumerate() {
            wave.fill(index, near, 0, resident)?;
            let buffer = at(&wave.buffers[0].u);
            for first in (0..outside).step_by(SLAB as usize) {
                let planes = SLAB.min(outside - first);
                wave.fill(index, buffer, resident + first, planes)?;
                wave.copy(&lab.stream, wave.far(index, first as i64), buffer, planes)?;
            }
        }
        lab.wait()?;
        Ok(wave)
    }

    /// Returns the bytes of device memory for a fraction of the planes.
    pub(super) fn device_bytes(grid: Grid, share: f64) -> u64 {
        let (resident, _) = split(grid, share);
        let buffers = BUFFERS as u64 * (3 * SLAB + 2 * RIM);
        4 * grid.plane() * (3 * resident + 2 * RIM + buffers)
    }

    /// Enqueues the first values of planes of an array: both fields, then the squared velocities.
    fn fill(&self, array: usize, to: u64, first: u64, planes: u64) -> Result<(), Error> {
        match PHASES.get(array) {
            Some(&phase) => fill_waves(self.lab, self.kernels, &self.step, to, phase, first, planes),
            None => fill_squares(self.lab, self.kernels, &self.step, to, &self.table, first, planes),
        }
    }

    /// Returns the host address of a plane of an array; planes of the margin have negative numbers.
    fn far(&self, array: usize, plane: i64) -> u64 {
        self.far[array].address() + (RIM as i64 + plane) as u64 * self.plane
    }

    /// Copies planes in stream order.
    fn copy(&self, stream: &CudaStream, to: u64, from: u64, planes: u64) -> Result<(), Error> {
        let bytes = (planes * self.plane) as usize;
        // SAFETY: both addresses are in this wave's arrays or plain memory's, which have these
        // planes and live until the streams end.
        let copied = unsafe { sys::cuMemcpyAsync(to, from, bytes, stream.cu_stream()) }.result();
        Ok(self.lab.gpu.check("copy planes", copied)?)
    }

    fn compute(&self, stream: &CudaStream, slab: Slab) -> Result<(), Error> {
        let launch = plain_launch(self.grid, slab.planes as u32);
        let arguments = (slab, at(&self.table), self.step);
        // SAFETY: the arguments of `wave_plain`; the slab's arrays have its planes and the
        // surrounding ones.
        unsafe { self.kernels.start(stream, "wave_plain", launch, &arguments) }
    }

    fn event(&self, stream: &CudaStream) -> Result<CudaEvent, Error> {
        Ok(self.lab.gpu.check("record an event", stream.record_event(None))?)
    }

    fn after(&self, stream: &CudaStream, event: Option<&CudaEvent>) -> Result<(), Error> {
        event.map_or(Ok(()), |event| Ok(self.lab.gpu.check("wait for an event", stream.wait(event))?))
    }

    /// Computes the planes on the device: one slab, which needs four planes of the others.
    fn compute_near(&self, stream: &CudaStream) -> Result<(), Error> {
        let (u, w) = (at(&self.near[0]), at(&self.near[1]));
        let (planes, above) = (self.resident as i32, RIM as i32);
        self.compute(stream, Slab { u, w, squares: at(&self.squares), first: 0, planes, below: 0, above })
    }

    /// Computes a step by slabs: three streams copy in, compute and copy out.
    pub(super) fn advance_by_slabs(&mut self) -> Result<(), Error> {
        let [bring, run, take] = self.streams.clone();
        self.copy(&bring, at(&self.near[0]) + self.resident * self.plane, self.far(0, 0), RIM)?;
        self.after(&run, Some(&self.event(&bring)?))?;
        self.compute_near(&run)?;
        for (number, first) in (0..self.outside).step_by(SLAB as usize).enumerate() {
            let last = (first + SLAB).min(self.outside);
            let (planes, above) = (last - first, RIM.min(self.outside - last));
            let buffer = &self.buffers[number % BUFFERS];
            let (u, w, squares) = (at(&buffer.u), at(&buffer.w), at(&buffer.squares));
            self.after(&bring, buffer.left.as_ref())?;
            self.after(&bring, buffer.ran.as_ref())?;
            let below = match first {
                0 => at(&self.near[0]) + (self.resident - RIM) * self.plane,
                _ => self.far(0, first as i64 - RIM as i64),
            };
            self.copy(&bring, u, below, RIM)?;
            self.copy(&bring, u + RIM * self.plane, self.far(0, first as i64), planes + above)?;
            self.copy(&bring, w, self.far(1, first as i64), planes)?;
            self.copy(&bring, squares, self.far(2, first as i64), planes)?;
            self.after(&run, Some(&self.event(&bring)?))?;
            let (first_plane, planes_here) = ((self.resident + first) as i32, planes as i32);
            let u = u + RIM * self.plane;
            let (below, above) = (RIM as i32, above as i32);
            self.compute(
                &run,
                Slab { u, w, squares, first: first_plane, planes: planes_here, below, above },
            )?;
            let ran = self.event(&run)?;
            self.after(&take, Some(&ran))?;
            self.copy(&take, self.far(1, first as i64), w, planes)?;
            let left = self.event(&take)?;
            let buffer = &mut self.buffers[number % BUFFERS];
            (buffer.ran, buffer.left) = (Some(ran), Some(left));
        }
        self.end()
    }

    /// Computes a step whose kernel accesses host memory in place.
    pub(super) fn advance_pinned(&mut self) -> Result<(), Error> {
        let [_, run, _] = self.streams.clone();
        let edge = at(&self.near[0]) + self.resident * self.plane;
        self.copy(&run, edge, self.far(0, 0), RIM)?;
        self.copy(&run, self.far(0, -(RIM as i64)), edge - RIM * self.plane, RIM)?;
        self.compute_near(&run)?;
        let (u, w, squares) = (self.far(0, 0), self.far(1, 0), self.far(2, 0));
        let (first, planes) = (self.resident as i32, self.outside as i32);
        self.compute(&run, Slab { u, w, squares, first, planes, below: RIM as i32, above: 0 })?;
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        for stream in &self.streams {
            self.lab.gpu.wait(stream)?;
        }
        self.near.swap(0, 1);
        self.far.swap(0, 1);
        Ok(())
    }

    /// Returns the number of words in which the newest field differs from another field of the
    /// whole grid.
    pub(super) fn differing(&self, expected: &DeviceBytes) -> Result<u64, Error> {
        let far = self.lab.bytes(self.outside * self.plane)?;
        self.copy(&self.lab.stream, at(&far), self.far(0, 0), self.outside)?;
        let (near, split) = (self.near[0].span(0..self.resident * self.plane), self.resident * self.plane);
        let differing = |a, b| self.lab.count(|count| self.lab.compare(a, b, count));
        Ok(differing(near, expected.span(0..split))?
            + differing(far.all(), expected.span(split..expected.len()))?)
    }
}
