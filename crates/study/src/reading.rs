//! A second reading of a profile: the same memory with another codec.

use std::collections::BTreeMap;

use buddy_codec::CodecKind;
use buddy_core::{Histogram, Target};
use buddy_profile::{Measured, MeasuredAllocation, MeasuredCodec, Settings, profile};
use buddy_record::Profile;

use crate::{Findings, Subject, findings::CPU};

/// BPC as Compresso uses it: the same block also without the transform, the smaller kept (D3).
pub(crate) const SECOND: CodecKind = CodecKind::BpcBest;

/// Profiles of the sixteen workloads with another codec.
pub(crate) struct Reading(BTreeMap<&'static str, Profile>);

impl Reading {
    /// Profiles every workload whose sizes with this codec are known: in its own record, or else in
    /// the record made on a CPU.
    pub(crate) fn of(found: &Findings, kind: CodecKind) -> Self {
        let one = |subject: Subject<'_>| {
            let own = subject.profile.and_then(|profile| read_as(profile, kind));
            let read = own.or_else(|| read_as(found.in_set(CPU, subject.name)?, kind));
            Some((subject.name, read?))
        };
        Self(found.subjects().into_iter().filter_map(one).collect())
    }

    /// Returns the sixteen workloads with these profiles.
    pub(crate) fn subjects<'a>(&'a self, found: &'a Findings) -> Vec<Subject<'a>> {
        let with = |subject: Subject<'a>| Subject { profile: self.0.get(subject.name), ..subject };
        found.subjects().into_iter().map(with).collect()
    }
}

/// Profiles the memory of a profile with another codec and the paper's final design; `None` if an
/// allocation has no sizes with it.
pub(crate) fn read_as(of: &Profile, kind: CodecKind) -> Option<Profile> {
    let one = |allocation: &buddy_record::AllocationProfile| {
        let histograms = allocation.histograms.get(kind.name())?.clone();
        let (codec, parameter_bytes, blocks, maps) = (None, 0, None, Vec::new());
        let codec = MeasuredCodec { kind, codec, parameter_bytes, histograms, blocks, maps };
        Some(MeasuredAllocation { codecs: vec![codec], auto: 0 })
    };
    let allocations = of.allocations.iter().map(one).collect::<Option<_>>()?;
    let measured = Measured { run: of.run.clone(), allocations, auto: false };
    profile(&measured, &Settings::final_design(kind)).ok().map(|(profile, _)| profile)
}

/// One target for a whole program: its own ratio rounded down to a target, without a threshold (D42).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rounded {
    /// The target, up to 4x.
    pub(crate) target: Target,
    /// Share of live entries that overflow, the mean of the snapshots.
    pub(crate) overflow: f64,
}

/// Returns the target of a program by its ratio of eight sizes over the whole run; `None` without
/// sizes.
pub(crate) fn rounded_down(of: &Profile, codec: &str) -> Option<Rounded> {
    let total = |snapshot: usize| -> Option<Histogram> {
        let sizes = of.allocations.iter().map(|one| one.histograms.get(codec)?.get(snapshot).copied());
        sizes.map(Option::unwrap_or_default).reduce(|a, b| [a, b].into_iter().sum())
    };
    let totals: Vec<Histogram> = (0..of.run.snapshots.len()).filter_map(total).collect();
    let alive = || totals.iter().filter(|all| all.entries() > 0);
    let all = alive().copied().reduce(|a, b| [a, b].into_iter().sum())?;
    let own = all.optimistic_ratio().unwrap_or(f64::INFINITY);
    let fits = [Target::X4, Target::X2, Target::X4Over3].into_iter().find(|target| target.ratio() <= own);
    let target = fits.unwrap_or(Target::X1);
    let overflow = crate::arithmetic(alive().map(|all| all.overflow_share(target)))?;
    Some(Rounded { target, overflow })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::findings;

    /// alexnet: 128 entries in 48 x 0 + 48 x 32 + 32 x 64 bytes, 4.57x: 4x, at which a quarter
    /// overflows. cg: 32768 bytes in 8192 + 10240, then in 20480, 1.68x in all: 4/3x, at which the
    /// raw entries overflow: 64, then 96 of 256. resnet50: 49152 bytes in 45056, so 1x.
    #[test]
    fn a_programs_own_ratio_is_rounded_down_to_a_target() {
        let found = findings();
        let of = |name: &str| {
            let subjects = found.subjects();
            let subject = subjects.iter().find(|subject| subject.name == name).unwrap();
            rounded_down(subject.profile.unwrap(), "bpc").unwrap()
        };
        assert_eq!(of("alexnet"), Rounded { target: Target::X4, overflow: 0.25 });
        assert_eq!(of("cg"), Rounded { target: Target::X4Over3, overflow: 0.3125 });
        assert_eq!(of("resnet50"), Rounded { target: Target::X1, overflow: 0.0 });
    }

    #[test]
    fn a_reading_has_the_workloads_whose_sizes_are_known() {
        let found = findings();
        let planes = Reading::of(&found, CodecKind::Planes64);
        let known: Vec<&str> =
            planes.subjects(&found).iter().filter(|one| one.profile.is_some()).map(|one| one.name).collect();
        assert_eq!(known, ["cg", "seismic"], "the networks were not measured with it");
        // cg: both at 4x in its first allocation, 4096 + 16384 of 32768 bytes.
        let subjects = planes.subjects(&found);
        let cg = subjects[2].profile.unwrap();
        assert_eq!(cg.outcome(buddy_record::Policy::Allocation16x, "planes64").unwrap().ratio, 1.6);
    }
}
