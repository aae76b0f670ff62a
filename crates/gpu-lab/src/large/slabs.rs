//! The wave with some planes in host memory: copied in slabs while others are computed, or accessed
//! in place.

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
    /// Copies the fields of plain memory, with a fraction of the planes on the device.
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
