//! What a workload is.

use buddy_core::Dtype;
use buddy_trace::Application;

/// One array of a running program, as the paper's tool would see a `cudaMalloc`.
#[derive(Debug, Clone)]
pub struct Allocation<'a> {
    /// The array's name in the program, unique within it.
    pub name: String,
    /// Where the program allocates it: file and function, the same for arrays that one loop allocates.
    pub call_site: &'static str,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Its contents after the last step.
    pub bytes: &'a [u8],
}

impl<'a> Allocation<'a> {
    /// An array of doubles.
    pub fn f64(name: impl Into<String>, call_site: &'static str, values: &'a [f64]) -> Self {
        Self { name: name.into(), call_site, dtype: Dtype::F64, bytes: bytemuck::cast_slice(values) }
    }

    /// An array of single-precision numbers.
    pub fn f32(name: impl Into<String>, call_site: &'static str, values: &'a [f32]) -> Self {
        Self { name: name.into(), call_site, dtype: Dtype::F32, bytes: bytemuck::cast_slice(values) }
    }

    /// An array of indices.
    pub fn i32(name: impl Into<String>, call_site: &'static str, values: &'a [i32]) -> Self {
        Self { name: name.into(), call_site, dtype: Dtype::I32, bytes: bytemuck::cast_slice(values) }
    }
}

/// What a workload found when it compared its answer with the known one.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// What is compared, such as `zeta` or `mass drift`.
    pub what: &'static str,
    /// What the program computed.
    pub measured: f64,
    /// What it should be.
    pub expected: f64,
    /// The largest difference that passes, in the units of `expected`.
    pub tolerance: f64,
}

impl Check {
    /// Whether the answer is right. NaN never is.
    pub fn passed(&self) -> bool {
        (self.measured - self.expected).abs() <= self.tolerance
    }
}

/// A running program. Deterministic: the same footprint and seed give the same bytes after every step, on any
/// number of threads.
pub trait Workload: Send {
    /// How many calls of [`step`](Self::step) make a whole run; at least ten, so that ten snapshots are evenly
    /// spaced.
    fn steps(&self) -> u64;

    /// Advances the program by one step (a time step, an iteration, a batch).
    fn step(&mut self);

    /// The arrays that live in device memory now. Names and lengths never change during a run.
    fn allocations(&self) -> Vec<Allocation<'_>>;

    /// One or a few of the program's steps on a GPU: its dominant kernels, walking the same arrays at the same
    /// addresses as [`describe`](crate::describe) gives them. `docs/explain/model-gpu.md` says what each does.
    fn application(&self) -> Application;

    /// Compares the answer with the known one; called after the last step.
    fn check(&self) -> Vec<Check>;
}

/// One line of `buddy workload list`, and the way to start it.
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// The name on the command line, such as `cg`.
    pub name: &'static str,
    /// The paper's name, such as `354.cg`.
    pub paper_name: &'static str,
    /// What it computes, in a few words.
    pub method: &'static str,
    /// The footprint in the paper's workload table, in bytes.
    pub paper_bytes: u64,
    /// Seconds of a core that a run takes for a megabyte, measured at a quarter of the paper's footprint.
    pub seconds_per_mb: f64,
    /// Seconds of a core that the simulation of its application takes for a megabyte.
    pub simulated_seconds_per_mb: f64,
    /// What all arrays together take when it is built for this many bytes. Where that depends on the seed, what is expected,
    /// to within 3%.
    pub footprint: fn(bytes: u64) -> u64,
    /// Starts it with all arrays together near `bytes` (at least 1 MB), never more than 10% above it.
    pub build: fn(bytes: u64, seed: u64) -> Box<dyn Workload>,
}

impl Info {
    /// The suite that the paper took it from.
    pub fn suite(&self) -> &'static str {
        if self.paper_name.starts_with("FF_") { "DOE FastForward" } else { "SPEC ACCEL" }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Runs to the end and expects every check to pass.
    pub(crate) fn finish(workload: &mut dyn Workload) -> Vec<Check> {
        (0..workload.steps()).for_each(|_| workload.step());
        let checks = workload.check();
        for check in &checks {
            assert!(check.passed(), "{check:?}");
        }
        checks
    }

    /// Expects a sizing function to stay near requests of 1 MB, 16 MB and the paper's footprint.
    pub(crate) fn assert_footprint(paper_bytes: u64, size: impl Fn(u64) -> u64) {
        for bytes in [1_000_000, 1 << 20, 16_000_000, 1 << 24, paper_bytes / 4, paper_bytes] {
            let share = size(bytes) as f64 / bytes as f64;
            assert!((0.5..=1.1).contains(&share), "{share} of {bytes}");
        }
    }

    #[test]
    fn nan_is_never_right() {
        let check = Check { what: "x", measured: f64::NAN, expected: 1.0, tolerance: f64::INFINITY };
        assert!(!check.passed());
    }
}
