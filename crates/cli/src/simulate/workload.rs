//! A workload as the model needs it: its kernels, and how its entries compress at each of its ten snapshots.
//!
//! The simulator calls no codec and knows no policy. Here the workload is run, its memory is looked at with the
//! codecs, and targets are chosen.

use anyhow::{Context, Result, bail};
use buddy_codec::{Codec, CodecKind, EntryCodec};
use buddy_core::{
    AllocationInfo, AllocationTarget, Entry, Histogram, Policy, Profile, RunInfo, SizeClass, SnapshotInfo,
    TARGETS_VERSION, Target, TargetTable, as_entries, is_zero, last_entry, optimistic_bytes,
};
use buddy_profile::{
    CodecChoice, DEFAULT_THRESHOLD, Measured, MeasuredAllocation, MeasuredCodec, Settings, profile,
    row_codec, sample,
};
use buddy_sim::{ClassMap, Classes};
use buddy_trace::Application;
use buddy_workloads::{Info, Workload, describe, run};
use rayon::prelude::*;

/// What is random in a workload is drawn from this seed.
const SEED: u64 = 1;

/// A workload that has been run and looked at.
pub(crate) struct Observed {
    /// Its kernels.
    pub(crate) application: Application,
    info: RunInfo,
    /// For each allocation, what it was looked at with; the codec that targets are chosen for comes first.
    allocations: Vec<ObservedAllocation>,
}

struct ObservedAllocation {
    codecs: Vec<Codec>,
    /// What was seen, by codec and snapshot.
    seen: Vec<Vec<Seen>>,
}

/// The classes of an allocation's entries, and how many there are of each.
#[derive(Clone, Default)]
struct Seen {
    classes: Vec<SizeClass>,
    histogram: Histogram,
}

impl Observed {
    /// A workload that was not run: enough where nothing is compressed.
    pub(crate) fn unseen(info: &Info, bytes: u64) -> Self {
        let workload = (info.build)(bytes, SEED);
        Self {
            application: workload.application(),
            info: describe(info, workload.as_ref(), SEED),
            allocations: Vec::new(),
        }
    }

    /// Runs a workload to its end and looks at every entry ten times, with `kind` and with the codecs that the
    /// tables name. A codec that learns is trained on the first look. `watch` is called after each of the run's steps.
    pub(crate) fn run(
        info: &Info,
        bytes: u64,
        kind: CodecKind,
        tables: &[&TargetTable],
        mut watch: impl FnMut(u64, u64),
    ) -> Result<Self> {
        let mut workload = (info.build)(bytes, SEED);
        let mut observed = Self {
            application: workload.application(),
            info: describe(info, workload.as_ref(), SEED),
            allocations: Vec::new(),
        };
        run(workload.as_mut(), |step, workload| {
            if step.look {
                observed.look(step.done, workload, kind, tables)?;
            }
            watch(step.done, step.of);
            anyhow::Ok(())
        })?;
        Ok(observed)
    }

    fn look(
        &mut self,
        step: u64,
        workload: &dyn Workload,
        kind: CodecKind,
        tables: &[&TargetTable],
    ) -> Result<()> {
        self.info.snapshots.push(SnapshotInfo { step, label: String::new(), file: None });
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
                seen.push(Seen::new(array.bytes, codec));
            }
        }
        Ok(())
    }

    /// How many times the memory was looked at.
    pub(crate) fn snapshots(&self) -> usize {
        self.info.snapshots.len()
    }

    /// What targets the paper's final design gives, from all snapshots.
    pub(crate) fn profile(&self) -> Result<Profile> {
        let measured = |allocation: &ObservedAllocation| MeasuredAllocation {
            codecs: vec![MeasuredCodec {
                kind: allocation.codecs[0].kind(),
                codec: Some(allocation.codecs[0].clone()),
                histograms: allocation.seen[0].iter().map(|seen| seen.histogram).collect(),
                pages: None,
            }],
            auto: 0,
            map: None,
        };
        let allocations = self.allocations.iter().map(measured).collect();
        let measured = Measured { run: self.info.clone(), allocations, auto: false };
        let kind = self.allocations.first().context("the workload has no arrays")?.codecs[0].kind();
        let settings = Settings {
            threshold: DEFAULT_THRESHOLD,
            policy: Policy::Allocation16x,
            codec: CodecChoice::Fixed(kind),
            plan: None,
        };
        Ok(profile(&measured, &settings)?.0)
    }

    /// One target for everything.
    pub(crate) fn all(&self, target: Target, kind: CodecKind) -> TargetTable {
        one_target(&self.info.program, &self.info.allocations, target, kind)
    }

    /// The map of one snapshot with these targets; without any, of plain device memory.
    pub(crate) fn map(&self, table: Option<&TargetTable>, snapshot: usize) -> Result<ClassMap> {
        let classes = &mut |index: usize, info: &AllocationInfo| {
            let Some(allocation) = self.allocations.get(index) else {
                return Classes::Uniform(SizeClass::Raw);
            };
            let row = table.and_then(|table| table.get(&info.name));
            let codec = row.map_or(0, |row| allocation.find(row));
            Classes::Each(allocation.seen[codec][snapshot].classes.clone())
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

impl Seen {
    fn new(bytes: &[u8], codec: &Codec) -> Self {
        let (entries, tail) = as_entries(bytes);
        let last = last_entry(tail);
        let size = |entry: &Entry| {
            let zero = is_zero(entry);
            (codec.class(entry), optimistic_bytes(codec.size_bits(entry), zero) as u8)
        };
        let mut sizes = Vec::with_capacity(entries.len() + 1);
        entries.par_iter().with_min_len(1024).map(size).collect_into_vec(&mut sizes);
        sizes.extend(last.iter().map(size));
        let mut histogram = Histogram::default();
        sizes.iter().for_each(|(class, bytes)| histogram.add(*class, usize::from(*bytes)));
        Self { classes: sizes.into_iter().map(|(class, _)| class).collect(), histogram }
    }
}

/// A table with one target for all allocations.
pub(crate) fn one_target(
    program: &str,
    allocations: &[AllocationInfo],
    target: Target,
    kind: CodecKind,
) -> TargetTable {
    let row = |info: &AllocationInfo| AllocationTarget {
        name: info.name.clone(),
        call_site: info.call_site.clone(),
        bytes: info.bytes,
        codec: kind.name().to_owned(),
        parameters: Default::default(),
        target: Some(target),
        ranges: Vec::new(),
    };
    let allocations = allocations.iter().map(row).collect();
    TargetTable { version: TARGETS_VERSION, program: program.to_owned(), allocations }
}

/// Checks that a table is for this workload.
pub(crate) fn check_program(table: &TargetTable, info: &Info) -> Result<()> {
    if table.program != info.name {
        bail!("the targets are for {}, not for {}", table.program, info.name);
    }
    Ok(())
}
