//! Timing of small kernels: one CUDA graph for each run, with events inside it.

use std::{ffi::c_void, sync::Arc};

use buddy_cuda::{Arguments, DeviceBytes, Gpu, Launch};
use buddy_trace::sass::Argument;
use cudarc::driver::{
    CudaEvent, CudaFunction, CudaGraph, CudaStream,
    sys::{self, CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode},
};

use super::{cases::Case, micro_sources};
use crate::Error;

/// Timed runs, after two untimed ones.
const RUNS: usize = 20;
/// Multiple of L2's size that is read to evict its content.
const FLUSH: u64 = 4;

/// Times of the runs, in nanoseconds.
pub(super) struct Times {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

/// A stream with the memory and events to evict L2 and to time.
pub(super) struct Clock {
    gpu: Gpu,
    stream: Arc<CudaStream>,
    start: CudaEvent,
    end: CudaEvent,
    flush: CudaFunction,
    /// Array that is read to fill L2, and the sums of its elements.
    other: DeviceBytes,
    sums: DeviceBytes,
    /// Time of an empty graph, in nanoseconds.
    pub(super) nothing: f64,
}

/// Arguments of a launch: the address of each.
struct Cells(Vec<u64>);

impl Arguments for Cells {
    fn places(&self) -> Vec<*mut c_void> {
        self.0.iter().map(|cell| std::ptr::from_ref(cell).cast_mut().cast()).collect()
    }
}

impl Cells {
    fn new(arguments: &[Argument]) -> Self {
        // Little-endian: a 32-bit number comes first in its cell.
        let cell = |argument: &Argument| match *argument {
            Argument::Pointer(address) => address,
            Argument::Int(value) => u64::from(value as u32),
            Argument::Float(value) => u64::from(value.to_bits()),
            Argument::Double(value) => value.to_bits(),
        };
        Self(arguments.iter().map(cell).collect())
    }
}

impl Clock {
    pub(super) fn new(gpu: &Gpu, l2_bytes: u64) -> Result<Self, Error> {
        let stream = gpu.stream()?;
        let event =
            || gpu.check("make an event", stream.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)));
        let (start, end) = (event()?, event()?);
        let streams = micro_sources().into_iter().find(|source| source.name == "stream.cu");
        let module = gpu.module(&streams.expect("the list has it"))?;
        let flush = gpu.check("find the kernel that fills L2", module.load_function("read4"))?;
        let other = DeviceBytes::new(gpu, FLUSH * l2_bytes)?;
        other.fill(0)?;
        let sums = DeviceBytes::new(gpu, u64::from(8 * gpu.multiprocessors()) * 1024)?;
        let mut clock = Self { gpu: gpu.clone(), stream, start, end, flush, other, sums, nothing: 0.0 };
        clock.nothing = clock.run(false, || Ok(()))?.median;
        Ok(clock)
    }

    /// Times a case.
    pub(super) fn time(
        &self,
        kernel: &CudaFunction,
        case: &Case,
        arguments: &[Argument],
    ) -> Result<Times, Error> {
        let times = self.run(case.warm, || self.start(kernel, case, arguments))?;
        let less = |time: f64| (time - self.nothing).max(0.0);
        Ok(Times { median: less(times.median), least: less(times.least), most: less(times.most) })
    }

    /// Runs a case once.
    pub(super) fn once(
        &self,
        kernel: &CudaFunction,
        case: &Case,
        arguments: &[Argument],
    ) -> Result<(), Error> {
        self.start(kernel, case, arguments)?;
        Ok(self.gpu.wait(&self.stream)?)
    }

    fn start(&self, kernel: &CudaFunction, case: &Case, arguments: &[Argument]) -> Result<(), Error> {
        let launch = Launch::new(case.blocks, case.threads, 0);
        // SAFETY: the arguments are those of the kernel in its source, and the arrays have the
        // case's lengths; a test executes every case with each access checked against its array.
        let started = unsafe { launch.start(&self.stream, kernel, &Cells::new(arguments)) };
        Ok(self.gpu.check("start a small kernel", started)?)
    }

    /// Times the work between two events; each run is one launch of a graph.
    fn run(&self, warm: bool, start: impl Fn() -> Result<(), Error>) -> Result<Times, Error> {
        let graph = self.record(warm, start)?;
        let mut times = Vec::new();
        for _ in 0..RUNS + 2 {
            self.gpu.check("launch a graph", graph.launch())?;
            self.gpu.wait(&self.stream)?;
            let ms = self.gpu.check("read the time", self.start.elapsed_ms(&self.end))?;
            times.push(1e6 * f64::from(ms));
        }
        times.drain(..2);
        times.sort_by(f64::total_cmp);
        Ok(Times { median: times[RUNS / 2], least: times[0], most: times[RUNS - 1] })
    }

    /// Records the graph: fills L2 with other data unless it is to be warm, an event, the kernel,
    /// an event.
    fn record(&self, warm: bool, start: impl Fn() -> Result<(), Error>) -> Result<CudaGraph, Error> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.gpu.check("begin a graph", self.stream.begin_capture(mode))?;
        let recorded = (|| {
            if !warm {
                self.fill_l2()?;
            }
            self.mark(&self.start)?;
            start()?;
            self.mark(&self.end)
        })();
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = self.gpu.check("end a graph", self.stream.end_capture(flags))?;
        recorded?;
        graph.ok_or_else(|| Error::Differs("the driver made no graph".to_owned()))
    }

    fn fill_l2(&self) -> Result<(), Error> {
        let launch = Launch::row(u64::from(8 * self.gpu.multiprocessors()), 256);
        let count = (self.other.len() / 16) as i32;
        let arguments = (self.other.all().address(), count, self.sums.all().address());
        // SAFETY: the arguments of `read4`: an array, its length in units of 16 bytes, and a sum
        // for each thread.
        let started = unsafe { launch.start(&self.stream, &self.flush, &arguments) };
        Ok(self.gpu.check("fill L2", started)?)
    }

    /// Records an event that is readable outside of the graph.
    fn mark(&self, event: &CudaEvent) -> Result<(), Error> {
        let external = sys::CUevent_record_flags_enum::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: both belong to this GPU's context and live as long as the clock.
        let marked =
            unsafe { sys::cuEventRecordWithFlags(event.cu_event(), self.stream.cu_stream(), external) }
                .result();
        Ok(self.gpu.check("record an event", marked)?)
    }
}
