//! Builds the record of `buddy profile`.

use std::collections::BTreeMap;

use buddy_codec::{Codec, CodecKind};
use buddy_core::{ENTRY_BYTES, Histogram};
use buddy_record::{
    AllocationProfile, AllocationTarget, CodecOutcome, LinkAdvice, PlanOutcome, Policy, PolicyOutcome,
    Profile, SweepPoint, TARGETS_VERSION, TargetTable, best_outcome, codec_parameters,
};

use crate::{
    Assignment, CodecChoice, DEFAULT_THRESHOLD, Error, LinkLimit, Measured, MeasuredCodec, PlanRequest,
    allowed::Allowed,
    assign, assign_within, plan,
    records::{
        assign::{entries, ranges_in, totals},
        phases::phases,
    },
};

/// Thresholds of the paper's sensitivity study.
const SWEEP: [f64; 7] = [0.10, 0.15, 0.20, 0.25, 0.30, 0.35, 0.40];

/// Settings of a profile.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The Buddy Threshold, from 0 to below 1.
    pub threshold: f64,
    /// Policy that chooses the targets; ignored if there is a plan.
    pub policy: Policy,
    /// Codec choice; ignored if there is a plan.
    pub codec: CodecChoice,
    /// Plan to fit a device memory instead of a policy.
    pub plan: Option<PlanRequest>,
    /// Machine on which slowdowns are predicted, with the limit of [`Policy::Link`].
    pub link: Option<LinkLimit>,
}

impl Settings {
    /// Returns the paper's final design with a codec: a target per allocation, 16x for mostly-zero
    /// allocations, and the paper's threshold.
    pub fn final_design(kind: CodecKind) -> Self {
        let codec = CodecChoice::Fixed(kind);
        Self { threshold: DEFAULT_THRESHOLD, policy: Policy::Allocation16x, codec, plan: None, link: None }
    }
}

/// Checks a threshold.
///
/// # Errors
/// [`Error::Threshold`] unless it is at least 0 and below 1.
pub fn check_threshold(threshold: f64) -> Result<(), Error> {
    if (0.0..1.0).contains(&threshold) { Ok(()) } else { Err(Error::Threshold(threshold)) }
}

/// Profiles a measured run. Returns the record and the assignment of each allocation.
///
/// # Errors
/// If the threshold is invalid, the plan does not fit, or sizes of the codec or of pages are
/// missing.
pub fn profile(measured: &Measured, settings: &Settings) -> Result<(Profile, Vec<Assignment>), Error> {
    check_threshold(settings.threshold)?;
    let (policy, codec, chosen, planned) = choose(measured, settings)?;
    let choices = codec_choices(measured, settings.codec);
    let known = planned.is_none().then_some((settings.policy, settings.codec, &chosen[..]));
    let mut policies = outcomes(measured, settings, &choices, known);
    if planned.is_some() {
        policies.push(outcome(measured, &chosen, (policy, &codec), settings.link.as_ref()));
    }
    let paper: Vec<&MeasuredCodec> =
        measured.allocations.iter().map(|allocation| &allocation.codecs[0]).collect();
    let over_time = totals(&paper);
    let most = |bytes: fn(&Histogram) -> u64| over_time.iter().map(bytes).max().unwrap_or(0);
    let stored = most(Histogram::stored_bytes);
    let follows = planned.is_none() && measured.run.snapshots.len() > 1;
    let by_link = settings.link.as_ref().filter(|_| policy == Policy::Link);
    let allowed = Allowed::threshold(settings.threshold);
    let allowed = by_link.map_or(allowed, |limit| limit.allowed(settings.threshold));
    let by_phase = follows.then(|| phases(measured, &chosen, policy, allowed));
    let (by_phase, changes) = by_phase.map_or((None, Vec::new()), |(plan, changes)| (Some(plan), changes));
    let profile = Profile {
        run: measured.run.clone(),
        threshold: settings.threshold,
        allocations: allocations(measured, &chosen, settings.link.as_ref()),
        optimistic: over_time.iter().map(Histogram::optimistic_ratio).collect(),
        optimistic_ratio: over_time.iter().copied().sum::<Histogram>().optimistic_ratio(),
        best_ratio: (stored > 0).then(|| most(Histogram::bytes) as f64 / stored as f64),
        policies,
        sweep: sweep(measured, &choices)?,
        codecs: compare(measured, settings.threshold)?,
        policy,
        codec,
        targets: TargetTable { changes, ..table(measured, &chosen) },
        phases: by_phase,
        advice: advice(measured, settings)?,
        plan: planned,
        verified: None,
    };
    Ok((profile, chosen))
}

