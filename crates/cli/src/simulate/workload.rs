//! A workload as the model needs it: its kernels, and how its entries compress at each of its ten snapshots.
//!
//! The simulator calls no codec and knows no policy. Here the workload is run, its memory is looked at with the
//! codecs, and targets are chosen.

use anyhow::{Result, bail};
use buddy_codec::{Codec, CodecKind};
use buddy_core::{
    AllocationInfo, AllocationTarget, PageMap, Profile, SizeClass, SnapshotInfo, Target, TargetTable,
};
use buddy_profile::{DEFAULT_THRESHOLD, Settings, Tried, Watcher, page_map, profile, row_codec, sample};
use buddy_sim::{ClassMap, Classes};
use buddy_study::classes;
use buddy_trace::Application;
use buddy_workloads::{Info, Workload, describe, run};

/// What is random in a workload is drawn from this seed.
const SEED: u64 = 1;

/// A workload, and what was seen of its memory if it was run.
pub(crate) struct Observed {
    /// Its kernels.
    pub(crate) application: Application,
    /// For each allocation, what it was looked at with; the codec that targets are chosen for comes first.
    allocations: Vec<ObservedAllocation>,
}

struct ObservedAllocation {
    codecs: Vec<Codec>,
    /// The class of every entry, by codec and snapshot.
    seen: Vec<Vec<PageMap>>,
}

impl Observed {
    /// A workload that was not run: enough where nothing is compressed.
    pub(crate) fn unseen(info: &Info, bytes: u64) -> Self {
        Self { application: (info.build)(bytes, SEED).application(), allocations: Vec::new() }
    }

    /// Runs a workload to its end and looks at every entry ten times, with `kind` and with the codecs that the
    /// tables name. A codec that learns is trained on the first look. `watch` is called after each of the run's steps.
    /// Beside it comes what targets the paper's final design gives, from all snapshots.
    pub(crate) fn run(
        info: &Info,
        bytes: u64,
        kind: CodecKind,
        tables: &[&TargetTable],
        mut watch: impl FnMut(u64, u64),
    ) -> Result<(Self, Profile)> {
        let mut workload = (info.build)(bytes, SEED);
        let tried = Tried { kinds: vec![kind], auto: false, threshold: DEFAULT_THRESHOLD };
        let mut watcher = Watcher::new(describe(info, workload.as_ref(), SEED), tried);
        let mut observed = Self { application: workload.application(), allocations: Vec::new() };
        run(workload.as_mut(), |step, workload| {
            if step.look {
                let arrays: Vec<&[u8]> = workload.allocations().iter().map(|array| array.bytes).collect();
                let snapshot = SnapshotInfo { step: step.done, label: String::new(), file: None };
                watcher.add(snapshot, &arrays, &|_| ());
                observed.look(workload, kind, tables)?;
            }
            watch(step.done, step.of);
            anyhow::Ok(())
        })?;
        let (profile, _) = profile(&watcher.finish(), &Settings::final_design(kind))?;
        Ok((observed, profile))
    }

    fn look(&mut self, workload: &dyn Workload, kind: CodecKind, tables: &[&TargetTable]) -> Result<()> {
        let arrays = workload.allocations();
        if self.allocations.is_empty() {
            let trained = arrays.iter().map(|array| {
                let codecs = codecs_for(&array.name, array.bytes, kind, tables)?;
                Ok(ObservedAllocation { seen: vec![Vec::new(); codecs.len()], codecs })
            });
            self.allocations = trained.collect::<Result<_>>()?;
        }
        for (allocation, array) in self.allocations.iter_mut().zip(&arrays) {
            for (codec, seen) in allocation.codecs.iter().zip(&mut allocation.seen) {
                seen.push(page_map(&array.bytes, codec, usize::MAX));
            }
        }
        Ok(())
    }

    /// One target for everything.
    pub(crate) fn all(&self, target: Target, kind: CodecKind) -> TargetTable {
        let Application { name, allocations, .. } = &self.application;
        TargetTable::uniform(name, allocations, target, kind.name())
    }

    /// The map of one snapshot with these targets; without any, of plain device memory.
    pub(crate) fn map(&self, table: Option<&TargetTable>, snapshot: usize) -> Result<ClassMap> {
        let classes = &mut |index: usize, info: &AllocationInfo| {
            let Some(allocation) = self.allocations.get(index) else {
                return Classes::Uniform(SizeClass::Raw);
            };
            let row = table.and_then(|table| table.get(&info.name));
            let codec = row.map_or(0, |row| allocation.find(row));
            classes(&allocation.seen[codec][snapshot])
        };
        Ok(ClassMap::bind(&self.application, table, classes)?)
    }
}

impl ObservedAllocation {
    /// Which codec is a row's: that with its parameters, or where it has none the one of its kind.
    fn find(&self, row: &AllocationTarget) -> usize {
        let own = if row.parameters.is_empty() { None } else { row_codec(row, Vec::new).ok() };
        let same = |codec: &Codec| own.as_ref().map_or(codec.kind().name() == row.codec, |own| own == codec);
        self.codecs.iter().position(same).unwrap_or(0)
    }
}

/// What an allocation is looked at with.
fn codecs_for(name: &str, bytes: &[u8], kind: CodecKind, tables: &[&TargetTable]) -> Result<Vec<Codec>> {
    let mut codecs = vec![kind.train(&if kind.learns() { sample(&bytes) } else { Vec::new() })];
    for row in tables.iter().filter_map(|table| table.get(name)) {
        let codec = row_codec(row, || sample(&bytes))?;
        if !codecs.contains(&codec) {
            codecs.push(codec);
        }
    }
    Ok(codecs)
}

/// Checks that a table is for this workload.
pub(crate) fn check_program(table: &TargetTable, info: &Info) -> Result<()> {
    if table.program != info.name {
        bail!("the targets are for {}, not for {}", table.program, info.name);
    }
    Ok(())
}
