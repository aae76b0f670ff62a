//! A program ready to be simulated: its work, and the compressibility of its memory.

use buddy_codec::{Codec, CodecKind};
use buddy_core::{PageMap, SizeClass, Target, Targets};
use buddy_profile::{
    CodecChoice, DEFAULT_THRESHOLD, Measured, MeasuredAllocation, Settings, Tried, policy_targets, profile,
    row_codec,
};
use buddy_record::{AllocationInfo, AllocationTarget, Policy, Profile, RunRecord, TargetTable};
use buddy_sim::{ClassMap, Classes, Mode, Simulator, uniform_map};
use buddy_trace::{Application, Item, open_kernel};

use crate::{
    Error, Observed, TargetChoice,
    forced::{Counted, count, forced_targets},
    imposed::{Own, impose},
    targets::addressed,
    typical,
};

/// A program and its memory. It can run any number of times, each from the start, on several
/// threads.
pub struct Stage {
    work: Work,
    memory: Memory,
    /// The codec that a ratio applies to.
    kind: CodecKind,
    /// Snapshot of its run, which selects the changes of a targets file; `None` without a run.
    snapshot: Option<usize>,
}

/// Work of a program.
pub(crate) enum Work {
    Application(Application),
    Trace { name: String, items: Vec<Item> },
}

/// Compressibility of a program's memory.
pub(crate) enum Memory {
    /// Unknown: all entries are raw.
    Unknown,
    /// Class of every entry of each allocation with each measured codec, and the targets.
    Seen { allocations: Vec<Vec<(Codec, PageMap)>>, rule: Rule },
    /// Share of each class in each allocation, and the targets.
    Shares { shares: Vec<[f64; 6]>, rule: Rule },
    /// Unnamed ranges as base and length, all with the same share of each class.
    Ranges { ranges: Vec<(u64, u64)>, shares: [f64; 6] },
}

/// Source of targets that are neither a ratio nor from a file.
pub(crate) struct Rule {
    /// Targets of the paper's final design.
    pub(crate) usual: TargetTable,
    /// Measurements for other policies and thresholds; `None` if not kept.
    pub(crate) measured: Option<Measured>,
}

impl Rule {
    fn table(
        &self,
        program: &str,
        kind: CodecKind,
        policy: Policy,
        threshold: f64,
    ) -> Result<TargetTable, Error> {
        let wrong = |source| Error::Profile { program: program.to_owned(), source };
        let lost = || {
            Error::Setting(format!("the sizes of {program} were not kept, so no other policy can be applied"))
        };
        let measured = self.measured.as_ref().ok_or_else(lost)?;
        let settings =
            Settings { threshold, policy, codec: CodecChoice::Fixed(kind), plan: None, link: None };
        policy_targets(measured, &settings).map_err(wrong)
    }
}

impl Memory {
    /// Returns the class counts of an allocation on the device.
    fn counts(&self, index: usize, info: &AllocationInfo) -> [u64; 6] {
        match self {
            Self::Seen { allocations, .. } => {
                let entries = allocations[index][0].1.classes().iter().take(info.entries() as usize);
                count(entries.copied())
            }
            Self::Shares { shares, .. } => {
                let mut counts = shares[index].map(|share| (share * info.entries() as f64) as u64);
                counts[5] += info.entries().saturating_sub(counts.iter().sum());
                counts
            }
            Self::Unknown | Self::Ranges { .. } => [0, 0, 0, 0, 0, info.entries()],
        }
    }

    /// Returns the size classes of an allocation as measured with its first codec.
    fn own(&self, index: usize) -> Own<'_> {
        match self {
            Self::Seen { allocations, .. } => Own::Each(allocations[index][0].1.classes()),
            Self::Shares { shares, .. } => Own::Shares(shares[index]),
            Self::Unknown | Self::Ranges { .. } => Own::Each(&[]),
        }
    }
}