/// Returns the policy with the largest ratio, then the least overflow, then the simplest.
///
/// Excludes `naive`, which applies the threshold only to the whole program, so that one allocation
/// may overflow entirely.
///
/// # Errors
/// If the threshold is invalid or the codec was not measured.
pub fn best_policy(measured: &Measured, threshold: f64, codec: CodecChoice) -> Result<Policy, Error> {
    check_threshold(threshold)?;
    // Reports codec errors, which `outcomes` ignores.
    assign(measured, threshold, Policy::Allocation, codec)?;
    let settings = Settings { threshold, policy: Policy::Page, codec, plan: None, link: None };
    Ok(best_outcome(&outcomes(measured, &settings, &[codec], None))
        .map_or(Policy::Allocation16x, |best| best.policy))
}

/// Returns the target table of a measured run without the rest of the profile.
///
/// # Errors
/// As for [`profile`].
pub fn policy_targets(measured: &Measured, settings: &Settings) -> Result<TargetTable, Error> {
    check_threshold(settings.threshold)?;
    let (_, _, chosen, _) = choose(measured, settings)?;
    Ok(table(measured, &chosen))
}

/// Policy, codec name, assignments and plan outcome.
type Chosen = (Policy, String, Vec<Assignment>, Option<PlanOutcome>);

fn choose(measured: &Measured, settings: &Settings) -> Result<Chosen, Error> {
    match &settings.plan {
        Some(request) => {
            let (assigned, outcome) = plan(measured, request)?;
            Ok((Policy::Plan, CodecChoice::Auto.name().to_owned(), assigned, Some(outcome)))
        }
        None => {
            let assigned = assigned(measured, settings, settings.policy, settings.codec)?;
            Ok((settings.policy, settings.codec.name().to_owned(), assigned, None))
        }
    }
}

/// Returns the first measured codec, which is the paper's if present, the requested choice, and
/// `auto`.
fn codec_choices(measured: &Measured, asked: CodecChoice) -> Vec<CodecChoice> {
    let kinds = measured.kinds();
    let mut choices: Vec<CodecChoice> =
        kinds.first().map(|kind| CodecChoice::Fixed(*kind)).into_iter().collect();
    let auto = measured.auto.then_some(CodecChoice::Auto);
    for choice in [asked].into_iter().chain(auto) {
        if !choices.contains(&choice) {
            choices.push(choice);
        }
    }
    choices
}

/// Assigns targets by a policy.
fn assigned(
    measured: &Measured,
    settings: &Settings,
    policy: Policy,
    codec: CodecChoice,
) -> Result<Vec<Assignment>, Error> {
    match (policy, &settings.link) {
        (Policy::Link, Some(limit)) => assign_within(measured, settings.threshold, codec, limit),
        (Policy::Link, None) => Err(Error::NoLink),
        _ => assign(measured, settings.threshold, policy, codec),
    }
}

/// Evaluates every policy with every codec choice, except those that lack sizes. `known` holds an
/// assignment that was already computed.
fn outcomes(
    measured: &Measured,
    settings: &Settings,
    choices: &[CodecChoice],
    known: Option<(Policy, CodecChoice, &[Assignment])>,
) -> Vec<PolicyOutcome> {
    let link = settings.link.as_ref();
    let policies = || Policy::BY_THRESHOLD.into_iter().chain(link.map(|_| Policy::Link));
    let all = choices.iter().flat_map(|choice| policies().map(|policy| (policy, *choice)));
    all.filter_map(|(policy, choice)| {
        let found = known.filter(|&(of, with, _)| (of, with) == (policy, choice));
        let assigned = match found {
            Some((.., assigned)) => assigned.to_vec(),
            None => assigned(measured, settings, policy, choice).ok()?,
        };
        Some(outcome(measured, &assigned, (policy, choice.name()), link))
    })
    .collect()
}

/// Describes the machine and the capacity at other limits.
fn advice(measured: &Measured, settings: &Settings) -> Result<Option<LinkAdvice>, Error> {
    let ratio = |chosen: &[Assignment]| outcome(measured, chosen, (Policy::Link, ""), None).ratio;
    let advice =
        settings.link.as_ref().map(|limit| limit.advice(measured, settings.threshold, settings.codec, ratio));
    advice.transpose()
}

/// Returns the outcome of an assignment. Counts live allocations: the ratio is that of peak
/// footprints.
fn outcome(
    measured: &Measured,
    assigned: &[Assignment],
    (policy, codec): (Policy, &str),
    link: Option<&LinkLimit>,
) -> PolicyOutcome {
    let parts = |snapshot: usize| {
        let parts = measured.allocations.iter().zip(assigned).map(|(all, one)| (&all.codecs[one.codec], one));
        parts.filter(move |(codec, _)| codec.histograms[snapshot].entries() > 0)
    };
    let snapshots = 0..measured.run.snapshots.len();
    let alive = |snapshot| parts(snapshot).map(|(codec, _)| entries(codec)).sum::<u64>();
    let device = |snapshot| parts(snapshot).map(|(codec, one)| one.device_bytes_with(codec)).sum::<u64>();
    let overflow: Vec<f64> = snapshots
        .clone()
        .map(|snapshot| {
            let over: u64 = parts(snapshot).map(|(codec, one)| overflowing(codec, one, snapshot)).sum();
            over as f64 / alive(snapshot).max(1) as f64
        })
        .collect();
    let device_bytes = snapshots.clone().map(device).max().unwrap_or(0);
    let bytes = snapshots.map(alive).max().unwrap_or(0) * ENTRY_BYTES as u64;
    PolicyOutcome {
        policy,
        codec: codec.to_owned(),
        device_bytes,
        ratio: if device_bytes == 0 { 1.0 } else { bytes as f64 / device_bytes as f64 },
        mean_overflow: overflow.iter().sum::<f64>() / overflow.len().max(1) as f64,
        worst_overflow: overflow.iter().copied().fold(0.0, f64::max),
        overflow,
        ranges: assigned.iter().map(|one| one.targets.count() as u64).sum(),
        link: link.map(|limit| limit.total(measured, assigned)),
    }
}

