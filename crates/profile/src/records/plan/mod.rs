//! Plans codecs and targets that fit a device memory and lose the least time on the link.

use std::collections::{BTreeMap, HashSet};

use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, Histogram, SECTOR_BYTES, Target, or_uncompressed};
use buddy_record::{
    AllocationInfo, PlanOutcome, RunInfo,
    spec::{Gpu, Link},
};

use crate::{
    Assignment, Error, Measured, MeasuredAllocation, Place, candidates,
    records::{
        assign::entries,
        knapsack::{Choice, Infeasible, solve},
    },
};

/// Size of the carve-out in units of the device memory.
const CARVE_OUT: u64 = 3;
/// Metadata bytes of a page: four bits per entry.
const METADATA_BYTES: u64 = ENTRIES_PER_PAGE as u64 / 2;

/// The hardware and the access counts of a plan.
#[derive(Debug, Clone)]
pub struct PlanRequest {
    /// Bytes of device memory available to the run.
    pub device_memory: u64,
    /// The GPU, for its memory bandwidth.
    pub gpu: Gpu,
    /// The link to buddy memory.
    pub link: Link,
    /// Entry accesses of each allocation; `None` means that each entry is read once.
    pub accesses: Option<Vec<u64>>,
}

/// One codec with one target for an allocation.
struct Offer {
    codec: usize,
    target: Target,
    /// Device bytes, seconds on the link and carve-out bytes.
    choice: Choice,
    /// Bytes over the link when every entry is accessed once.
    link_bytes: f64,
}

/// Finds the codecs and targets that fit with the least time on the link, and their outcome.
///
/// # Errors
/// [`Error::NothingFits`] or [`Error::CarveOut`], with the bytes missing.
pub fn plan(measured: &Measured, request: &PlanRequest) -> Result<(Vec<Assignment>, PlanOutcome), Error> {
    let memory = request.device_memory;
    let offers: Vec<Vec<Offer>> = measured
        .allocations
        .iter()
        .enumerate()
        .map(|(index, allocation)| offers(allocation, request, index))
        .collect();
    let choices: Vec<Vec<Choice>> =
        offers.iter().map(|offers| offers.iter().map(|offer| offer.choice).collect()).collect();
    let carve_out = CARVE_OUT.saturating_mul(memory);
    let solution = solve(&choices, memory, carve_out).map_err(|error| match error {
        Infeasible::Capacity(needed) => Error::NothingFits { memory, needed },
        Infeasible::Side(needed) => Error::CarveOut { memory, needed, over: needed - carve_out },
    })?;
    let chosen: Vec<&Offer> =
        offers.iter().zip(&solution.picks).map(|(offers, &pick)| &offers[pick]).collect();
    let chosen = fill(&offers, chosen, memory, carve_out);
    let assigned = chosen.iter().map(|offer| Assignment { codec: offer.codec, targets: offer.target.into() });
    let link_seconds = chosen.iter().map(|offer| offer.choice.loss).sum();
    let device_bytes = chosen.iter().map(|offer| offer.choice.cost).sum();
    let outcome = PlanOutcome {
        device_memory: memory,
        spec: request.gpu.name.clone(),
        device_gb_per_s: request.gpu.dram_gb_per_s(),
        link: request.link.name.clone(),
        link_gb_per_s: request.link.gb_per_s,
        counted: request.accesses.is_some(),
        device_bytes,
        device_seconds: device_seconds(measured, request),
        link_seconds,
        bound_seconds: if solution.optimal { link_seconds } else { solution.bound },
        optimal: solution.optimal,
        next_bytes: dearer(&offers, &chosen).map(|more| device_bytes + more),
    };
    Ok((assigned.collect(), outcome))
}

