//! A run as policies see it: the sizes of every allocation in every snapshot.

use buddy_codec::{Codec, CodecKind};
use buddy_core::{Entry, Histogram, PageMap, RunInfo, RunRecord, SizeClass};
use buddy_snapshot::{Array, Run};
use rayon::prelude::*;

use crate::{
    Error, PageClasses, Progress, candidates,
    choose::Score,
    measure::{count, measure, page_map},
    sample::sample_runs,
};

/// A measured run.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The run.
    pub run: RunInfo,
    /// Its allocations, in its order.
    pub allocations: Vec<MeasuredAllocation>,
    /// Whether each allocation was tried with a codec of its own.
    pub auto: bool,
}

/// One allocation.
#[derive(Debug, Clone)]
pub struct MeasuredAllocation {
    /// Its sizes with each codec that was tried.
    pub codecs: Vec<MeasuredCodec>,
    /// Which of them suits it best.
    pub auto: usize,
    /// Some of its pages in the last snapshot that has them, with the first codec.
    pub map: Option<PageMap>,
}

/// One allocation with one codec.
#[derive(Debug, Clone)]
pub struct MeasuredCodec {
    /// The codec.
    pub kind: CodecKind,
    /// The codec with what it learned; none in a record, which does not keep that.
    pub codec: Option<Codec>,
    /// The allocation's entries in each snapshot; none where it is not alive.
    pub histograms: Vec<Histogram>,
    /// The entries of each page in each snapshot; none where not all pages are known.
    pub pages: Option<Vec<Vec<PageClasses>>>,
}

/// Which codecs are tried.
#[derive(Debug, Clone)]
pub struct Tried {
    /// These on every allocation.
    pub kinds: Vec<CodecKind>,
    /// And on each allocation the one that a sample of it chooses.
    pub auto: bool,
    /// The threshold at which codecs are judged.
    pub threshold: f64,
}

/// Short runs of entries that are sampled of an allocation, in all snapshots together.
const SAMPLE_RUNS: usize = 512;
/// Stretches of one snapshot that are sampled at least.
const FEWEST_RUNS: usize = 64;
/// Most rows of one page map, and of all of them together.
const MOST_ROWS: usize = 256;
const ALL_ROWS: u64 = 8192;

impl Measured {
    /// Measures the snapshots of a run.
    ///
    /// # Errors
    /// If a snapshot cannot be read.
    pub fn from_run(run: &Run, tried: &Tried, progress: Progress<'_>) -> Result<Self, Error> {
        let info = run.info().clone();
        let snapshots: Vec<Vec<Array>> =
            (0..info.snapshots.len()).map(|index| run.snapshot(index)).collect::<Result<_, _>>()?;
        let bytes = info.bytes().max(1);
        let of_allocation = |index: usize| {
            let arrays: Vec<&Array> = snapshots.iter().map(|arrays| &arrays[index]).collect();
            let share = (ALL_ROWS as f64 * info.allocations[index].bytes as f64 / bytes as f64) as usize;
            measure_allocation(&arrays, tried, share.clamp(8, MOST_ROWS), progress)
        };
        let allocations = (0..info.allocations.len()).into_par_iter().map(of_allocation).collect();
        Ok(Self { run: info, allocations, auto: tried.auto })
    }

    /// Takes the sizes from a record.
    ///
    /// # Errors
    /// If the record contradicts itself, names a codec that is none, or has no sizes of those in `tried`.
    pub fn from_record(record: &RunRecord, tried: &Tried) -> Result<Self, Error> {
        record.validate()?;
        let of_allocation = |index| recorded_allocation(record, index, tried);
        let allocations = (0..record.run.allocations.len()).map(of_allocation).collect::<Result<_, _>>()?;
        Ok(Self { run: record.run.clone(), allocations, auto: tried.auto })
    }

    /// The codecs that were tried on every allocation.
    pub fn kinds(&self) -> Vec<CodecKind> {
        let everywhere =
            |kind: &CodecKind| self.allocations.iter().all(|allocation| allocation.find(*kind).is_some());
        CodecKind::ALL.into_iter().filter(everywhere).collect()
    }
}

impl MeasuredAllocation {
    /// Puts the codecs together and finds the best of them.
    pub(crate) fn new(codecs: Vec<MeasuredCodec>, map: Option<PageMap>, threshold: f64) -> Self {
        let may_be_chosen = candidates();
        let judged = codecs.iter().enumerate().filter(|(_, codec)| may_be_chosen.contains(&codec.kind));
        let best = judged.min_by_key(|(_, codec)| Score::of(&codec.histograms, threshold));
        let auto = best.map_or(0, |(index, _)| index);
        Self { codecs, auto, map }
    }

