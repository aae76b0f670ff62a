//! The `Workload` trait and the description of a workload.

use buddy_core::Dtype;
use buddy_trace::Application;

/// One array of a running program, as the paper's tool would see a `cudaMalloc`.
#[derive(Debug, Clone)]
pub struct Allocation<'a> {
    /// The array's name in the program, unique within it.
    pub name: String,
    /// Allocation site: file and function, shared by arrays of one loop.
    pub call_site: &'static str,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Contents after the last step.
    pub bytes: &'a [u8],
}

impl<'a> Allocation<'a> {
    /// Creates an allocation of doubles.
    pub fn f64(name: impl Into<String>, call_site: &'static str, values: &'a [f64]) -> Self {
        Self { name: name.into(), call_site, dtype: Dtype::F64, bytes: bytemuck::cast_slice(values) }
    }

    /// Creates an allocation of single-precision numbers.
    pub fn f32(name: impl Into<String>, call_site: &'static str, values: &'a [f32]) -> Self {
        Self { name: name.into(), call_site, dtype: Dtype::F32, bytes: bytemuck::cast_slice(values) }
    }

    /// Creates an allocation of indices.
    pub fn i32(name: impl Into<String>, call_site: &'static str, values: &'a [i32]) -> Self {
        Self { name: name.into(), call_site, dtype: Dtype::I32, bytes: bytemuck::cast_slice(values) }
    }
}

/// A comparison of a computed value with the expected one.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// Name of the quantity, such as `zeta` or `mass drift`.
    pub what: &'static str,
    /// Computed value.
    pub measured: f64,
    /// Expected value.
    pub expected: f64,
    /// Largest passing difference, in the units of `expected`.
    pub tolerance: f64,
}

impl Check {
    /// Returns whether the difference is within the tolerance. NaN fails.
    pub fn passed(&self) -> bool {
        (self.measured - self.expected).abs() <= self.tolerance
    }
}

/// A running program. Deterministic: the same footprint and seed give the same bytes after every
/// step, on any number of threads.
pub trait Workload: Send {
    /// Returns the number of calls of [`step`](Self::step) in a whole run; at least ten, so that
    /// ten snapshots are evenly spaced.
    fn steps(&self) -> u64;

    /// Advances the program by one step (a time step, an iteration, a batch).
    fn step(&mut self);

    /// Returns the arrays in device memory. Names and lengths are constant during a run.
    fn allocations(&self) -> Vec<Allocation<'_>>;

    /// Returns one or a few steps on a GPU: the dominant kernels over the same arrays and addresses
    /// as in [`describe`](crate::describe). `docs/notes/simulator.md` describes each.
    fn application(&self) -> Application;

    /// Compares the answer with the expected one, after the last step.
    fn check(&self) -> Vec<Check>;
}

/// Description of a workload, as in `buddy workload list`, and its constructor.
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// Name on the command line, such as `cg`.
    pub name: &'static str,
    /// Name in the paper, such as `354.cg`.
    pub paper_name: &'static str,
    /// Method in a few words.
    pub method: &'static str,
    /// Footprint in the paper's workload table, in bytes.
    pub paper_bytes: u64,
    /// CPU seconds per megabyte of a run, measured at a quarter of the paper's footprint.
    pub seconds_per_mb: f64,
    /// CPU seconds per megabyte to simulate its application.
    pub simulated_seconds_per_mb: f64,
    /// True if some of its arrays lie in host memory, which every mode accesses over the link.
    pub has_host_memory: bool,
    /// Returns the bytes of all arrays when built for `bytes`; if that depends on the seed, the
    /// expected value, to within 3%.
    pub footprint: fn(bytes: u64) -> u64,
    /// Starts a run whose arrays take about `bytes` (at least 1 MB), at most 10% more.
    pub build: fn(bytes: u64, seed: u64) -> Box<dyn Workload>,
}

impl Info {
    /// Returns the benchmark suite.
    pub fn suite(&self) -> &'static str {
        if self.paper_name.starts_with("FF_") { "DOE FastForward" } else { "SPEC ACCEL" }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Runs to the end and asserts that every check passes.
    pub(crate) fn finish(workload: &mut dyn Workload) -> Vec<Check> {
        (0..workload.steps()).for_each(|_| workload.step());
        let checks = workload.check();
        for check in &checks {
            assert!(check.passed(), "{check:?}");
        }
        checks
    }

    /// Asserts that a sizing function stays near requests of 1 MB, 16 MB and the paper's footprint.
    pub(crate) fn assert_footprint(paper_bytes: u64, size: impl Fn(u64) -> u64) {
        for bytes in [1_000_000, 1 << 20, 16_000_000, 1 << 24, paper_bytes / 4, paper_bytes] {
            let share = size(bytes) as f64 / bytes as f64;
            assert!((0.5..=1.1).contains(&share), "{share} of {bytes}");
        }
    }

    #[test]
    fn nan_fails_a_check() {
        let check = Check { what: "x", measured: f64::NAN, expected: 1.0, tolerance: f64::INFINITY };
        assert!(!check.passed());
    }
}
