//! Numbers that claims are compared with.

use buddy_core::{ENTRY_BYTES, PageMap, SizeClass, Target, conservative_target};
use buddy_dl::{Accuracy, AccuracySummary, Network, Projection, Spec, project, time};
use buddy_record::{CodecOutcome, Figure, Policy, PolicyOutcome, Profile, SweepPoint};
use buddy_sim::Mode;

use crate::{
    Experiment, Findings, Point, Program, Subject, arithmetic,
    figures::{SimulatorSpeed, Speedup},
    findings::CPU,
    geometric,
    performance::{AtCapacity, OWN_METADATA, Row, Timings, at_capacity, compressed_caches},
    reading::rounded_down,
};

/// Results of this run and recorded simulations.
pub(super) struct Facts<'a> {
    found: &'a Findings,
    subjects: Vec<Subject<'a>>,
    codec: &'static str,
    timings: Timings,
}

/// The two groups of workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Hpc,
    Dl,
}

/// GPU of the paper's training.
const TRAINING_GPU: &str = "titan-xp";

impl<'a> Facts<'a> {
    pub(super) fn new(found: &'a Findings) -> Self {
        Self { found, subjects: found.subjects(), codec: "bpc", timings: Timings::recorded() }
    }

    /// Returns the facts of simulations with the paper's ratios and overflow imposed.
    pub(super) fn imposed(found: &'a Findings) -> Self {
        Self { timings: Timings::imposed(), ..Self::new(found) }
    }

    /// Returns the facts with another reading of BPC.
    pub(super) fn read_as(found: &'a Findings, subjects: Vec<Subject<'a>>, codec: &'static str) -> Self {
        Self { subjects, codec, ..Self::new(found) }
    }

