//! A workload that is run and looked at ten times: the memory of the paper's HPC programs.

use buddy_codec::{Codec, CodecKind};
use buddy_core::{PageMap, Profile, SnapshotInfo, TargetTable};
use buddy_profile::{Measured, Observer, Rows, Settings, Tried, profile, row_codec, sample};
use buddy_workloads::{Allocation, Check, Info, Step, Workload, describe, run};

use crate::Error;

/// Which workload, and what it is looked at with.
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    /// The workload, from the list of all of them.
    pub info: &'a Info,
    /// Bytes of all its arrays together, about.
    pub bytes: u64,
    /// Seed of whatever is random in it.
    pub seed: u64,
    /// The codecs; targets are chosen for the first, and of it the class of every entry is kept.
    pub tried: Tried,
    /// Tables whose codecs it is looked at with too, entry by entry.
    pub tables: &'a [TargetTable],
    /// The only snapshot whose entries are needed, if that is known; otherwise those of all ten are kept.
    pub snapshot: Option<usize>,
}

/// What was seen of a workload that ran to its end.
#[derive(Debug)]
pub struct Observed {
    /// What it compared of its answer.
    pub checks: Vec<Check>,
    /// Its memory at ten times.
    pub measured: Measured,
    /// What the paper's final design makes of it, with the first codec.
    pub profile: Profile,
}

/// Runs a workload to its end and looks at its memory after every tenth. A codec that learns is trained on the first
/// look, since what comes later is not known yet. `goes_on` is asked after every step.
///
/// # Errors
/// [`Error::Interrupted`] once `goes_on` says no, or what the tables or the profiler refuse.
pub fn observe(ask: &Ask<'_>, mut goes_on: impl FnMut(Step) -> bool) -> Result<Observed, Error> {
    let mut workload = (ask.info.build)(ask.bytes, ask.seed);
    let described = describe(ask.info, workload.as_ref(), ask.seed);
    let mut observer = None;
    let mut looks = 0;
    let checks = run(workload.as_mut(), |step, workload| {
        if step.look {
            let observer = match &mut observer {
                Some(observer) => observer,
                none => none.insert(Observer::new(described.clone(), ask.codecs(workload)?)),
            };
            let arrays: Vec<&[u8]> = workload.allocations().iter().map(|array| array.bytes).collect();
            let snapshot = SnapshotInfo { step: step.done, label: String::new(), file: None };
            observer.add(snapshot, &arrays, ask.rows(looks), &|_| ());
            looks += 1;
        }
        if goes_on(step) { Ok(()) } else { Err(Error::Interrupted) }
    })?;
    let Tried { threshold, auto, .. } = ask.tried;
    let observer = observer.expect("a run has at least ten steps, and a look after every tenth");
    let mut measured = observer.finish(threshold, auto);
    measured.drop_blocks();
    let kind = ask.tried.kinds[0];
    let (profile, _) = profile(&measured, &Settings::final_design(kind)).map_err(|error| ask.wrong(error))?;
    Ok(Observed { checks, measured, profile })
}

impl Ask<'_> {
    /// What every allocation is looked at with.
    fn codecs(&self, workload: &dyn Workload) -> Result<Vec<Vec<Codec>>, Error> {
        let kinds = self.tried.all_kinds();
        workload.allocations().iter().map(|array| self.codecs_of(array, &kinds)).collect()
    }

    fn codecs_of(&self, array: &Allocation<'_>, kinds: &[CodecKind]) -> Result<Vec<Codec>, Error> {
        let sample = sample(&array.bytes);
        let mut codecs: Vec<Codec> = kinds.iter().map(|kind| kind.train(&sample)).collect();
        for row in self.tables.iter().filter_map(|table| table.get(&array.name)) {
            let codec = row_codec(row, || sample.clone()).map_err(|error| self.wrong(error))?;
            if !codecs.contains(&codec) {
                codecs.push(codec);
            }
        }
        Ok(codecs)
    }

    /// What is kept entry by entry of a snapshot.
    fn rows(&self, snapshot: usize) -> Rows {
        match (self.snapshot, self.tables) {
            (Some(only), _) if only != snapshot => Rows::NONE,
            (_, []) => Rows::EVERY,
            _ => Rows::EVERY.with_every_codec(),
        }
    }

    fn wrong(&self, source: buddy_profile::Error) -> Error {
        Error::Profile { program: self.info.name.to_owned(), source }
    }
}

impl Observed {
    /// The class of every entry in a snapshot, for each allocation, with the first codec.
    ///
    /// # Panics
    /// If that snapshot was not kept.
    pub fn classes(&self, snapshot: usize) -> Vec<PageMap> {
        self.by_codec(snapshot).into_iter().map(|mut codecs| codecs.swap_remove(0).1).collect()
    }

    /// The same with every codec whose entries were kept.
    pub(crate) fn by_codec(&self, snapshot: usize) -> Vec<Vec<(Codec, PageMap)>> {
        let kept = |codec: &buddy_profile::MeasuredCodec| {
            Some((codec.codec.clone()?, codec.maps.get(snapshot)?.clone()?))
        };
        let all = self.measured.allocations.iter();
        all.map(|allocation| allocation.codecs.iter().filter_map(kept).collect()).collect()
    }
}

/// The snapshot whose ratio is nearest that of the whole run: the paper takes its traces where the ratio is the average.
pub fn typical(profile: &Profile) -> usize {
    let all = profile.optimistic_ratio.unwrap_or(f64::INFINITY).ln();
    let distance = |ratio: &Option<f64>| (ratio.unwrap_or(f64::INFINITY).ln() - all).abs();
    let nearest = (0..profile.optimistic.len())
        .min_by(|&a, &b| distance(&profile.optimistic[a]).total_cmp(&distance(&profile.optimistic[b])));
    nearest.unwrap_or(0)
}
