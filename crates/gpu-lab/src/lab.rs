//! The lab: a stream, CUDA-event timing, comparison on the GPU, and kernels by name.

use std::sync::Arc;

use buddy_codec::CodecKind;
use buddy_core::{SizeClass, Target};
use buddy_cuda::{Allocation, Arguments, BuddyBuffer, DeviceBytes, DeviceSpan, Gpu, Header, Launch, Source};
use cudarc::driver::{
    CudaGraph, CudaModule, CudaStream,
    sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode},
};

use crate::{Error, Shapes};

/// Timed groups of launches, after one untimed.
const GROUPS: usize = 7;

/// The headers of the laboratory's programs, besides the library's.
pub const HEADERS: [Header; 6] = [
    ("fill.cuh", include_str!("../kernels/fill.cuh")),
    ("stencil_field.cuh", include_str!("../kernels/stencil_field.cuh")),
    ("wave_model.cuh", include_str!("../kernels/wave_model.cuh")),
    ("wave_packed.cuh", include_str!("../kernels/wave_packed.cuh")),
    ("wave_plain.cuh", include_str!("../kernels/wave_plain.cuh")),
    ("wave_tile.cuh", include_str!("../kernels/wave_tile.cuh")),
];

/// Lists the lab's programs, in the shapes that were fastest on an H200.
pub fn sources() -> Vec<Source> {
    [program("lab.cu", include_str!("../kernels/lab.cu"), &[])]
        .into_iter()
        .chain(Shapes::default().sources())
        .chain(crate::attention::sources())
        .chain([crate::large::source(), crate::cg::source()])
        .collect()
}

/// Returns a program that may use the lab's headers.
pub(crate) fn program(name: &str, text: &'static str, defines: &[String]) -> Source {
    Source { headers: &HEADERS, ..Source::new(name, text, defines) }
}

/// A GPU with its own stream, the kernels of `lab.cu`, and a counter.
pub struct Lab {
    pub(crate) gpu: Gpu,
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) own: Kernels,
    counter: DeviceBytes,
}

impl Lab {
    /// Compiles the kernels, or loads them from the cache.
    ///
    /// # Errors
    /// Compiler and driver errors.
    pub fn new(gpu: &Gpu) -> Result<Self, Error> {
        let stream = gpu.stream()?;
        let own = Kernels::new(gpu, &stream, &sources()[0])?;
        Ok(Self { gpu: gpu.clone(), stream, own, counter: DeviceBytes::new(gpu, 8)? })
    }

    /// Returns the median microseconds of an operation, launched `launches` times in a row, by CUDA
    /// events.
    pub(crate) fn time(
        &self,
        launches: usize,
        mut operation: impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<f64, Error> {
        let group = |_| self.time_once(|| (0..launches).try_for_each(&mut operation));
        let times = (0..=GROUPS).map(group).collect::<Result<Vec<f64>, Error>>()?;
        Ok(median(times) / launches as f64)
    }

    /// Returns the microseconds of the work that an operation enqueues.
    fn time_once(&self, operation: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
        let event = || {
            let event = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
            self.gpu.check("record an event", event)
        };
        let start = event()?;
        operation()?;
        let end = event()?;
        self.wait()?;
        Ok(1e3 * f64::from(self.gpu.check("read the time", start.elapsed_ms(&end))?))
    }

    /// Captures the launches of an operation as a CUDA graph.
    pub(crate) fn graph(&self, operation: impl FnOnce() -> Result<(), Error>) -> Result<CudaGraph, Error> {
        self.wait()?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.gpu.check("begin a graph", self.stream.begin_capture(mode))?;
        let done = operation();
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = self.gpu.check("end a graph", self.stream.end_capture(flags))?;
        done?;
        Ok(graph.expect("something was captured"))
    }

    /// Returns the median microseconds of each of the `launches` in a graph, without host calls.
    pub(crate) fn time_graph(&self, launches: usize, graph: &CudaGraph) -> Result<f64, Error> {
        let once = self.time(1, |_| Ok(self.gpu.check("start a graph", graph.launch())?))?;
        Ok(once / launches as f64)
    }

    /// The same for several graphs, launched in turn, so that changes of the GPU's clock affect all
    /// of them.
    pub(crate) fn time_in_turn(&self, launches: usize, graphs: &[&CudaGraph]) -> Result<Vec<f64>, Error> {
        let mut times = vec![Vec::new(); graphs.len()];
        for _ in 0..=GROUPS {
            for (graph, times) in graphs.iter().zip(&mut times) {
                times.push(self.time_once(|| Ok(self.gpu.check("start a graph", graph.launch())?))?);
            }
        }
        Ok(times.into_iter().map(|times| median(times) / launches as f64).collect())
    }

    /// Waits for all work on the stream.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        Ok(self.gpu.wait(&self.stream)?)
    }

