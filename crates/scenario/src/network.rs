//! One training iteration of a network, with the sizes and targets of a recorded run.

use buddy_codec::CodecKind;
use buddy_core::Histogram;
use buddy_dl::{Network, classes_of, matches};
use buddy_profile::{Measured, MeasuredAllocation, MeasuredCodec, Settings, profile};
use buddy_record::{RunInfo, RunRecord};
use buddy_trace::Application;

use crate::{
    Error, Stage,
    stage::{Memory, Rule, Work},
};

/// Minimum number of kernels in a sample of a recorded iteration.
const LEAST_KERNELS: usize = 6;

impl Stage {
    /// Samples a share of one training iteration. Its tensors compress like those in `record`;
    /// without one, only modes that do not compress can be simulated.
    ///
    /// # Errors
    /// A sample without a kernel, or a record without sizes of this codec.
    pub fn iteration(
        network: &Network,
        batch: u64,
        share: f64,
        kind: CodecKind,
        record: Option<&RunRecord>,
    ) -> Result<Self, Error> {
        let application = network.application_sampled(batch, share);
        if application.steps.is_empty() {
            let why = format!("a sample of {share} has no kernel at a batch of {batch}; give a larger one");
            return Err(Error::Setting(why));
        }
        Self::of_iteration(application, kind, record)
    }

    /// Samples the recorded iteration to about `instructions` warp instructions.
    ///
    /// # Errors
    /// A missing field of the record.
    pub fn recorded(record: &RunRecord, instructions: u64) -> Result<Self, Error> {
        let lacks = |why: &str| Error::Setting(why.to_owned());
        let parameters = &record.run.parameters;
        let named = parameters.get("network").and_then(serde_json::Value::as_str);
        let names = [Some(record.run.program.as_str()), named];
        let network = names.into_iter().flatten().find_map(|name| Network::named(name).ok());
        let network = network.ok_or_else(|| lacks("its layers are unknown"))?;
        let batch = parameters.get("batch").and_then(serde_json::Value::as_u64);
        let batch = batch.ok_or_else(|| lacks("its record has no parameter 'batch'"))?;
        let share = instructions as f64 / network.warp_instructions(batch).max(1) as f64;
        Self::of_iteration(sampled(&network, batch, share), CodecKind::Bpc, Some(record))
    }

    fn of_iteration(
        application: Application,
        kind: CodecKind,
        record: Option<&RunRecord>,
    ) -> Result<Self, Error> {
        let memory = match record {
            Some(record) => {
                let rule = policy(&application, kind, record)?;
                Memory::Shares { shares: classes_of(record, kind.name(), &application.allocations), rule }
            }
            None => Memory::Unknown,
        };
        Ok(Self::new(Work::Application(application), memory, kind))
    }
}

/// Samples an iteration; enlarges the share until at least `LEAST_KERNELS` kernels remain.
fn sampled(network: &Network, batch: u64, mut share: f64) -> Application {
    loop {
        let application = network.application_sampled(batch, share.min(1.0));
        if application.steps.len() >= LEAST_KERNELS || share >= 1.0 {
            return application;
        }
        share *= 1.5;
    }
}

/// Applies the paper's policy to the tensors of an iteration. Each takes the sizes of its matching
/// recorded tensors (`buddy_dl::matches`).
fn policy(application: &Application, kind: CodecKind, record: &RunRecord) -> Result<Rule, Error> {
    let ours = &application.allocations;
    let snapshots = 0..record.run.snapshots.len();
    let in_snapshot = |numbers: &[usize], snapshot: usize| -> Histogram {
        let sizes = numbers.iter().filter_map(|&number| record.sizes[snapshot].get(number));
        sizes.filter_map(|sizes| sizes.histograms.get(kind.name()).copied()).sum()
    };
    let measured = |numbers: &Vec<usize>| {
        let histograms = snapshots.clone().map(|snapshot| in_snapshot(numbers, snapshot)).collect();
        let (codec, parameter_bytes) = (None, 0);
        let codec =
            MeasuredCodec { kind, codec, parameter_bytes, histograms, blocks: None, maps: Vec::new() };
        MeasuredAllocation { codecs: vec![codec], auto: 0 }
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
    Ok(Rule { usual: profile.targets, measured: Some(measured) })
}
