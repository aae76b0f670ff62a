//! The same wave where part of its planes lie in host memory: brought in slabs and taken back while
//! others are computed, or used where they are.

use std::sync::Arc;

use buddy_cuda::{CudaStream, DeviceBytes};
use cudarc::driver::{CudaEvent, sys};

use super::{
    host::HostBytes,
    kernels::{Slab, Step, WaveKernels, plain_launch},
    model::{Grid, RADIUS},
    plain::PlainWave,
};
use crate::{Error, Lab, lab::at};

/// Planes of a slab.
const SLAB: u64 = 16;
/// Slabs that are on their way at once.
const BUFFERS: usize = 3;
const RIM: u64 = RADIUS as u64;

/// Device memory that a slab is computed in.
struct Buffer {
    u: DeviceBytes,
    w: DeviceBytes,
    squares: DeviceBytes,
    /// When it was computed, and when what it gave is back in host memory.
    ran: Option<CudaEvent>,
    left: Option<CudaEvent>,
}

/// Planes below `resident` on the device, the others in host memory with four of margin before
/// them.
pub(super) struct SlabWave<'a> {
    lab: &'a Lab,
    kernels: &'a WaveKernels,
    grid: Grid,
    step: Step,
    squares: Arc<DeviceBytes>,
    table: Arc<DeviceBytes>,
    resident: u64,
    outside: u64,
    plane: u64,
    near: [DeviceBytes; 2],
    far: [HostBytes; 3],
    buffers: Vec<Buffer>,
    streams: [Arc<CudaStream>; 3],
}

impl<'a> SlabWave<'a> {
    /// From the fields of plain memory, with a share of the planes on the device.
    pub(super) fn new(
        lab: &'a Lab,
        kernels: &'a WaveKernels,
        plain: &PlainWave<'_>,
        share: f64,
    ) -> Result<Self, Error> {
        let (planes, plane) = (u64::from(plain.grid.z), 4 * plain.grid.plane());
        let resident = ((planes as f64 * share) as u64).clamp(2 * RIM, planes - 2 * RIM);
        let outside = planes - resident;
        let near = || lab.bytes((resident + RIM) * plane);
        let far = || HostBytes::new(&lab.gpu, (outside + RIM) * plane);
        let buffer = |_| {
            let (u, w, squares) =
                (lab.bytes((SLAB + 2 * RIM) * plane)?, lab.bytes(SLAB * plane)?, lab.bytes(SLAB * plane)?);
            Ok(Buffer { u, w, squares, ran: None, left: None })
        };
        let wave = Self {
            lab,
            kernels,
            grid: plain.grid,
            step: plain.step,
            squares: plain.squares.clone(),
            table: plain.table.clone(),
            resident,
            outside,
            plane,
            near: [near()?, near()?],
            far: [far()?, far()?, far()?],
            buffers: (0..BUFFERS).map(buffer).collect::<Result<_, Error>>()?,
            streams: [lab.gpu.stream()?, lab.gpu.stream()?, lab.gpu.stream()?],
        };
        for (index, from) in [&plain.here, &plain.before].into_iter().enumerate() {
            wave.copy(&lab.stream, at(&wave.near[index]), at(from), resident)?;
            wave.copy(&lab.stream, wave.far(index, 0), at(from) + resident * plane, outside)?;
        }
        wave.copy(&lab.stream, wave.far(2, 0), at(&plain.squares) + resident * plane, outside)?;
        lab.wait()?;
        Ok(wave)
    }

    /// Where a plane of an array in host memory is; those of the margin have numbers below 0.
    fn far(&self, array: usize, plane: i64) -> u64 {
        self.far[array].address() + (RIM as i64 + plane) as u64 * self.plane
    }

    /// Copies planes when the stream gets there.
    fn copy(&self, stream: &CudaStream, to: u64, from: u64, planes: u64) -> Result<(), Error> {
        let bytes = (planes * self.plane) as usize;
        // SAFETY: both places are this wave's arrays or plain memory's, which have these planes and
        // live until the streams end.
        let copied = unsafe { sys::cuMemcpyAsync(to, from, bytes, stream.cu_stream()) }.result();
        Ok(self.lab.gpu.check("copy planes", copied)?)
    }

    fn compute(&self, stream: &CudaStream, slab: Slab) -> Result<(), Error> {
        let launch = plain_launch(self.grid, slab.planes as u32);
        let arguments = (slab, at(&self.table), self.step);
        // SAFETY: the arguments of `wave_plain`; the slab's arrays have its planes and those about
        // it.
        unsafe { self.kernels.start(stream, "wave_plain", launch, &arguments) }
    }

    fn event(&self, stream: &CudaStream) -> Result<CudaEvent, Error> {
        Ok(self.lab.gpu.check("record an event", stream.record_event(None))?)
    }

    fn after(&self, stream: &CudaStream, event: Option<&CudaEvent>) -> Result<(), Error> {
        event.map_or(Ok(()), |event| Ok(self.lab.gpu.check("wait for an event", stream.wait(event))?))
    }

    /// What lies on the device: one slab, which needs four planes of what does not.
    fn compute_near(&self, stream: &CudaStream) -> Result<(), Error> {
        let (u, w) = (at(&self.near[0]), at(&self.near[1]));
        let (planes, above) = (self.resident as i32, RIM as i32);
        self.compute(stream, Slab { u, w, squares: at(&self.squares), first: 0, planes, below: 0, above })
    }

    /// A step by slabs: three streams bring, compute and take back.
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

    /// A step whose kernel reads and writes host memory where it is.
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

    /// Words in which the newest field differs from another of the whole grid.
    pub(super) fn differing(&self, expected: &DeviceBytes) -> Result<u64, Error> {
        let far = self.lab.bytes(self.outside * self.plane)?;
        self.copy(&self.lab.stream, at(&far), self.far(0, 0), self.outside)?;
        let (near, split) = (self.near[0].span(0..self.resident * self.plane), self.resident * self.plane);
        let differing = |a, b| self.lab.count(|count| self.lab.compare(a, b, count));
        Ok(differing(near, expected.span(0..split))?
            + differing(far.all(), expected.span(split..expected.len()))?)
    }
}