/// Replaces uncompressed memory by memory at 1x.
fn compressed(table: &TargetTable) -> TargetTable {
    let set = |target: &mut Target| {
        if *target == Target::Uncompressed {
            *target = Target::X1;
        }
    };
    let mut table = table.clone();
    for row in &mut table.allocations {
        match &mut row.targets {
            Targets::Uniform(target) => set(target),
            Targets::Pages(ranges) => ranges.iter_mut().for_each(|range| set(&mut range.target)),
        }
    }
    table
}

impl Stage {
    pub(crate) fn new(work: Work, memory: Memory, kind: CodecKind) -> Self {
        Self { work, memory, kind, snapshot: None }
    }

    fn at(self, snapshot: usize) -> Self {
        Self { snapshot: Some(snapshot), ..self }
    }

    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Prepares a workload without its data, for modes that do not compress.
    pub fn unseen(application: Application) -> Self {
        Self::new(Work::Application(application), Memory::Unknown, CodecKind::Bpc)
    }

    /// Prepares a workload at one snapshot of its run, with every codec whose entries were kept.
    pub fn observed(application: Application, observed: &Observed, snapshot: usize) -> Self {
        let kind = observed.measured.allocations.first().map_or(CodecKind::Bpc, |one| one.codecs[0].kind);
        let usual = observed.profile.targets.clone();
        // A stage applies policies with the first codec only.
        let mut measured = observed.measured.clone();
        measured.drop_blocks();
        let rule = Rule { usual, measured: Some(measured) };
        let memory = Memory::Seen { allocations: observed.by_codec(snapshot), rule };
        Self::new(Work::Application(application), memory, kind).at(snapshot)
    }

    /// Prepares a workload from the record of its run, at a snapshot or the typical one.
    ///
    /// # Errors
    /// A record without sizes of this codec, or without the classes of the snapshot.
    pub fn of_run(
        application: Application,
        record: &RunRecord,
        kind: CodecKind,
        snapshot: Option<usize>,
    ) -> Result<Self, Error> {
        let program = &record.run.program;
        let wrong = |source| Error::Profile { program: program.clone(), source };
        let tried = Tried { kinds: vec![kind], auto: false, threshold: DEFAULT_THRESHOLD };
        let measured = Measured::from_record(record, &tried).map_err(wrong)?;
        let (profile, _) = profile(&measured, &Settings::final_design(kind)).map_err(wrong)?;
        let snapshot = snapshot.unwrap_or_else(|| typical(&profile));
        let lost =
            || Error::Setting(format!("the classes of snapshot {snapshot} of {program} were not kept"));
        let map = |allocation: &MeasuredAllocation| {
            let codec = &allocation.codecs[allocation.find(kind)?];
            Some(vec![(kind.train(&[]), codec.maps.get(snapshot)?.clone()?)])
        };
        let allocations = measured.allocations.iter().map(map).collect::<Option<_>>().ok_or_else(lost)?;
        let memory =
            Memory::Seen { allocations, rule: Rule { usual: profile.targets, measured: Some(measured) } };
        Ok(Self::new(Work::Application(application), memory, kind).at(snapshot))
    }

    /// Prepares a workload from the classes of its entries with the paper's codec.
    pub fn of_classes(application: Application, classes: &[PageMap], profile: &Profile) -> Self {
        let codec = CodecKind::Bpc.train(&[]);
        let allocations = classes.iter().map(|map| vec![(codec.clone(), map.clone())]).collect();
        let rule = Rule { usual: profile.targets.clone(), measured: None };
        let memory = Memory::Seen { allocations, rule };
        Self::new(Work::Application(application), memory, CodecKind::Bpc)
    }

    /// Returns the lines of a trace's list that are neither copies nor kernels; they take no time.
    pub fn left_out(&self) -> Vec<&str> {
        let Work::Trace { items, .. } = &self.work else { return Vec::new() };
        let lines =
            items.iter().filter_map(|item| if let Item::Other(line) = item { Some(line) } else { None });
        lines.map(String::as_str).collect()
    }

