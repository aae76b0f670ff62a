//! Four fixed traces by which the simulator's speed is measured.

use std::time::Instant;

use buddy_trace::{
    Kernel, Launch, Op,
    pattern::{Arithmetic, Array, Gemm, RandomSectors, Stencil, Stream},
};

/// Names of the traces.
pub const TRACES: [&str; 4] = ["arithmetic", "streaming", "mixed", "random"];

/// The kernels of a trace; `length` 1 is a few million warp instructions (random: half a million). Ten times
/// the length runs ten times as many instructions of the same kind.
///
/// # Panics
/// For a name that is not in [`TRACES`].
pub fn trace(name: &str, length: u32) -> Vec<Box<dyn Kernel>> {
    let array = |slot: u64, element_bytes| Array { base: slot << 34, element_bytes };
    match name {
        // Dependent multiply-adds, four chains in each of 64 warps of an SM.
        "arithmetic" => vec![Box::new(Arithmetic::new(448, 256, Op::Fp32, 70 * length, 4))],
        // c = a + b over arrays far larger than L2.
        "streaming" => {
            let elements = 16_000_000 * u64::from(length);
            let (a, b, c) = (array(1, 4), array(2, 4), array(3, 4));
            vec![Box::new(Stream::new(Launch::linear("add", 896, 256), &[a, b], &[c], elements, 1))]
        }
        // Matrix products through shared memory and stencils, one after the other.
        "mixed" => (0..length).flat_map(|_| mixed(array)).collect(),
        // 32 random sectors of 4 GiB for each load.
        "random" => vec![Box::new(RandomSectors::new(448, 256, 1 << 34, 1 << 32, 36 * length))],
        other => panic!("no trace '{other}'"),
    }
}

/// The rate of Accel-Sim on a machine of the same kind, measured earlier on traces of the same kinds; none where there
/// is no such trace.
pub fn accel_sim_million_per_s(trace: &str) -> Option<f64> {
    match trace {
        "arithmetic" => Some(0.105),
        "streaming" => Some(0.0125),
        "random" => Some(0.000_06),
        _ => None,
    }
}

/// Time that this thread worked: other programs disturb it less than time that passes.
#[derive(Debug)]
pub struct Clock {
    begin: Instant,
    worked: Option<u64>,
}

impl Clock {
    /// Starts counting the time that this thread spends on a core.
    pub fn start() -> Self {
        Self { begin: Instant::now(), worked: Self::worked() }
    }

    /// Nanoseconds that the thread has been on a core.
    fn worked() -> Option<u64> {
        std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
    }

    /// Seconds since then that this thread was on a core, where the system tells (Linux), and else those that passed.
    pub fn seconds(&self) -> f64 {
        match (self.worked, Self::worked()) {
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