    fn profiles(&self, group: Group) -> impl Iterator<Item = &'a Profile> {
        let of = self.subjects.iter().filter(move |one| one.hpc == (group == Group::Hpc));
        of.filter_map(|subject| subject.profile)
    }

    fn outcome<'p>(&self, profile: &'p Profile, policy: Policy) -> Option<&'p PolicyOutcome> {
        profile.outcome(policy, self.codec)
    }

    pub(super) fn profile(&self, name: &str) -> Option<&'a Profile> {
        self.subjects.iter().find(|subject| subject.name == name)?.profile
    }

    /// Returns the geometric mean of a number of each workload.
    pub(super) fn mean(&self, group: Group, value: impl Fn(&Profile) -> Option<f64>) -> Option<f64> {
        geometric(self.profiles(group).filter_map(value))
    }

    /// Returns the mean ratio of a policy with the paper's codec.
    pub(super) fn ratio(&self, policy: Policy, group: Group) -> Option<f64> {
        self.mean(group, |profile| Some(self.outcome(profile, policy)?.ratio))
    }

    /// Returns the mean share of entries in buddy memory.
    pub(super) fn overflow(&self, policy: Policy, group: Group) -> Option<f64> {
        arithmetic(
            self.profiles(group).filter_map(|profile| Some(self.outcome(profile, policy)?.mean_overflow)),
        )
    }

    /// Returns the mean ratio with one target for a program: its own ratio rounded down.
    pub(super) fn rounded(&self, group: Group) -> Option<f64> {
        self.mean(group, |profile| Some(rounded_down(profile, self.codec)?.target.ratio()))
    }

    /// Returns the mean share of entries in buddy memory with that target.
    pub(super) fn rounded_overflow(&self, group: Group) -> Option<f64> {
        arithmetic(
            self.profiles(group).filter_map(|profile| Some(rounded_down(profile, self.codec)?.overflow)),
        )
    }

    pub(super) fn rounded_of(&self, name: &str) -> Option<f64> {
        Some(rounded_down(self.profile(name)?, self.codec)?.target.ratio())
    }

    pub(super) fn ratio_of(&self, policy: Policy, name: &str) -> Option<f64> {
        Some(self.outcome(self.profile(name)?, policy)?.ratio)
    }

    /// Returns mean ratio and mean overflow at a threshold.
    pub(super) fn at_threshold(&self, threshold: f64, group: Group) -> Option<(f64, f64)> {
        let points: Vec<&SweepPoint> =
            self.profiles(group).filter_map(|profile| swept(profile, self.codec, threshold)).collect();
        let ratio = geometric(points.iter().map(|point| point.ratio))?;
        Some((ratio, arithmetic(points.iter().map(|point| point.mean_overflow))?))
    }

    /// Returns the ratio of one workload with targets per allocation at any threshold.
    pub(super) fn ratio_at(&self, name: &str, threshold: f64) -> Option<f64> {
        let profile = self.profile(name)?;
        let (mut all, mut device) = (0, 0);
        for (info, sizes) in profile.run.allocations.iter().zip(&profile.allocations) {
            let target = conservative_target(sizes.histograms.get(self.codec)?, threshold, false);
            all += info.entries() * ENTRY_BYTES as u64;
            device += info.entries() * target.device_bytes() as u64;
        }
        (device > 0).then(|| all as f64 / device as f64)
    }

    /// Returns how many workloads but HPGMG are within a tenth of the best ratio, and of how many.
    pub(super) fn near_best(&self) -> Option<(usize, usize)> {
        let others = self.subjects.iter().filter(|subject| subject.name != "hpgmg");
        let share = |profile: &Profile| {
            Some(self.outcome(profile, Policy::Allocation16x)?.ratio / profile.best_ratio?)
        };
        let shares: Vec<f64> = others.filter_map(|subject| share(subject.profile?)).collect();
        let near = shares.iter().filter(|share| **share >= 0.9).count();
        (!shares.is_empty()).then_some((near, shares.len()))
    }

    /// Returns the reading of BPC.
    pub(super) fn bpc(&self) -> &'static str {
        self.codec
    }

    /// Returns the mean ratio of a group with a codec: with eight sizes, or with the final design.
    /// Networks are those recorded with every codec.
    pub(super) fn codec(&self, group: Group, name: &str, eight: bool) -> Option<f64> {
        let subjects = if group == Group::Hpc { self.found.hpc() } else { self.found.dl() };
        let profile = |one: &Subject<'a>| match group {
            Group::Hpc => one.profile,
            Group::Dl => self.found.in_set(CPU, one.name),
        };
        let of = |one: &CodecOutcome| if eight { one.optimistic_ratio } else { Some(one.ratio) };
        geometric(subjects.iter().filter_map(|subject| {
            let outcome = profile(subject)?.codecs.iter().find(|one| one.codec == name)?;
            of(outcome)
        }))
    }

    /// Returns the ratios of eight sizes over the snapshots of a workload.
    pub(super) fn over_time(&self, name: &str) -> Option<Vec<f64>> {
        let known: Vec<f64> = self.profile(name)?.optimistic.iter().copied().flatten().collect();
        (!known.is_empty()).then_some(known)
    }

    /// Returns the median over the networks of the largest over the smallest ratio of snapshots.
    pub(super) fn spread_over_time(&self) -> Option<f64> {
        let spread = |profile: &Profile| {
            let known = profile.optimistic.iter().copied().flatten();
            let (least, most) = known.fold((f64::INFINITY, 0.0_f64), |(a, b), one| (a.min(one), b.max(one)));
            (most > 0.0).then(|| most / least)
        };
        let mut spreads: Vec<f64> = self.profiles(Group::Dl).filter_map(spread).collect();
        spreads.sort_by(f64::total_cmp);
        spreads.get(spreads.len() / 2).copied()
    }

    /// Returns the overflow of a workload in its smallest and largest snapshot, with fixed targets.
    pub(super) fn overflow_range(&self, name: &str) -> Option<(f64, f64)> {
        let shares = &self.outcome(self.profile(name)?, Policy::Allocation16x)?.overflow;
        let most = shares.iter().copied().reduce(f64::max)?;
        Some((shares.iter().copied().reduce(f64::min)?, most))
    }

    /// Returns the share of a page's entries in its most frequent class, the mean over workloads.
    pub(super) fn homogeneity(&self, group: Group) -> Option<f64> {
        arithmetic(self.profiles(group).filter_map(|profile| homogeneity(maps(profile))))
    }

    pub(super) fn homogeneity_of(&self, name: &str) -> Option<f64> {
        homogeneity(maps(self.profile(name)?))
    }

    /// Returns the share of the variance of pages' stored bytes that lies between allocations, the
    /// mean over the HPC programs.
    pub(super) fn explained_by_allocations(&self) -> Option<f64> {
        arithmetic(self.found.programs.values().filter_map(explained))
    }

    /// Returns the shares of equal classes at a distance of one entry, and at the best distance of
    /// 2 to 16 entries.
    pub(super) fn stripes(&self, name: &str) -> Option<(f64, f64, usize)> {
        let maps: Vec<&PageMap> = maps(self.profile(name)?).collect();
        let equal = |distance: usize| {
            let pairs = maps
                .iter()
                .flat_map(|map| map.rows())
                .flat_map(|row| row.iter().zip(row.iter().skip(distance)));
            let (same, all) =
                pairs.fold((0u64, 0u64), |(same, all), (a, b)| (same + u64::from(a == b), all + 1));
            (all > 0).then(|| same as f64 / all as f64)
        };
        let best = (2..=16).filter_map(|distance| Some((equal(distance)?, distance)));
        let (share, distance) = best.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some((equal(1)?, share, distance))
    }

    /// Returns the share of a workload's bytes with a target of at most 2x.
    pub(super) fn share_at_most_2x(&self, name: &str) -> Option<f64> {
        let profile = self.profile(name)?;
        let (mut all, mut low) = (0u64, 0u64);
        for (info, sizes) in profile.run.allocations.iter().zip(&profile.allocations) {
            let target = conservative_target(
                sizes.histograms.get(self.codec)?,
                buddy_profile::DEFAULT_THRESHOLD,
                false,
            );
            all += info.bytes;
            low += if target.device_bytes() >= Target::X2.device_bytes() { info.bytes } else { 0 };
        }
        (all > 0).then(|| low as f64 / all as f64)
    }

    /// Returns the recorded speed of a workload relative to the ideal GPU.
    pub(super) fn speed(&self, name: &str, mode: Mode, link: u32) -> Option<f64> {
        self.timings.speed(&Point::new(name, mode).link(link))
    }

    /// Returns the mean recorded speed of a group, or of all.
    pub(super) fn mean_speed(&self, group: Option<Group>, mode: Mode, link: u32) -> Option<f64> {
        let is_in = |one: &&Subject<'_>| group.is_none_or(|group| one.hpc == (group == Group::Hpc));
        let of = self.subjects.iter().filter(is_in);
        let speeds: Option<Vec<f64>> = of.map(|subject| self.speed(subject.name, mode, link)).collect();
        geometric(speeds?)
    }

    /// Returns the time more than the ideal GPU takes, negative for a gain.
    pub(super) fn slowdown(&self, name: &str, mode: Mode, link: u32) -> Option<f64> {
        self.speed(name, mode, link).map(|speed| 1.0 / speed - 1.0)
    }

    /// Returns the share of accesses that used the link.
    pub(super) fn link_accesses(&self, name: &str) -> Option<f64> {
        Some(self.timings.get(&Point::new(name, Mode::Buddy))?.buddy_accesses)
    }

    /// Returns the recorded metadata hit rates with everything compressed, in the order of the
    /// workloads, with the cache of the evaluated GPU.
    pub(super) fn metadata_hits(&self) -> Vec<(&'static str, f64)> {
        let all = compressed_caches();
        let rate = |subject: &Subject<'a>| {
            let is_own = |row: &&Row| row.program == subject.name && row.metadata == OWN_METADATA;
            Some((subject.name, all.iter().find(is_own)?.timing.metadata_hits))
        };
        self.subjects.iter().filter_map(rate).collect()
    }

    /// Returns the recorded time of each program at a capacity: with a mode over a link, relative to
    /// a GPU that holds everything. Pinned memory has one time at every capacity.
    pub(super) fn at_capacity(&self, mode: Mode, link: u32, capacity: f64) -> Vec<(String, f64)> {
        let is_it = |row: &AtCapacity| {
            (row.mode, row.link) == (mode, link)
                && (mode == Mode::Pinned || (row.capacity / capacity - 1.0).abs() < 1e-3)
        };
        at_capacity().into_iter().filter(is_it).map(|row| (row.program, row.time)).collect()
    }

    /// Returns our number of a quantity of another figure.
    fn quantity(&self, figure: Figure, name: &str) -> Option<f64> {
        figure.quantities.iter().find(|one| one.name.starts_with(name))?.ours
    }

    pub(super) fn simulator(&self, name: &str) -> Option<f64> {
        self.quantity(SimulatorSpeed.draw(self.found), name)
    }

    pub(super) fn larger_batch(&self, name: &str) -> Option<f64> {
        self.quantity(Speedup.draw(self.found), &format!("Gain of a larger batch, {name}"))
    }

    /// Returns the accuracy of training by batch size.
    pub(super) fn accuracy(&self) -> Option<Vec<AccuracySummary>> {
        self.found.accuracy.as_ref().map(Accuracy::summaries)
    }
}

