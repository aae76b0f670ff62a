//! Four fixed traces, and the simulator's speed on them.

use std::time::Instant;

use buddy_scenario::{Error, Point};
use buddy_sim::{Config, Mode, Simulator};
use buddy_trace::{
    Kernel, Launch, Op,
    pattern::{Arithmetic, Array, Gemm, RandomSectors, Stencil, Stream},
};

/// Names of the traces.
pub const TRACES: [&str; 4] = ["arithmetic", "streaming", "mixed", "random"];

/// Returns the kernels of a trace. `length` 1 is a few million warp instructions (random: half a
/// million); the count is proportional to `length`.
///
/// # Panics
/// If `name` is not in [`TRACES`].
fn kernels(name: &str, length: u32) -> Vec<Box<dyn Kernel>> {
    let array = |slot: u64, element_bytes| Array { base: slot << 34, element_bytes };
    match name {
        // Dependent multiply-adds, four chains in each of 64 warps per SM.
        "arithmetic" => vec![Box::new(Arithmetic::new(448, 256, Op::Fp32, 70 * length, 4))],
        // c = a + b over arrays far larger than L2.
        "streaming" => {
            let elements = 16_000_000 * u64::from(length);
            let (a, b, c) = (array(1, 4), array(2, 4), array(3, 4));
            vec![Box::new(Stream::new(Launch::linear("add", 896, 256), &[a, b], &[c], elements, 1))]
        }
        // Matrix products through shared memory, and stencils.
        "mixed" => (0..length).flat_map(|_| mixed(array)).collect(),
        // 32 random sectors of 4 GiB per load.
        "random" => vec![Box::new(RandomSectors::new(448, 256, 1 << 34, 1 << 32, 36 * length))],
        other => panic!("no trace '{other}'"),
    }
}

/// Returns Accel-Sim's rate in million warp instructions per second on a comparable machine and
/// trace, if it was measured.
pub fn accel_sim_million_per_s(trace: &str) -> Option<f64> {
    match trace {
        "arithmetic" => Some(0.105),
        "streaming" => Some(0.0125),
        "random" => Some(0.000_06),
        _ => None,
    }
}

/// CPU time of this thread, less disturbed by other processes than wall time.
struct Clock {
    begin: Instant,
    cpu_ns: Option<u64>,
}

impl Clock {
    /// Starts the clock. CPU time is of this thread, so for several threads it counts wall time.
    fn start(threads: usize) -> Self {
        Self { begin: Instant::now(), cpu_ns: Self::cpu_ns().filter(|_| threads == 1) }
    }

    /// Returns the thread's CPU time in nanoseconds, where the system reports it.
    fn cpu_ns() -> Option<u64> {
        std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
    }

    /// Returns the seconds since the start: CPU time where the system reports it (Linux), else wall
    /// time.
    fn seconds(&self) -> f64 {
        match (self.cpu_ns, Self::cpu_ns()) {
            (Some(before), Some(now)) if now > before => (now - before) as f64 / 1e9,
            _ => self.begin.elapsed().as_secs_f64(),
        }
    }
}

fn mixed(array: impl Fn(u64, u8) -> Array) -> [Box<dyn Kernel>; 2] {
    let product = Gemm::new(array(4, 4), array(5, 4), array(6, 4), [1024, 512, 512]);
    let points = Stencil::star(1);
    let stencil = Stencil::new(array(7, 4), array(8, 4), [512, 256, 48], &points);
    [Box::new(product), Box::new(stencil)]
}

/// Result on one fixed trace, on the paper's GPU in ideal mode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Warp instructions of the trace.
    pub instructions: u64,
    /// Cycles on the modelled GPU.
    pub cycles: u64,
    /// Seconds of the fastest run.
    pub seconds: f64,
}

impl Speed {
    /// Returns million warp instructions per second.
    pub fn million_per_s(&self) -> f64 {
        self.instructions as f64 / self.seconds / 1e6
    }
}

/// Times a trace of [`TRACES`] on some threads, `length` times its default length; the fastest of
/// `tries` runs. On several threads it is wall-clock time.
///
/// # Errors
/// If the simulator rejects it.
///
/// # Panics
/// For a name not in [`TRACES`].
pub fn time(trace: &str, length: u32, tries: u32, threads: usize) -> Result<Speed, Error> {
    let config = Config { threads, ..Point::new(trace, Mode::Ideal).config()? };
    let mut speed = Speed { instructions: 0, cycles: 0, seconds: f64::INFINITY };
    for _ in 0..tries {
        let mut simulator = Simulator::new(config.clone());
        let clock = Clock::start(threads);
        for mut kernel in kernels(trace, length) {
            simulator.run(kernel.as_mut(), &mut |_| true)?;
        }
        let seconds = speed.seconds.min(clock.seconds());
        let report = simulator.report();
        speed = Speed { instructions: report.instructions, cycles: report.cycles, seconds };
    }
    Ok(speed)
}