/// Uses the remaining device memory. Among choices that lose no more time, as all do for an
/// allocation that is never accessed, takes those with the least buddy data.
fn fill<'a>(offers: &'a [Vec<Offer>], chosen: Vec<&'a Offer>, memory: u64, carve_out: u64) -> Vec<&'a Offer> {
    let no_worse = |(offers, chosen): (&'a Vec<Offer>, &&Offer)| -> Vec<&'a Offer> {
        offers.iter().filter(|offer| offer.choice.loss <= chosen.choice.loss).collect()
    };
    let open: Vec<Vec<&Offer>> = offers.iter().zip(&chosen).map(no_worse).collect();
    let by_bytes = |offer: &&Offer| Choice { loss: offer.link_bytes, ..offer.choice };
    let choices: Vec<Vec<Choice>> = open.iter().map(|offers| offers.iter().map(by_bytes).collect()).collect();
    match solve(&choices, memory, carve_out) {
        Ok(found) => open.iter().zip(found.picks).map(|(offers, pick)| offers[pick]).collect(),
        Err(_) => chosen,
    }
}

/// Returns the least additional device bytes with which some allocation loses less time.
fn dearer(offers: &[Vec<Offer>], chosen: &[&Offer]) -> Option<u64> {
    let more = offers.iter().zip(chosen).flat_map(|(offers, chosen)| {
        let better = offers.iter().filter(|offer| offer.choice.loss < chosen.choice.loss);
        better.map(|offer| offer.choice.cost.saturating_sub(chosen.choice.cost))
    });
    more.min()
}

/// Returns all combinations of a candidate codec and a target.
fn offers(allocation: &MeasuredAllocation, request: &PlanRequest, index: usize) -> Vec<Offer> {
    let eligible = candidates(Place::Memory);
    let codecs = allocation.codecs.iter().enumerate().filter(|(_, codec)| eligible.contains(&codec.kind));
    let all = |codec: usize| {
        let sizes = &allocation.codecs[codec];
        let over_time: Histogram = sizes.histograms.iter().copied().sum();
        Target::ALL.map(|target| {
            let target = or_uncompressed(target, &over_time);
            let entries = entries(sizes);
            let pages = entries.div_ceil(ENTRIES_PER_PAGE as u64);
            let page_entries = pages * ENTRIES_PER_PAGE as u64;
            let metadata = if target.compresses() { pages * METADATA_BYTES } else { 0 };
            let parameters = if target.compresses() { sizes.parameter_bytes } else { 0 };
            let cost = page_entries * target.device_bytes() as u64 + metadata + parameters;
            let passes = passes(request, index, entries);
            let link_bytes = mean_buddy_bytes(&sizes.histograms, target);
            let loss = passes * link_bytes / (request.link.gb_per_s * 1e9);
            let side = page_entries * target.buddy_bytes() as u64;
            Offer { codec, target, choice: Choice { cost, loss, side }, link_bytes }
        })
    };
    let offers: Vec<Offer> = codecs.flat_map(|(codec, _)| all(codec)).collect();
    // A run may be measured only with codecs that are no candidates.
    if offers.is_empty() { all(0).into() } else { offers }
}

/// Returns the mean number of accesses per entry of an allocation.
fn passes(request: &PlanRequest, index: usize, entries: u64) -> f64 {
    match &request.accesses {
        Some(accesses) => accesses[index] as f64 / entries.max(1) as f64,
        None => 1.0,
    }
}

/// Returns the bytes over the link if every entry is accessed once, averaged over the snapshots.
fn mean_buddy_bytes(snapshots: &[Histogram], target: Target) -> f64 {
    let sectors: u64 = snapshots.iter().map(|histogram| histogram.sectors(target).1).sum();
    (sectors * SECTOR_BYTES as u64) as f64 / snapshots.len().max(1) as f64
}

/// Returns the seconds of all accesses with uncompressed data in device memory.
fn device_seconds(measured: &Measured, request: &PlanRequest) -> f64 {
    let accesses = measured.allocations.iter().enumerate().map(|(index, allocation)| {
        let entries = entries(&allocation.codecs[0]);
        passes(request, index, entries) * entries as f64
    });
    accesses.sum::<f64>() * ENTRY_BYTES as f64 / (request.gpu.dram_gb_per_s() * 1e9)
}

/// Reads access counts: a JSON object from allocation names to the number of entries read or
/// written.
///
/// # Errors
/// If the text is no such object, or its allocations are not those of the run.
pub fn read_accesses(path: &str, text: &str, run: &RunInfo) -> Result<Vec<u64>, Error> {
    let counts: BTreeMap<String, u64> = serde_json::from_str(text).map_err(|error| Error::File {
        path: path.to_owned(),
        what: format!("invalid access counts: {error}"),
    })?;
    let names: HashSet<&String> = run.allocations.iter().map(|allocation| &allocation.name).collect();
    if let Some(name) = counts.keys().find(|name| !names.contains(name)) {
        return Err(Error::Accesses(name.clone()));
    }
    let count = |allocation: &AllocationInfo| {
        let name = &allocation.name;
        counts.get(name).copied().ok_or_else(|| Error::Accesses(name.clone()))
    };
    run.allocations.iter().map(count).collect()
}

#[cfg(test)]
mod tests;