/// Returns the largest ratio of any workload.
pub(super) fn largest_ratio(facts: &Facts<'_>) -> Option<f64> {
    let all = facts.profiles(Group::Hpc).chain(facts.profiles(Group::Dl));
    all.filter_map(|profile| Some(facts.outcome(profile, Policy::Allocation16x)?.ratio)).reduce(f64::max)
}

/// Returns the batch from which the memory of each network grows.
pub(super) fn transitions() -> Vec<(&'static str, u64)> {
    Network::all().iter().map(|network| (network.title, network.transition_batch())).collect()
}

/// Returns the gain from doubling the batch, the smallest and largest of all networks.
pub(super) fn doubling(batch: u64) -> Option<(f64, f64)> {
    let spec = Spec::named(TRAINING_GPU).ok()?;
    let gain = |network: &Network| {
        time(&spec, network, 2 * batch).throughput / time(&spec, network, batch).throughput - 1.0
    };
    let gains: Vec<f64> = Network::all().iter().map(gain).collect();
    Some((gains.iter().copied().reduce(f64::min)?, gains.iter().copied().reduce(f64::max)?))
}

/// Returns a network's throughput at a batch, as a share of that at 512.
pub(super) fn share_of_peak(batch: u64) -> Option<f64> {
    let spec = Spec::named(TRAINING_GPU).ok()?;
    let share =
        |network: &Network| time(&spec, network, batch).throughput / time(&spec, network, 512).throughput;
    geometric(Network::all().iter().map(share))
}

