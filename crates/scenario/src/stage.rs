//! A program that is ready to be simulated: what it does, and how its memory compresses.

use buddy_codec::{Codec, CodecKind};
use buddy_core::{AllocationInfo, AllocationTarget, PageMap, Profile, SizeClass, Target, TargetTable};
use buddy_profile::row_codec;
use buddy_sim::{ClassMap, Classes, Mode, Simulator, TargetsAll};
use buddy_trace::{Application, Item, accel::Reader};

use crate::{Error, Observed, TargetChoice, targets::addressed};

/// A program and its memory. It can be run any number of times, each from its start, on several threads at once.
pub struct Stage {
    work: Work,
    memory: Memory,
    /// The codec that ratios are for.
    kind: CodecKind,
}

/// What a program does.
pub(crate) enum Work {
    Application(Application),
    Trace { name: String, items: Vec<Item> },
}

/// How the memory of a program compresses.
pub(crate) enum Memory {
    /// Nothing is known: all of it is raw.
    Unknown,
    /// The class of every entry of each allocation, with each codec that it was looked at with, and the policy's targets.
    Seen { allocations: Vec<Vec<(Codec, PageMap)>>, policy: TargetTable },
    /// The share of each class in each allocation, and the policy's targets.
    Shares { shares: Vec<[f64; 6]>, policy: TargetTable },
    /// Addresses and lengths without names, all with the same share of each class.
    Ranges { ranges: Vec<(u64, u64)>, shares: [f64; 6] },
}

impl Stage {
    pub(crate) fn new(work: Work, memory: Memory, kind: CodecKind) -> Self {
        Self { work, memory, kind }
    }

    /// A workload whose memory was not looked at: enough where nothing is compressed.
    pub fn unseen(application: Application) -> Self {
        Self::new(Work::Application(application), Memory::Unknown, CodecKind::Bpc)
    }

    /// A workload at one snapshot of its run, with every codec whose entries were kept.
    pub fn observed(application: Application, observed: &Observed, snapshot: usize) -> Self {
        let kind = observed.measured.allocations.first().map_or(CodecKind::Bpc, |one| one.codecs[0].kind);
        let policy = observed.profile.targets.clone();
        let memory = Memory::Seen { allocations: observed.by_codec(snapshot), policy };
        Self::new(Work::Application(application), memory, kind)
    }

    /// A workload whose classes were kept: of every entry of each allocation, with the paper's codec.
    pub fn of_classes(application: Application, classes: &[PageMap], profile: &Profile) -> Self {
        let codec = CodecKind::Bpc.train(&[]);
        let allocations = classes.iter().map(|map| vec![(codec.clone(), map.clone())]).collect();
        let memory = Memory::Seen { allocations, policy: profile.targets.clone() };
        Self::new(Work::Application(application), memory, CodecKind::Bpc)
    }

    /// Its name, and where its allocations have names their bytes.
    pub fn about(&self) -> (&str, Option<u64>) {
        match &self.work {
            Work::Application(application) => {
                let sizes = application.allocations.iter().map(|allocation| allocation.bytes);
                (&application.name, (!application.allocations.is_empty()).then(|| sizes.sum()))
            }
            Work::Trace { name, .. } => (name, None),
        }
    }

    /// The map of its memory with these targets.
    ///
    /// # Errors
    /// Targets that are for another program or other allocations, or that a compressed mode lacks.
    pub fn map(&self, targets: &TargetChoice, mode: Mode) -> Result<ClassMap, Error> {
        match (&self.work, &self.memory) {
            (_, Memory::Ranges { ranges, shares }) => by_address(ranges, *shares, targets, mode),
            (Work::Application(application), memory) => self.by_name(application, memory, targets),
            (Work::Trace { .. }, _) => Ok(ClassMap::default()),
        }
    }

    fn by_name(
        &self,
        application: &Application,
        memory: &Memory,
        targets: &TargetChoice,
    ) -> Result<ClassMap, Error> {
        let Application { name, allocations, .. } = application;
        let chosen = match targets {
            TargetChoice::Policy => None,
            TargetChoice::All(target) => {
                Some(TargetTable::uniform(name, allocations, *target, self.kind.name()))
            }
            TargetChoice::File(path) if matches!(memory, Memory::Shares { .. }) => {
                let why = "targets of a network are a ratio or the policy's".to_owned();
                return Err(Error::Targets { path: path.clone(), why });
            }
            TargetChoice::File(_) => targets.table(name)?,
        };
        let table = chosen.as_ref().or(match memory {
            Memory::Seen { policy, .. } | Memory::Shares { policy, .. } => Some(policy),
            _ => None,
        });
        let classes = &mut |index: usize, info: &AllocationInfo| match memory {
            Memory::Seen { allocations, .. } => {
                let row = table.and_then(|table| table.get(&info.name));
                let (_, map) = &allocations[index][row.map_or(0, |row| find(&allocations[index], row))];
                Classes::each(map.classes().clone())
            }
            Memory::Shares { shares, .. } => Classes::Shares { shares: shares[index], seed: index as u64 },
            Memory::Unknown | Memory::Ranges { .. } => Classes::Uniform(SizeClass::Raw),
        };
        Ok(ClassMap::bind(application, table, classes)?)
    }

    /// Runs all of it; `false` if `keep_on` ended it early.
    pub(crate) fn run(
        &self,
        simulator: &mut Simulator,
        keep_on: &mut dyn FnMut(&Simulator) -> bool,
    ) -> Result<bool, Error> {
        let items = match &self.work {
            Work::Application(application) => return Ok(simulator.run_application(application, keep_on)?),
            Work::Trace { items, .. } => items,
        };
        for item in items {
            match item {
                Item::Copy { bytes, .. } => simulator.copy(*bytes),
                Item::Kernel(path) => simulator.run(&mut Reader::open(path)?, keep_on)?,
            }
            if !keep_on(simulator) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The map of memory without names.
fn by_address(
    ranges: &[(u64, u64)],
    shares: [f64; 6],
    targets: &TargetChoice,
    mode: Mode,
) -> Result<ClassMap, Error> {
    let target = match targets {
        TargetChoice::All(target) => *target,
        TargetChoice::File(path) => return Ok(ClassMap::new(addressed(path)?)?),
        TargetChoice::Policy if matches!(mode, Mode::Bandwidth | Mode::Buddy) => {
            let why = format!("mode {} needs targets: a ratio such as 2x, or a file", mode.name());
            return Err(Error::Setting(why));
        }
        TargetChoice::Policy => Target::X1,
    };
    Ok(TargetsAll { target, shares }.map(ranges)?)
}

/// Which codec is a row's: that with its parameters, or where it has none the one of its kind.
fn find(seen: &[(Codec, PageMap)], row: &AllocationTarget) -> usize {
    let own = if row.parameters.is_empty() { None } else { row_codec(row, Vec::new).ok() };
    let same = |codec: &Codec| own.as_ref().map_or(codec.kind().name() == row.codec, |own| own == codec);
    seen.iter().position(|(codec, _)| same(codec)).unwrap_or(0)
}