    /// Returns its name, and the bytes of its allocations if they are named.
    pub fn about(&self) -> (&str, Option<u64>) {
        match &self.work {
            Work::Application(application) => {
                let sizes = application.allocations.iter().map(|allocation| allocation.bytes);
                (&application.name, (!application.allocations.is_empty()).then(|| sizes.sum()))
            }
            Work::Trace { name, .. } => (name, None),
        }
    }

    /// Returns the map of its memory with these targets.
    ///
    /// # Errors
    /// Targets for another program or other allocations, or missing in a compressed mode.
    pub fn map(&self, targets: &TargetChoice, mode: Mode) -> Result<ClassMap, Error> {
        match (&self.work, &self.memory) {
            (_, Memory::Ranges { ranges, shares }) => by_address(ranges, *shares, targets, mode),
            (Work::Application(application), memory) => self.by_name(application, memory, targets),
            (Work::Trace { .. }, _) => Ok(ClassMap::default()),
        }
    }

    /// Returns the table of a file as of the snapshot.
    fn table(&self, targets: &TargetChoice, name: &str) -> Result<Option<TargetTable>, Error> {
        let table = targets.table(name)?;
        Ok(table.map(|table| self.snapshot.map_or_else(|| table.clone(), |snapshot| table.at(snapshot))))
    }