/// Returns the largest batch without compression on the paper's GPU.
pub(super) fn largest_batch(name: &str) -> Option<u64> {
    let projection: Projection = project(&Spec::named(TRAINING_GPU).ok()?, &Network::named(name).ok()?, 1.5)?;
    Some(projection.largest[0])
}

fn swept<'p>(profile: &'p Profile, codec: &str, threshold: f64) -> Option<&'p SweepPoint> {
    profile.sweep.iter().find(|point| point.codec == codec && (point.threshold - threshold).abs() < 1e-9)
}

fn maps(profile: &Profile) -> impl Iterator<Item = &PageMap> {
    profile.allocations.iter().filter_map(|allocation| allocation.pages.as_ref())
}

fn homogeneity<'a>(maps: impl Iterator<Item = &'a PageMap>) -> Option<f64> {
    let (mut most, mut all) = (0u64, 0u64);
    for row in maps.flat_map(PageMap::rows) {
        let mut counts = [0u64; 6];
        row.iter().for_each(|class| counts[class.index()] += 1);
        most += counts.into_iter().max().unwrap_or(0);
        all += row.len() as u64;
    }
    (all > 0).then(|| most as f64 / all as f64)
}

fn explained(program: &Program) -> Option<f64> {
    let mean = |row: &[SizeClass]| {
        row.iter().map(|class| class.bytes() as f64).sum::<f64>() / row.len().max(1) as f64
    };
    let pages: Vec<Vec<f64>> = program.classes.iter().map(|map| map.rows().map(mean).collect()).collect();
    let all: Vec<f64> = pages.iter().flatten().copied().collect();
    let middle = arithmetic(all.iter().copied())?;
    let total: f64 = all.iter().map(|one| (one - middle).powi(2)).sum();
    let between = |pages: &Vec<f64>| {
        arithmetic(pages.iter().copied()).map_or(0.0, |mean| pages.len() as f64 * (mean - middle).powi(2))
    };
    (total > 0.0).then(|| pages.iter().map(between).sum::<f64>() / total)
}
