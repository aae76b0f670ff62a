//! What all measurements need: a stream, a clock, a place for counts, and the speed of memory.

use std::sync::Arc;

use buddy_codec::{Codec, CodecKind};
use buddy_core::{ENTRY_BYTES, SizeClass, Target};
use cudarc::driver::{CudaModule, CudaStream, DriverError, sys::CUevent_flags};

pub(super) use crate::driver::Launch;
use crate::{
    BuddyBuffer, BuddyPool, Carveout, DeviceBytes, DeviceSpan, Error, Gpu, Source, Targets,
    driver::{Arguments, allow_shared, launch_grid},
    pool::room_for,
};

/// Groups of launches that are timed, after one that is not.
const GROUPS: usize = 7;
/// Bytes by which the speed of memory is measured.
const PROBE: u64 = 1 << 30;

pub(super) struct Lab {
    pub(super) gpu: Gpu,
    pub(super) stream: Arc<CudaStream>,
    pub(super) read_gb_per_s: f64,
    pub(super) copy_gb_per_s: f64,
    counts: DeviceBytes,
}

impl Lab {
    pub(super) fn new(gpu: &Gpu) -> Result<Self, Error> {
        let (gpu, stream, counts) = (gpu.clone(), gpu.stream()?, DeviceBytes::new(gpu, 64)?);
        let mut lab = Self { gpu, stream, read_gb_per_s: 0.0, copy_gb_per_s: 0.0, counts };
        let (a, b) = (DeviceBytes::new(&lab.gpu, PROBE)?, DeviceBytes::new(&lab.gpu, PROBE)?);
        a.fill(0x5a)?;
        let read = lab.time(4, |_| {
            let launched = lab.gpu.common()?.read_all(&lab.stream, a.all(), lab.counts.span(0..8));
            lab.gpu.check("start reading", launched)
        })?;
        let copy = lab.time(4, |_| lab.gpu.copy(&lab.stream, a.all(), b.all()))?;
        lab.read_gb_per_s = PROBE as f64 / read / 1e3;
        lab.copy_gb_per_s = 2.0 * PROBE as f64 / copy / 1e3;
        Ok(lab)
    }

    /// Median microseconds of an operation that is started `launches` times in a row.
    pub(super) fn time(
        &self,
        launches: usize,
        mut operation: impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<f64, Error> {
        let event = || {
            let event = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
            self.gpu.check("record an event", event)
        };
        let mut times = Vec::new();
        for _ in 0..=GROUPS {
            let start = event()?;
            (0..launches).try_for_each(&mut operation)?;
            let end = event()?;
            self.gpu.wait(&self.stream)?;
            let ms = self.gpu.check("read the time", start.elapsed_ms(&end))?;
            times.push(1e3 * f64::from(ms) / launches as f64);
        }
        times.remove(0);
        times.sort_by(f64::total_cmp);
        Ok(times[GROUPS / 2])
    }

    pub(super) fn bytes(&self, bytes: u64) -> Result<DeviceBytes, Error> {
        DeviceBytes::new(&self.gpu, bytes)
    }

    pub(super) fn kernels(&self, source: &Source) -> Result<Kernels<'_>, Error> {
        Ok(Kernels { lab: self, module: self.gpu.module(source)? })
    }

    /// What an operation adds to a counter.
    pub(super) fn count(
        &self,
        operation: impl FnOnce(DeviceSpan<'_>) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        self.counts.fill(0)?;
        operation(self.counts.span(0..8))?;
        self.gpu.wait(&self.stream)?;
        let mut count = [0; 8];
        self.counts.download(&mut count)?;
        Ok(u64::from_le_bytes(count))
    }

    /// Fails unless two spans are the same.
    pub(super) fn same(&self, what: &str, a: DeviceSpan<'_>, b: DeviceSpan<'_>) -> Result<(), Error> {
        let words = self.count(|count| self.gpu.count_differences(&self.stream, a, b, count))?;
        none_wrong(what, words)
    }

    /// A compressed copy of plain memory, in a pool of its own.
    pub(super) fn compress(
        &self,
        kind: CodecKind,
        target: Target,
        from: DeviceSpan<'_>,
    ) -> Result<BuddyBuffer, Error> {
        let mut sample = vec![[0; ENTRY_BYTES]; from.entries().min(4096) as usize];
        let head = self.bytes(sample.as_flattened().len() as u64)?;
        self.gpu.copy(&self.stream, from, head.all())?;
        self.gpu.wait(&self.stream)?;
        head.download(sample.as_flattened_mut())?;
        let buffer = self.buffer(kind.train(&sample), target, from.entries())?;
        buffer.write(&self.stream, 0, from)?;
        self.describe(&buffer)?;
        Ok(buffer)
    }

    /// A buffer in a pool of its own.
    pub(super) fn buffer(&self, codec: Codec, target: Target, entries: u64) -> Result<BuddyBuffer, Error> {
        let (room, buddy) = room_for(target, entries);
        BuddyPool::new(&self.gpu, room, Carveout::Host, buddy)?
            .buffer(codec, Targets::Uniform(target, entries))
    }

    /// Has a buffer say what it holds.
    pub(super) fn describe(&self, buffer: &BuddyBuffer) -> Result<(), Error> {
        buffer.stats(&self.stream)?;
        self.gpu.wait(&self.stream)?;
        match buffer.latest().fault {
            Some(fault) => Err(Error::Differs(fault.to_string())),
            None => Ok(()),
        }
    }
}

/// The kernels of a program, by name.
pub(super) struct Kernels<'a> {
    lab: &'a Lab,
    module: Arc<CudaModule>,
}

impl Kernels<'_> {
    /// Starts a kernel.
    ///
    /// # Safety
    /// The arguments are the kernel's, and their addresses are valid for what it does there.
    pub(super) unsafe fn start(
        &self,
        name: &str,
        launch: Launch,
        arguments: &impl Arguments,
    ) -> Result<(), Error> {
        let start = || -> Result<(), DriverError> {
            let kernel = self.module.load_function(name)?;
            if launch.shared > 48 << 10 {
                allow_shared(&kernel, launch.shared)?;
            }
            // SAFETY: the caller's promise.
            unsafe { launch_grid(&self.lab.stream, &kernel, launch, arguments) }
        };
        self.lab.gpu.check("start a fused kernel", start())
    }
}

/// The device address of memory, as an argument.
pub(super) fn at(bytes: &DeviceBytes) -> u64 {
    bytes.all().address()
}

pub(super) fn none_wrong(what: &str, wrong: u64) -> Result<(), Error> {
    match wrong {
        0 => Ok(()),
        _ => Err(Error::Differs(format!("{what}: {wrong} results are not those of plain memory"))),
    }
}

/// Bytes that a pass over a buffer moves: its parts and its nibbles.
pub(super) fn stored_bytes(buffer: &BuddyBuffer) -> u64 {
    let stats = buffer.latest();
    let bytes = |class| {
        let (device, buddy) = buffer.target(0).split(class);
        stats.class(class) * (device + buddy) as u64
    };
    SizeClass::ALL.into_iter().map(bytes).sum::<u64>() + buffer.entries() / 2
}

/// Share of entries that overflow.
pub(super) fn overflow(buffer: &BuddyBuffer) -> f64 {
    buffer.latest().overflowing as f64 / buffer.entries() as f64
}

/// Structs of plain numbers that kernels take.
macro_rules! device_struct {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        #[repr(C)]
        struct $name {
            $($field: $type),+
        }
        // SAFETY: plain numbers in C layout, as in the kernels.
        unsafe impl DeviceRepr for $name {}
    };
}
pub(super) use device_struct;