    /// Returns the stored bytes that target changes copy at the snapshot, in mode buddy.
    pub(crate) fn changed_bytes(&self, targets: &TargetChoice, mode: Mode) -> Result<u64, Error> {
        let (Work::Application(application), Some(_)) = (&self.work, self.snapshot) else { return Ok(0) };
        let table = if mode == Mode::Buddy { self.table(targets, &application.name)? } else { None };
        Ok(table.map_or(0, |table| table.changes.iter().map(|change| change.bytes_moved).sum()))
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
            TargetChoice::Rule { policy, threshold } => match memory {
                Memory::Seen { rule, .. } | Memory::Shares { rule, .. } => {
                    Some(rule.table(name, self.kind, *policy, *threshold)?)
                }
                _ => None,
            },
            TargetChoice::Compressed => match memory {
                Memory::Seen { rule, .. } | Memory::Shares { rule, .. } => Some(compressed(&rule.usual)),
                _ => None,
            },
            TargetChoice::Capacity(capacity) => Some(self.forced(application, memory, *capacity)?),
            TargetChoice::Imposed(imposed) => {
                return Ok(ClassMap::new(impose(application, |index| memory.own(index), imposed))?);
            }
            TargetChoice::Table(table) => Some((**table).clone()),
            TargetChoice::All(target) => {
                Some(TargetTable::uniform(name, allocations, *target, self.kind.name()))
            }
            TargetChoice::File(path) if matches!(memory, Memory::Shares { .. }) => {
                let why = "targets of a network are a ratio or the policy's".to_owned();
                return Err(Error::Targets { path: path.clone(), why });
            }
            TargetChoice::File(path) => {
                let table = self.table(targets, name)?;
                self.check_codecs(application, table.as_ref())
                    .map_err(|why| Error::Targets { path: path.clone(), why })?;
                table
            }
        };
        let table = chosen.as_ref().or(match memory {
            Memory::Seen { rule, .. } | Memory::Shares { rule, .. } => Some(&rule.usual),
            _ => None,
        });
        let classes = &mut |index: usize, info: &AllocationInfo| match memory {
            Memory::Seen { allocations, .. } => {
                let row = table.and_then(|table| table.get(&info.name));
                let (_, map) =
                    &allocations[index][row.and_then(|row| find(&allocations[index], row)).unwrap_or(0)];
                Classes::each(map.classes().clone())
            }
            Memory::Shares { shares, .. } => Classes::Shares { shares: shares[index], seed: index as u64 },
            Memory::Unknown | Memory::Ranges { .. } => Classes::Uniform(SizeClass::Raw),
        };
        Ok(ClassMap::bind(application, table, classes)?)
    }

    /// Returns the targets that reach a capacity; host memory does not count.
    fn forced(
        &self,
        application: &Application,
        memory: &Memory,
        capacity: f64,
    ) -> Result<TargetTable, Error> {
        let all = application.allocations.iter().enumerate();
        let on_device = all.filter(|(_, info)| info.bytes > 0 && !application.host.contains(&info.name));
        let counted = on_device
            .map(|(index, info)| Counted { info, classes: memory.counts(index, info) })
            .collect::<Vec<_>>();
        forced_targets(&application.name, self.kind.name(), &counted, capacity).map_err(Error::Setting)
    }

    /// Checks that the memory was measured with every codec in the table; sizes of another codec
    /// would give a different simulation.
    fn check_codecs(&self, application: &Application, table: Option<&TargetTable>) -> Result<(), String> {
        let (Memory::Seen { allocations, .. }, Some(table)) = (&self.memory, table) else { return Ok(()) };
        for (info, seen) in application.allocations.iter().zip(allocations) {
            let unseen = |row: &&AllocationTarget| find(seen, row).is_none();
            if let Some(AllocationTarget { name, codec, parameters, .. }) =
                table.get(&info.name).filter(unseen)
            {
                let own = if parameters.is_empty() { "" } else { " with parameters of its own" };
                return Err(format!(
                    "{name} has the codec {codec}{own}, but {}'s memory was measured with {}; give codec = \"{codec}\" for \
                     files without parameters, or use `buddy simulate`",
                    application.name,
                    self.kind.name(),
                ));
            }
        }
        Ok(())
    }

    /// Returns the rows of a targets file that matched nothing in a run.
    pub(crate) fn unmatched(&self, targets: &TargetChoice, simulator: &Simulator) -> Vec<String> {
        match (targets, &self.memory, &self.work) {
            (TargetChoice::File(_), Memory::Ranges { .. }, _) => {
                let row = |&(base, bytes): &(u64, u64)| format!("{base:#x} ({bytes} bytes)");
                simulator.untouched().iter().map(row).collect()
            }
            (_, _, Work::Application(application)) => {
                let known = |name: &str| application.allocations.iter().any(|info| info.name == name);
                let rows = targets.table(&application.name).ok().flatten().map(|table| table.allocations);
                let names = rows.into_iter().flatten().map(|row| row.name);
                names.filter(|name| !known(name)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Runs the program; returns false if `keep_on` ended it early.
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
                Item::Kernel(path) => simulator.run(open_kernel(path)?.as_mut(), keep_on)?,
                Item::Other(_) => {}
            }
            if !keep_on(simulator) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the map of unnamed memory.
fn by_address(
    ranges: &[(u64, u64)],
    shares: [f64; 6],
    targets: &TargetChoice,
    mode: Mode,
) -> Result<ClassMap, Error> {
    let target = match targets {
        TargetChoice::All(target) => *target,
        TargetChoice::File(path) => return Ok(ClassMap::new(addressed(path)?)?),
        TargetChoice::Rule { .. }
        | TargetChoice::Compressed
        | TargetChoice::Capacity(_)
        | TargetChoice::Imposed(_)
        | TargetChoice::Table(_) => {
            let why = "a policy needs a program with known data: a workload or a network";
            return Err(Error::Setting(why.to_owned()));
        }
        TargetChoice::Policy if mode.compresses() => {
            let why = format!("mode {} needs targets: a ratio such as 2x, or a file", mode.name());
            return Err(Error::Setting(why));
        }
        TargetChoice::Policy => Target::X1,
    };
    Ok(uniform_map(target, shares, ranges)?)
}

/// Returns the index of a row's codec: the one with its parameters, or the one of its kind if it
/// has none.
fn find(seen: &[(Codec, PageMap)], row: &AllocationTarget) -> Option<usize> {
    let own = if row.parameters.is_empty() { None } else { row_codec(row, Vec::new).ok() };
    let same = |codec: &Codec| own.as_ref().map_or(codec.kind().name() == row.codec, |own| own == codec);
    seen.iter().position(|(codec, _)| same(codec))
}
