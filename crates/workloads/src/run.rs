//! A whole run: every step, and its ten snapshots.

use buddy_record::{AllocationInfo, RunInfo};

use crate::{Allocation, Check, Info, Workload};

/// Snapshots per run: the paper divides every run into ten regions.
pub const SNAPSHOTS: u64 = 10;

/// Progress of a run after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Completed steps, from 1.
    pub done: u64,
    /// Steps of the whole run.
    pub of: u64,
    /// True if a tenth of the run has just ended and a snapshot is due.
    pub look: bool,
}

/// Runs a workload to its end and returns its checks. `watch` is called after every step; its error
/// ends the run.
///
/// # Errors
/// The error that `watch` returned.
pub fn run<E>(
    workload: &mut dyn Workload,
    mut watch: impl FnMut(Step, &dyn Workload) -> Result<(), E>,
) -> Result<Vec<Check>, E> {
    let of = workload.steps();
    for done in 1..=of {
        workload.step();
        let look = done * SNAPSHOTS / of > (done - 1) * SNAPSHOTS / of;
        watch(Step { done, of, look }, workload)?;
    }
    Ok(workload.check())
}

/// Describes a run before it starts. Arrays get addresses from a simple allocator, so that
/// descriptions are reproducible.
pub fn describe(info: &Info, workload: &dyn Workload, seed: u64) -> RunInfo {
    let mut run = RunInfo::new(info.name, Default::default(), allocation_infos(workload));
    let bytes = run.bytes();
    let parameters = [
        ("paper_name", info.paper_name.into()),
        ("footprint_bytes", bytes.into()),
        ("scale", (bytes as f64 / info.paper_bytes as f64).into()),
        ("steps", workload.steps().into()),
        ("seed", seed.into()),
    ];
    run.parameters = parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    run
}

/// Returns a workload's allocations at the addresses that [`describe`] gives them.
pub(crate) fn allocation_infos(workload: &dyn Workload) -> Vec<AllocationInfo> {
    let all = workload.allocations().iter().map(allocation_info).collect();
    let mut run = RunInfo::new("", Default::default(), all);
    run.place_allocations();
    run.allocations
}

fn allocation_info(allocation: &Allocation<'_>) -> AllocationInfo {
    AllocationInfo {
        name: allocation.name.clone(),
        call_site: allocation.call_site.to_owned(),
        base: 0,
        bytes: allocation.bytes.len() as u64,
        dtype: allocation.dtype,
    }
}
