//! A recorded network on a modelled GPU: the kernels of one iteration, with the sizes and targets of its record.

use buddy_codec::CodecKind;
use buddy_core::{AllocationInfo, Histogram, RunInfo, RunRecord, TargetTable};
use buddy_dl::{Network, classes_of, matches};
use buddy_profile::{Measured, MeasuredAllocation, MeasuredCodec, Settings, profile};
use buddy_sim::{ClassMap, Classes};
use buddy_trace::Application;

use crate::{Error, Recorded, simulate::Stage};

/// Kernels that a sample has at least.
const LEAST_KERNELS: usize = 6;

/// The sampled iteration of a recorded network, about `instructions` long.
///
/// # Errors
/// What the record lacks.
pub(crate) fn stage(recorded: &Recorded, instructions: u64) -> Result<Stage, String> {
    let run = &recorded.record.run;
    let named = Network::named(&run.program).ok().or_else(|| Network::named(name(recorded)?).ok());
    let network = named.ok_or("its layers are not known")?;
    let batch = run.parameters.get("batch").and_then(serde_json::Value::as_u64);
    let batch = batch.ok_or("its record has no parameter 'batch'")?;
    let share = instructions as f64 / network.warp_instructions(batch).max(1) as f64;
    let application = sampled(&network, batch, share);
    let sizes = iteration_sizes(&application, CodecKind::Bpc, &recorded.record);
    let (shares, table) = sizes.map_err(|error| error.to_string())?;
    let classes =
        &mut |index: usize, _: &AllocationInfo| Classes::Shares { shares: shares[index], seed: index as u64 };
    let map = ClassMap::bind(&application, Some(&table), classes).map_err(|error| error.to_string())?;
    Ok(Stage { application, map })
}

/// A sample of an iteration; larger than asked for where that would leave hardly a kernel.
fn sampled(network: &Network, batch: u64, mut share: f64) -> Application {
    loop {
        let application = network.application_sampled(batch, share.min(1.0));
        if application.steps.len() >= LEAST_KERNELS || share >= 1.0 {
            return application;
        }
        share *= 1.5;
    }
}

fn name(recorded: &Recorded) -> Option<&str> {
    recorded.record.run.parameters.get("network")?.as_str()
}

/// How the tensors of an iteration compress, as the share of each class, and the targets that the paper's policy gives
/// them: each takes the sizes of the recorded tensors that stand for it (`buddy_dl::matches`).
///
/// # Errors
/// If the record has no sizes of this codec.
pub fn iteration_sizes(
    application: &Application,
    kind: CodecKind,
    record: &RunRecord,
) -> Result<(Vec<[f64; 6]>, TargetTable), Error> {
    let ours = &application.allocations;
    let snapshots = 0..record.run.snapshots.len();
    let in_snapshot = |numbers: &[usize], snapshot: usize| -> Histogram {
        let sizes = numbers.iter().filter_map(|&number| record.sizes[snapshot].get(number));
        sizes.filter_map(|sizes| sizes.histograms.get(kind.name()).copied()).sum()
    };
    let measured = |numbers: &Vec<usize>| {
        let histograms = snapshots.clone().map(|snapshot| in_snapshot(numbers, snapshot)).collect();
        let codecs = vec![MeasuredCodec { kind, codec: None, histograms, pages: None }];
        MeasuredAllocation { codecs, auto: 0, map: None }
    };
    let found = matches(&record.run.allocations, ours);
    let allocations: Vec<MeasuredAllocation> = found.iter().map(measured).collect();
    if allocations.iter().all(|one| one.codecs[0].histograms.iter().all(|sizes| sizes.entries() == 0)) {
        return Err(Error::NoSizes { program: application.name.clone(), codec: kind.name() });
    }
    let mut run = RunInfo::new(&application.name, Default::default(), ours.clone());
    run.snapshots = record.run.snapshots.clone();
    let measured = Measured { run, allocations, auto: false };
    let (profile, _) = profile(&measured, &Settings::final_design(kind))
        .map_err(|source| Error::Profile { program: application.name.clone(), source })?;
    Ok((classes_of(record, kind.name(), ours), profile.targets))
}
