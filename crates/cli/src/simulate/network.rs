//! A network as the model needs it: one training iteration, and how its tensors compress in the record of a real run.

use anyhow::{Result, bail};
use buddy_codec::CodecKind;
use buddy_core::{RunRecord, SizeClass, Target, TargetTable};
use buddy_dl::Network;
use buddy_sim::{ClassMap, Classes};
use buddy_study::iteration_sizes;
use buddy_trace::Application;

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
        if application.steps.is_empty() {
            bail!("a sample of {sample} has no kernel at a batch of {batch}; give a larger --sample");
        }
        let recorded = record.map(|record| iteration_sizes(&application, kind, record)).transpose()?;
        Ok(Self { application, kind, recorded })
    }

    /// The map with these targets: a ratio, or the policy's.
    pub(crate) fn map(&self, targets: Option<&str>) -> Result<ClassMap> {
        let Application { name, allocations, .. } = &self.application;
        let ratio = targets.map(|ratio| match ratio.parse::<Target>() {
            Ok(target) => Ok(TargetTable::uniform(name, allocations, target, self.kind.name())),
            Err(error) => bail!("targets of a network are a ratio or the policy's: {error}"),
        });
        let ratio = ratio.transpose()?;
        let Some((shares, policy)) = &self.recorded else {
            let raw = &mut |_, _: &_| Classes::Uniform(SizeClass::Raw);
            return Ok(ClassMap::bind(&self.application, None, raw)?);
        };
        let classes =
            &mut |index: usize, _: &_| Classes::Shares { shares: shares[index], seed: index as u64 };
        Ok(ClassMap::bind(&self.application, Some(ratio.as_ref().unwrap_or(policy)), classes)?)
    }
}
