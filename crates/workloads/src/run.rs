//! A whole run: every step, and when its memory is looked at.

use buddy_core::{AllocationInfo, RunInfo};

use crate::{Allocation, Check, Info, Workload};

/// How often a run's memory is looked at: the paper divides every run into ten regions.
pub const SNAPSHOTS: u64 = 10;

/// Where a run is after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Steps that are done, from 1.
    pub done: u64,
    /// Steps of the whole run.
    pub of: u64,
    /// Whether another tenth of the run has just ended, so that its memory is to be looked at.
    pub look: bool,
}

/// Runs a workload to its end and gives what it found of its answer. `watch` is called after every step; an error
/// of it ends the run.
///
/// # Errors
/// The error that `watch` returned, which ends the run.
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

/// What is known of a run before it starts. Its arrays get the addresses of a simple allocator, so that the same
/// run is always described alike.
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

/// A workload's allocations, at the addresses that every description of it gives them.
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