    /// Where the sizes of a codec are.
    pub fn find(&self, kind: CodecKind) -> Option<usize> {
        self.codecs.iter().position(|codec| codec.kind == kind)
    }
}

/// One allocation in all its snapshots.
fn measure_allocation(
    arrays: &[&Array],
    tried: &Tried,
    rows: usize,
    progress: Progress<'_>,
) -> MeasuredAllocation {
    let runs = (SAMPLE_RUNS / arrays.len()).max(FEWEST_RUNS);
    let learns = tried.auto || tried.kinds.iter().any(|kind| kind.learns());
    let samples: Vec<Vec<Entry>> = match learns {
        true => arrays.iter().map(|array| sample_runs(*array, runs)).collect(),
        false => Vec::new(),
    };
    let codecs = codecs_for(&samples, tried);
    let sizes: Vec<_> = arrays.iter().map(|array| measure(*array, &codecs, progress)).collect();
    let map = codecs.first().zip(arrays.last()).map(|(codec, array)| page_map(*array, codec, rows));
    let measured = codecs.into_iter().enumerate().map(|(index, codec)| MeasuredCodec {
        kind: codec.kind(),
        codec: Some(codec),
        histograms: sizes.iter().map(|sizes| sizes[index].histogram).collect(),
        pages: Some(sizes.iter().map(|sizes| sizes[index].pages.clone()).collect()),
    });
    MeasuredAllocation::new(measured.collect(), map, tried.threshold)
}

/// The codecs to try on an allocation, trained on samples of all its snapshots: it keeps what they learn for the
/// whole run.
fn codecs_for(samples: &[Vec<Entry>], tried: &Tried) -> Vec<Codec> {
    let all: Vec<Entry> = samples.concat();
    let mut codecs: Vec<Codec> = tried.kinds.iter().map(|kind| kind.train(&all)).collect();
    if tried.auto {
        let judge = |kind: CodecKind| {
            let codec = [kind.train(&all)];
            let histograms: Vec<Histogram> = samples.iter().map(|sample| count(sample, &codec)[0]).collect();
            (Score::of(&histograms, tried.threshold), codec)
        };
        let best = candidates().into_iter().map(judge).min_by_key(|(score, _)| *score);
        let [best] = best.expect("there are candidates").1;
        if !codecs.contains(&best) {
            codecs.push(best);
        }
    }
    codecs
}

/// One allocation of a record. Where it is not alive it has no sizes, and its histogram is empty.
fn recorded_allocation(record: &RunRecord, index: usize, tried: &Tried) -> Result<MeasuredAllocation, Error> {
    let name = || record.run.allocations[index].name.clone();
    let sizes: Vec<_> = record.sizes.iter().map(|snapshot| &snapshot[index]).collect();
    let alive: Vec<_> = sizes.iter().copied().filter(|sizes| !sizes.histograms.is_empty()).collect();
    let first =
        alive.first().ok_or_else(|| Error::NoSizes { codec: "any codec".to_owned(), name: name() })?;
    let mut codecs = Vec::new();
    for codec in first.histograms.keys() {
        let kind = codec.parse::<CodecKind>();
        let kind = kind.map_err(|error| Error::Codec { name: name(), what: error.to_string() })?;
        let histograms = sizes.iter().map(|sizes| sizes.histograms.get(codec).copied().unwrap_or_default());
        let pages = sizes.iter().map(|sizes| sizes.pages.get(codec).and_then(all_pages));
        if alive.iter().all(|sizes| sizes.histograms.contains_key(codec)) {
            let (histograms, pages) = (histograms.collect(), pages.collect());
            codecs.push(MeasuredCodec { kind, codec: None, histograms, pages });
        }
    }
    // The paper's codec first, as in what is measured here.
    codecs.sort_by_key(|codec| CodecKind::ALL.iter().position(|kind| *kind == codec.kind));
    let map = sizes.iter().rev().find_map(|sizes| sizes.pages.get(CodecKind::Bpc.name()).cloned());
    match tried.kinds.iter().find(|kind| !codecs.iter().any(|codec| codec.kind == **kind)) {
        Some(kind) => Err(Error::NoSizes { codec: kind.name().to_owned(), name: name() }),
        None => Ok(MeasuredAllocation::new(codecs, map, tried.threshold)),
    }
}

/// The classes of every page, if the map has them all.
fn all_pages(map: &PageMap) -> Option<Vec<PageClasses>> {
    let classes = |row: &String| {
        let mut classes = PageClasses::default();
        row.bytes().for_each(|digit| classes[usize::from(digit - b'0') % SizeClass::ALL.len()] += 1);
        classes
    };
    (map.rows.len() as u64 == map.pages).then(|| map.rows.iter().map(classes).collect())
}