fn overflowing(codec: &MeasuredCodec, assigned: &Assignment, snapshot: usize) -> u64 {
    let ranges = ranges_in(codec, assigned, snapshot);
    ranges.iter().map(|(target, histogram)| histogram.overflowing(*target)).sum()
}

fn sweep(measured: &Measured, choices: &[CodecChoice]) -> Result<Vec<SweepPoint>, Error> {
    let all = choices.iter().flat_map(|choice| SWEEP.map(|threshold| (*choice, threshold)));
    all.map(|(choice, threshold)| {
        let measured = measured.at_threshold(threshold);
        let assigned = assign(&measured, threshold, Policy::Allocation16x, choice)?;
        let PolicyOutcome { codec, ratio, mean_overflow, .. } =
            outcome(&measured, &assigned, (Policy::Allocation16x, choice.name()), None);
        Ok(SweepPoint { codec, threshold, ratio, mean_overflow })
    })
    .collect()
}

fn compare(measured: &Measured, threshold: f64) -> Result<Vec<CodecOutcome>, Error> {
    let fixed = measured.kinds().into_iter().map(CodecChoice::Fixed);
    let compare = |choice: CodecChoice| {
        let assigned = assign(measured, threshold, Policy::Allocation16x, choice)?;
        let found = outcome(measured, &assigned, (Policy::Allocation16x, choice.name()), None);
        let sizes = measured.allocations.iter().zip(&assigned);
        let all: Histogram = sizes.flat_map(|(all, one)| &all.codecs[one.codec].histograms).copied().sum();
        Ok(CodecOutcome {
            codec: choice.name().to_owned(),
            optimistic_ratio: all.optimistic_ratio(),
            ratio: found.ratio,
            mean_overflow: found.mean_overflow,
        })
    };
    fixed.chain([CodecChoice::Auto]).map(compare).collect()
}

fn allocations(
    measured: &Measured,
    chosen: &[Assignment],
    link: Option<&LinkLimit>,
) -> Vec<AllocationProfile> {
    let mut costs = link.map(|limit| limit.each(measured, chosen).into_iter());
    let snapshots = 0..measured.run.snapshots.len();
    let one = |(allocation, assigned): (&crate::MeasuredAllocation, &Assignment)| {
        let codec = &allocation.codecs[assigned.codec];
        let histograms: BTreeMap<String, Vec<Histogram>> = allocation
            .codecs
            .iter()
            .map(|codec| (codec.kind.name().to_owned(), codec.histograms.clone()))
            .collect();
        let candidates = allocation.candidates();
        let candidates = candidates.map(|(_, codec)| (codec.kind.name().to_owned(), codec.parameter_bytes));
        let (pages_codec, pages) = allocation.picture(assigned.codec).unzip();
        AllocationProfile {
            histograms,
            candidates: candidates.collect(),
            auto: allocation.codecs[allocation.auto].kind.name().to_owned(),
            overflowing: snapshots.clone().map(|snapshot| overflowing(codec, assigned, snapshot)).collect(),
            device_bytes: assigned.device_bytes_with(codec),
            learned: codec.codec.as_ref().and_then(Codec::describe_parameters).unwrap_or_default(),
            pages,
            pages_codec: pages_codec.map(|kind| kind.name().to_owned()).unwrap_or_default(),
            link: costs.as_mut().and_then(Iterator::next),
        }
    };
    measured.allocations.iter().zip(chosen).map(one).collect()
}

/// Returns the target table of an assignment.
fn table(measured: &Measured, chosen: &[Assignment]) -> TargetTable {
    let infos = measured.run.allocations.iter().zip(&measured.allocations);
    let rows = infos.zip(chosen).map(|((info, allocation), assigned)| {
        let codec = &allocation.codecs[assigned.codec];
        AllocationTarget {
            name: info.name.clone(),
            call_site: info.call_site.clone(),
            bytes: info.bytes,
            codec: codec.kind.name().to_owned(),
            parameters: codec.codec.as_ref().map(codec_parameters).unwrap_or_default(),
            targets: assigned.targets.clone(),
        }
    });
    TargetTable {
        version: TARGETS_VERSION,
        program: measured.run.program.clone(),
        allocations: rows.collect(),
        changes: Vec::new(),
    }
}