    pub(crate) fn bytes(&self, bytes: u64) -> Result<DeviceBytes, Error> {
        Ok(DeviceBytes::new(&self.gpu, bytes)?)
    }

    pub(crate) fn kernels(&self, source: &Source) -> Result<Kernels, Error> {
        Kernels::new(&self.gpu, &self.stream, source)
    }

    /// Returns the amount that an operation adds to the counter.
    pub(crate) fn count(
        &self,
        operation: impl FnOnce(DeviceSpan<'_>) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        self.counter.fill(0)?;
        operation(self.counter.all())?;
        self.wait()?;
        let mut count = [0; 8];
        self.counter.download(&mut count)?;
        Ok(u64::from_le_bytes(count))
    }

    /// Fails unless two spans are equal, after all enqueued work.
    pub(crate) fn same(&self, what: &str, a: DeviceSpan<'_>, b: DeviceSpan<'_>) -> Result<(), Error> {
        none_wrong(what, self.count(|count| self.compare(a, b, count))?)
    }

    /// Returns a compressed copy of plain memory, with a codec trained on it.
    pub(crate) fn compress(
        &self,
        kind: CodecKind,
        target: Target,
        from: DeviceSpan<'_>,
    ) -> Result<Allocation, Error> {
        let codec = self.gpu.train(&self.stream, kind, from)?;
        let packed = Allocation::new(&self.gpu, from.bytes(), target, codec)?;
        packed.write(&self.stream, 0, from)?;
        self.describe(packed.buffer())?;
        Ok(packed)
    }

    /// Reports a buffer's content; fails if an entry failed to decode.
    pub(crate) fn describe(&self, buffer: &BuddyBuffer) -> Result<(), Error> {
        buffer.stats(&self.stream)?;
        self.wait()?;
        buffer.latest().fault.map_or(Ok(()), |fault| Err(Error::Differs(fault.to_string())))
    }
}

/// The kernels of a program, by name, for one stream.
pub(crate) struct Kernels {
    gpu: Gpu,
    stream: Arc<CudaStream>,
    module: Arc<CudaModule>,
}

impl Kernels {
    fn new(gpu: &Gpu, stream: &Arc<CudaStream>, source: &Source) -> Result<Self, Error> {
        Ok(Self { gpu: gpu.clone(), stream: stream.clone(), module: gpu.module(source)? })
    }

    /// Enqueues a kernel on the lab's stream.
    ///
    /// # Safety
    /// As for [`Launch::start`].
    pub(crate) unsafe fn start(
        &self,
        name: &str,
        launch: Launch,
        arguments: &impl Arguments,
    ) -> Result<(), Error> {
        let kernel = self.module.load_function(name);
        // SAFETY: the caller's promise.
        let started = kernel.and_then(|kernel| unsafe { launch.start(&self.stream, &kernel, arguments) });
        Ok(self.gpu.check("start a kernel of the laboratory", started)?)
    }
}

/// Returns the median of times, without the first one, a warm-up.
fn median(mut times: Vec<f64>) -> f64 {
    times.remove(0);
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Returns the device address of memory, as an argument.
pub(crate) fn at(bytes: &DeviceBytes) -> u64 {
    bytes.all().address()
}

/// Fails unless the number of wrong results is zero.
pub(crate) fn none_wrong(what: &str, wrong: u64) -> Result<(), Error> {
    match wrong {
        0 => Ok(()),
        _ => Err(Error::Differs(format!("{what}: {wrong} results are not those of plain memory"))),
    }
}

/// Returns a buffer's bytes in device memory, with metadata, and in buddy memory.
pub(crate) fn stored_bytes(buffer: &BuddyBuffer) -> (u64, u64) {
    let stats = buffer.latest();
    let (mut device, mut buddy) = (buffer.entries() / 2, 0);
    for class in SizeClass::ALL {
        let (near, far) = buffer.target(0).split(class);
        device += stats.class(class) * near as u64;
        buddy += stats.class(class) * far as u64;
    }
    (device, buddy)
}

/// Returns the bytes that a pass over a buffer moves.
pub(crate) fn moved_bytes(buffer: &BuddyBuffer) -> u64 {
    let (device, buddy) = stored_bytes(buffer);
    device + buddy
}

/// Returns the fraction of entries that overflow.
pub(crate) fn overflow(buffer: &BuddyBuffer) -> f64 {
    buffer.latest().overflowing as f64 / buffer.entries() as f64
}

/// Structs of plain numbers as kernel arguments.
macro_rules! device_struct {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type),+
        }
        // SAFETY: plain numbers in C layout, as in the kernels.
        unsafe impl cudarc::driver::DeviceRepr for $name {}
    };
}
pub(crate) use device_struct;
