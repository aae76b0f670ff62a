//! A network as the model needs it: one training iteration, and how its tensors compress in the record of a real run.

use anyhow::{Result, bail};
use buddy_codec::CodecKind;
use buddy_core::{Histogram, Policy, RunInfo, RunRecord, SizeClass, Target, TargetTable};
use buddy_dl::{Network, classes_of, matches};
use buddy_profile::{
    CodecChoice, DEFAULT_THRESHOLD, Measured, MeasuredAllocation, MeasuredCodec, Settings, profile,
};
use buddy_sim::{ClassMap, Classes};
use buddy_trace::Application;

use super::workload::one_target;

/// A training iteration, or a sample of one.
pub(crate) struct Iteration {
    /// Its kernels.
    pub(crate) application: Application,
    kind: CodecKind,
    /// The share of each class, for each allocation, and targets by the paper's policy; none without a record.
    recorded: Option<(Vec<[f64; 6]>, TargetTable)>,
}

impl Iteration {
    /// A share of an iteration at a batch size. Without a record nothing is known of its data.
    pub(crate) fn new(
        network: &Network,
        batch: u64,
        sample: f64,
        kind: CodecKind,
        record: Option<&RunRecord>,
    ) -> Result<Self> {
        let application = network.application_sampled(batch, sample);
        let recorded = record.map(|record| recorded(&application, kind, record)).transpose()?;
        Ok(Self { application, kind, recorded })
    }

    /// The map with these targets: a ratio, or the policy's.
    pub(crate) fn map(&self, targets: Option<&str>) -> Result<ClassMap> {
        let Some((shares, policy)) = &self.recorded else {
            return Ok(ClassMap::bind(&self.application, None, &mut |_, _| {
                Classes::Uniform(SizeClass::Raw)
            })?);
        };
        let ratio = targets.map(|name| match name.parse::<Target>() {
            Ok(target) => {
                let Application { name, allocations, .. } = &self.application;
                Ok(one_target(name, allocations, target, self.kind))
            }
            Err(error) => bail!("targets of a network are a ratio or the policy's: {error}"),
        });
        let ratio = ratio.transpose()?;
        let classes =
            &mut |index: usize, _: &_| Classes::Shares { shares: shares[index], seed: index as u64 };
        Ok(ClassMap::bind(&self.application, Some(ratio.as_ref().unwrap_or(policy)), classes)?)
    }
}

/// How the tensors of a trace compress, and the targets that the paper's policy gives them: each takes the sizes of
/// the recorded tensors that stand for it.
fn recorded(
    application: &Application,
    kind: CodecKind,
    record: &RunRecord,
) -> Result<(Vec<[f64; 6]>, TargetTable)> {
    let ours = &application.allocations;
    let found = matches(&record.run.allocations, ours);
    let in_snapshot = |numbers: &[usize], snapshot: usize| -> Histogram {
        let sizes = numbers.iter().filter_map(|&number| record.sizes[snapshot].get(number));
        sizes.filter_map(|sizes| sizes.histograms.get(kind.name()).copied()).sum()
    };
    let snapshots = 0..record.run.snapshots.len();
    let measured = |numbers: &Vec<usize>| MeasuredAllocation {
        codecs: vec![MeasuredCodec {
            kind,
            codec: None,
            histograms: snapshots.clone().map(|snapshot| in_snapshot(numbers, snapshot)).collect(),
            pages: None,
        }],
        auto: 0,
        map: None,
    };
    let allocations: Vec<MeasuredAllocation> = found.iter().map(measured).collect();
    if allocations.iter().all(|one| one.codecs[0].histograms.iter().all(|sizes| sizes.entries() == 0)) {
        bail!("the record of {} has no sizes of codec {kind}", application.name);
    }
    let mut run = RunInfo::new(&application.name, Default::default(), ours.clone());
    run.snapshots = record.run.snapshots.clone();
    let measured = Measured { run, allocations, auto: false };
    let codec = CodecChoice::Fixed(kind);
    let settings =
        Settings { threshold: DEFAULT_THRESHOLD, policy: Policy::Allocation16x, codec, plan: None };
    let targets = profile(&measured, &settings)?.0.targets;
    Ok((classes_of(record, kind.name(), ours), targets))
}
