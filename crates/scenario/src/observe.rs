//! Runs a workload and measures its memory at ten snapshots.

use buddy_codec::{Codec, CodecKind};
use buddy_core::PageMap;
use buddy_profile::{Measured, Observer, Rows, Settings, Tried, profile, row_codec, sample};
use buddy_record::{Profile, SnapshotInfo, TargetTable};
use buddy_workloads::{Allocation, Check, Info, Step, Workload, describe, run};

use crate::Error;

/// Request to observe a workload.
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    /// The workload.
    pub info: &'a Info,
    /// Approximate bytes of all its arrays.
    pub bytes: u64,
    /// Seed of its random numbers.
    pub seed: u64,
    /// Codecs to measure. Targets are chosen for the first, whose entry classes are kept.
    pub tried: Tried,
    /// Tables whose codecs are measured too, entry by entry.
    pub tables: &'a [TargetTable],
    /// Index of the only snapshot whose entries are needed; `None` keeps all ten.
    pub snapshot: Option<usize>,
}

/// Measurements of a completed run.
#[derive(Debug)]
pub struct Observed {
    /// Checks of the program's answer.
    pub checks: Vec<Check>,
    /// Its memory at ten snapshots, with the blocks of every codec: policies may choose any of them.
    pub measured: Measured,
    /// Profile with the paper's final design and the first codec.
    pub profile: Profile,
}

/// Runs a workload to its end and measures its memory after every tenth of the steps. Codecs with
/// parameters are trained on the first snapshot, since later ones are not known yet. Calls
/// `goes_on` after every step.
///
/// # Errors
/// [`Error::Interrupted`] once `goes_on` returns false, or an error of the tables or the profiler.
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
    let measured = observer.finish(threshold, auto);
    let kind = ask.tried.kinds[0];
    let (profile, _) = profile(&measured, &Settings::final_design(kind)).map_err(|error| ask.wrong(error))?;
    Ok(Observed { checks, measured, profile })
}

impl Ask<'_> {
    /// Returns the codecs to measure each allocation with.
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

    /// Returns which entry classes of a snapshot are kept.
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
    /// Returns the class of every entry of each allocation in a snapshot, with the first codec.
    ///
    /// # Panics
    /// If the entries of that snapshot were not kept.
    pub fn classes(&self, snapshot: usize) -> Vec<PageMap> {
        self.by_codec(snapshot).into_iter().map(|mut codecs| codecs.swap_remove(0).1).collect()
    }

    /// Like [`classes`](Self::classes), for every codec whose entries were kept.
    pub(crate) fn by_codec(&self, snapshot: usize) -> Vec<Vec<(Codec, PageMap)>> {
        let kept = |codec: &buddy_profile::MeasuredCodec| {
            Some((codec.codec.clone()?, codec.maps.get(snapshot)?.clone()?))
        };
        let all = self.measured.allocations.iter();
        all.map(|allocation| allocation.codecs.iter().filter_map(kept).collect()).collect()
    }
}

/// Returns the snapshot whose ratio is nearest to the run's, as the paper takes its traces at the
/// average ratio.
pub fn typical(profile: &Profile) -> usize {
    let all = profile.optimistic_ratio.unwrap_or(f64::INFINITY).ln();
    let distance = |ratio: &Option<f64>| (ratio.unwrap_or(f64::INFINITY).ln() - all).abs();
    let nearest = (0..profile.optimistic.len())
        .min_by(|&a, &b| distance(&profile.optimistic[a]).total_cmp(&distance(&profile.optimistic[b])));
    nearest.unwrap_or(0)
}
