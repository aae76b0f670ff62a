//! The size classes of every allocation of a run in every snapshot.

use std::collections::BTreeMap;

use buddy_codec::{Codec, CodecKind};
use buddy_core::{Blocks, ENTRY_BYTES, Entry, Histogram, PageMap, SizeClass};
use buddy_record::{AllocationSizes, RunInfo, RunRecord};
use buddy_snapshot::{Array, Run};
use rayon::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    Error, Observer, PageClasses, Place, Progress, Rows, candidates,
    choose::{Score, best_codecs},
    records::rows::MOST_OF_PROFILE,
    sample::sample_runs,
};

/// The size classes of a run: the input of policies, plans and records.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The program, its allocations and its snapshots.
    pub run: RunInfo,
    /// Sizes of the allocations, in the order of `run`.
    pub allocations: Vec<MeasuredAllocation>,
    /// True if codecs were chosen per allocation.
    pub auto: bool,
}

/// The size classes of one allocation, for each codec that was tried.
#[derive(Debug, Clone)]
pub struct MeasuredAllocation {
    /// Sizes for each codec.
    pub codecs: Vec<MeasuredCodec>,
    /// Index of the best codec.
    pub auto: usize,
}

/// The size classes of one allocation with one codec.
#[derive(Debug, Clone)]
pub struct MeasuredCodec {
    /// Kind of the codec, whose name records keep.
    pub kind: CodecKind,
    /// The codec with its parameters; `None` if the record does not keep them.
    pub codec: Option<Codec>,
    /// Device bytes of the codec's parameters for the allocation.
    pub parameter_bytes: u64,
    /// Histogram in each snapshot; empty where the allocation is not alive.
    pub histograms: Vec<Histogram>,
    /// Histograms of blocks of pages in each snapshot; `None` unless all pages are known.
    pub blocks: Option<Vec<Blocks>>,
    /// Class of every entry of the kept pages in each snapshot; `None` if no page was kept.
    pub maps: Vec<Option<PageMap>>,
}

/// The codecs to try.
#[derive(Debug, Clone)]
pub struct Tried {
    /// Kinds tried on every allocation.
    pub kinds: Vec<CodecKind>,
    /// If true, also tries the codecs that samples of each allocation choose.
    pub auto: bool,
    /// The threshold at which codecs are compared.
    pub threshold: f64,
}

/// Name of the run parameter that holds trained codecs (docs/reference/snapshots.md).
const LEARNED: &str = "learned_codecs";
/// Runs of entries sampled from an allocation, over all snapshots.
const SAMPLE_RUNS: usize = 512;
/// Least number of sampled runs in one snapshot.
const FEWEST_RUNS: usize = 64;

impl Measured {
    /// Measures the snapshots of a run. Keeps page maps of the last one.
    ///
    /// # Errors
    /// If a snapshot cannot be read.
    pub fn from_run(run: &Run, tried: &Tried, progress: Progress<'_>) -> Result<Self, Error> {
        let last = run.info().snapshots.len() - 1;
        let rows = |snapshot| if snapshot == last { Rows::PROFILE } else { Rows::NONE };
        Self::look_at(run, tried, rows, progress)
    }

    /// Measures every snapshot of a run. An allocation has the same codecs in all snapshots.
    pub(crate) fn look_at(
        run: &Run,
        tried: &Tried,
        rows: impl Fn(usize) -> Rows,
        progress: Progress<'_>,
    ) -> Result<Self, Error> {
        let mut info = run.info().clone();
        let names = std::mem::take(&mut info.snapshots);
        let snapshots: Vec<Vec<Array>> =
            (0..names.len()).map(|index| run.snapshot(index)).collect::<Result<_, _>>()?;
        let learned = learned(&info)?;
        let codecs = |index: usize| {
            let arrays: Vec<&Array> = snapshots.iter().map(|arrays| &arrays[index]).collect();
            let learned = learned.get(&info.allocations[index].name).map_or(&[][..], Vec::as_slice);
            codecs_for(&arrays, tried, learned)
        };
        let codecs = (0..info.allocations.len()).into_par_iter().map(codecs).collect();
        let mut observer = Observer::new(info, codecs);
        for (index, (name, arrays)) in names.into_iter().zip(&snapshots).enumerate() {
            observer.add(name, arrays, rows(index), progress);
        }
        Ok(observer.finish(tried.threshold, tried.auto))
    }

    /// Reads the sizes from a record.
    ///
    /// # Errors
    /// If the record is inconsistent, names an unknown codec, or lacks the sizes of a codec in
    /// `tried`.
    pub fn from_record(record: &RunRecord, tried: &Tried) -> Result<Self, Error> {
        record.validate()?;
        let learned = learned(&record.run)?;
        let of_allocation = |index| recorded_allocation(record, index, &learned, tried);
        let allocations = (0..record.run.allocations.len()).map(of_allocation).collect::<Result<_, _>>()?;
        Ok(Self { run: record.run.clone(), allocations, auto: tried.auto })
    }

    /// Returns the record of the run: its sizes with every codec and the kept pages.
    pub fn to_record(&self) -> RunRecord {
        let mut run = self.run.clone();
        run.snapshots.iter_mut().for_each(|snapshot| snapshot.file = None);
        let sizes = (0..run.snapshots.len())
            .map(|snapshot| self.allocations.iter().map(|allocation| allocation.sizes(snapshot)).collect())
            .collect();
        RunRecord { run, sizes }
    }

    /// Returns the run as if the codecs in `kinds` did not exist, with the best of the others at the
    /// threshold. An allocation without other codecs keeps its own.
    pub fn without(&self, kinds: &[CodecKind], threshold: f64) -> Self {
        let allocation = |all: &MeasuredAllocation| {
            let left = all.codecs.iter().filter(|codec| !kinds.contains(&codec.kind));
            let left: Vec<MeasuredCodec> = left.cloned().collect();
            MeasuredAllocation::new(if left.is_empty() { all.codecs.clone() } else { left }, threshold)
        };
        Self { allocations: self.allocations.iter().map(allocation).collect(), ..self.clone() }
    }

    /// Returns the histograms alone, with the best codec of each allocation at another threshold.
    pub(crate) fn at_threshold(&self, threshold: f64) -> Self {
        let bare = |codec: &MeasuredCodec| MeasuredCodec {
            histograms: codec.histograms.clone(),
            blocks: None,
            maps: Vec::new(),
            codec: codec.codec.clone(),
            ..*codec
        };
        let allocation = |all: &MeasuredAllocation| {
            MeasuredAllocation::new(all.codecs.iter().map(bare).collect(), threshold)
        };
        let allocations = self.allocations.iter().map(allocation).collect();
        Self { run: self.run.clone(), allocations, auto: self.auto }
    }

    /// Drops the blocks of codecs that are neither the first nor the best of their allocation.
    pub fn drop_blocks(&mut self) {
        for allocation in &mut self.allocations {
            let kept = [0, allocation.auto];
            let others = allocation.codecs.iter_mut().enumerate().filter(|(index, _)| !kept.contains(index));
            others.for_each(|(_, codec)| codec.blocks = None);
        }
    }

    /// Returns the codecs that were tried on every allocation.
    pub fn kinds(&self) -> Vec<CodecKind> {
        let everywhere =
            |kind: &CodecKind| self.allocations.iter().all(|allocation| allocation.find(*kind).is_some());
        CodecKind::ALL.into_iter().filter(everywhere).collect()
    }
}

impl MeasuredAllocation {
    /// Creates an allocation and finds its best codec at the threshold.
    pub(crate) fn new(codecs: Vec<MeasuredCodec>, threshold: f64) -> Self {
        let mut allocation = Self { codecs, auto: 0 };
        let score = |codec: &MeasuredCodec| Score::of(&codec.histograms, codec.parameter_bytes, threshold);
        let best = allocation.candidates().min_by_key(|(_, codec)| score(codec));
        allocation.auto = best.map_or(0, |(index, _)| index);
        allocation
    }

    /// Returns the codecs that may be chosen, with their indices.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = (usize, &MeasuredCodec)> {
        let may_be_chosen = candidates(Place::Memory);
        self.codecs.iter().enumerate().filter(move |(_, codec)| may_be_chosen.contains(&codec.kind))
    }

    /// Returns sampled pages of the last snapshot that has a page map, and their codec.
    ///
    /// Uses `codec` if it has a map, and otherwise the first codec that has one.
    pub fn picture(&self, codec: usize) -> Option<(CodecKind, PageMap)> {
        let first_choice = self.codecs.get(codec).into_iter();
        let last = |codec: &MeasuredCodec| {
            let map = codec.maps.iter().rev().flatten().next()?;
            Some((codec.kind, map.sampled(MOST_OF_PROFILE)))
        };
        first_choice.chain(&self.codecs).find_map(last)
    }

    /// Returns the sizes that a record keeps of one snapshot.
    fn sizes(&self, snapshot: usize) -> AllocationSizes {
        let name = |codec: &MeasuredCodec| codec.kind.name().to_owned();
        let histograms = self.codecs.iter().map(|codec| (name(codec), codec.histograms[snapshot]));
        let pages = self.codecs.iter().filter_map(|codec| Some((name(codec), codec.maps[snapshot].clone()?)));
        let kept = self.codecs.iter().filter(|codec| codec.parameter_bytes > 0);
        let parameter_bytes = kept.map(|codec| (name(codec), codec.parameter_bytes)).collect();
        let (histograms, pages) = (histograms.collect(), pages.collect());
        AllocationSizes { histograms, pages, parameter_bytes, ..Default::default() }
    }

    /// Returns the index of a codec, if it was tried.
    pub fn find(&self, kind: CodecKind) -> Option<usize> {
        self.codecs.iter().position(|codec| codec.kind == kind)
    }
}

/// Reads the trained codecs of the run's parameters, by allocation name.
fn learned(run: &RunInfo) -> Result<BTreeMap<String, Vec<Codec>>, Error> {
    let all = run.parameters.get(LEARNED).and_then(Value::as_object).into_iter().flatten();
    let codecs = |(name, codecs): (&String, &Value)| {
        let codecs = Vec::<Codec>::deserialize(codecs);
        let wrong = |error: serde_json::Error| Error::Codec { name: name.clone(), what: error.to_string() };
        Ok((name.clone(), codecs.map_err(wrong)?))
    };
    all.map(codecs).collect()
}

/// Returns the codecs to try on an allocation.
///
/// Codecs in `learned` keep their parameters. The others are trained on samples of all snapshots,
/// since an allocation keeps its parameters for the whole run.
pub(crate) fn codecs_for(arrays: &[&Array], tried: &Tried, learned: &[Codec]) -> Vec<Codec> {
    let runs = (SAMPLE_RUNS / arrays.len()).max(FEWEST_RUNS);
    let learns = tried.auto || tried.kinds.iter().any(|kind| kind.has_parameters());
    let samples = |seed: u64, wanted: bool| -> Vec<Vec<Entry>> {
        let sample = |array: &&Array| if wanted { sample_runs(*array, runs, seed) } else { Vec::new() };
        arrays.iter().map(sample).collect()
    };
    // Codecs are compared on other samples than they were trained on, so that tables do not
    // overfit.
    let (known, others) = (samples(0, learns), samples(1, tried.auto));
    let sampled: usize = others.iter().map(Vec::len).sum();
    let all: usize = arrays.iter().map(|array| array.bytes().len().div_ceil(ENTRY_BYTES)).sum();
    let scale = all as f64 / sampled.max(1) as f64;
    tried.codecs(&known.concat(), &others, learned, scale.max(1.0))
}

impl Tried {
    /// Returns the kinds to try on memory that cannot be sampled in advance: with `auto`, all
    /// candidates.
    pub fn all_kinds(&self) -> Vec<CodecKind> {
        let more = if self.auto { candidates(Place::Memory) } else { Vec::new() };
        let more = more.into_iter().filter(|kind| !self.kinds.contains(kind));
        self.kinds.iter().copied().chain(more).collect()
    }

    /// Returns the codecs to try on an allocation: from `learned`, or trained on `sample`.
    ///
    /// With `auto`, adds the best codecs on `others`, one sample per snapshot. `scale` is the ratio
    /// of the allocation to these samples.
    fn codecs(&self, sample: &[Entry], others: &[Vec<Entry>], learned: &[Codec], scale: f64) -> Vec<Codec> {
        let ready = |kind: &CodecKind| {
            learned.iter().find(|codec| codec.kind() == *kind).cloned().unwrap_or_else(|| kind.train(sample))
        };
        let mut codecs: Vec<Codec> = self.kinds.iter().map(ready).collect();
        if self.auto {
            for best in best_codecs(others, &candidates(Place::Memory), ready, self.threshold, scale) {
                if !codecs.contains(&best) {
                    codecs.push(best);
                }
            }
        }
        codecs
    }
}

/// Reads one allocation of a record. Its histograms are empty where it is not alive.
fn recorded_allocation(
    record: &RunRecord,
    index: usize,
    learned: &BTreeMap<String, Vec<Codec>>,
    tried: &Tried,
) -> Result<MeasuredAllocation, Error> {
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
        let maps: Vec<Option<PageMap>> = sizes.iter().map(|sizes| sizes.pages.get(codec).cloned()).collect();
        if alive.iter().all(|sizes| sizes.histograms.contains_key(codec)) {
            let blocks = sizes.iter().map(|sizes| recorded_blocks(sizes, codec)).collect();
            let parameter_bytes = first.parameter_bytes.get(codec).copied().unwrap_or(0);
            let histograms = histograms.collect();
            let codec = learned.get(&name()).and_then(|all| all.iter().find(|codec| codec.kind() == kind));
            let codec = codec.cloned();
            codecs.push(MeasuredCodec { kind, codec, parameter_bytes, histograms, blocks, maps });
        }
    }
    // The paper's codec first, as in measured runs.
    codecs.sort_by_key(|codec| codec.kind as u8);
    match tried.kinds.iter().find(|kind| !codecs.iter().any(|codec| codec.kind == **kind)) {
        Some(kind) => Err(Error::NoSizes { codec: kind.name().to_owned(), name: name() }),
        None => Ok(MeasuredAllocation::new(codecs, tried.threshold)),
    }
}

/// Returns the blocks of an allocation in one snapshot, or counts them from a whole page map. They
/// are empty where it is not alive, and `None` if the record has neither.
fn recorded_blocks(sizes: &AllocationSizes, codec: &str) -> Option<Blocks> {
    if sizes.histograms.is_empty() {
        return Some(Blocks::default());
    }
    let counts = |row: &[SizeClass]| {
        let mut counts = PageClasses::default();
        row.iter().for_each(|class| counts[class.index()] += 1);
        counts
    };
    let whole = || {
        let map = sizes.pages.get(codec).filter(|map| map.is_whole())?;
        Some(Blocks::from_pages(&map.rows().map(counts).collect::<Vec<_>>()))
    };
    sizes.blocks.get(codec).cloned().or_else(whole)
}

#[cfg(test)]
mod tests {
    use buddy_core::Dtype;
    use buddy_record::AllocationInfo;
    use buddy_snapshot::RunWriter;
    use serde_json::json;

    use super::*;

    /// Measures a run of two snapshots, a ramp and a steeper one, with trained codecs if given.
    fn measured(learned: Value) -> Result<Measured, Error> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let allocation = AllocationInfo {
            name: "ramp".to_owned(),
            call_site: "main".to_owned(),
            base: 0,
            bytes: 80_000,
            dtype: Dtype::U64,
        };
        let parameters = [(LEARNED.to_owned(), learned)].into_iter().collect();
        let info = RunInfo::new("demo", parameters, vec![allocation]);
        let mut writer = RunWriter::create(&path, info, 2).unwrap();
        writer.write(1, &[&ramp(1 << 30)]).unwrap();
        writer.write(2, &[&ramp(3 << 30)]).unwrap();
        Measured::from_run(&Run::open(&path).unwrap(), &tried(), &|_| ())
    }

    fn ramp(step: u64) -> Vec<u8> {
        (0..10_000).flat_map(|i| (i / 100 * step).to_le_bytes()).collect()
    }

    fn tried() -> Tried {
        Tried { kinds: vec![CodecKind::Table64], auto: true, threshold: 0.3 }
    }

    #[test]
    fn trained_codecs_are_reused_and_kept_in_the_record() {
        let early = ramp(1 << 30);
        let first = CodecKind::Table64.train(buddy_core::as_entries(&early).0);
        let (fresh, kept) = (measured(Value::Null).unwrap(), measured(json!({ "ramp": [first] })).unwrap());
        let [fresh, again] = [&fresh, &kept].map(|measured| &measured.allocations[0].codecs[0]);
        assert_ne!(fresh.codec.as_ref(), Some(&first), "trained on both snapshots");
        assert_eq!(again.codec.as_ref(), Some(&first), "keeps the parameters of the first snapshot");
        assert_ne!(again.histograms[1], fresh.histograms[1]);
        let recorded = Measured::from_record(&kept.to_record(), &tried()).unwrap();
        let one = &recorded.allocations[0].codecs[recorded.allocations[0].find(CodecKind::Table64).unwrap()];
        assert_eq!((one.codec.as_ref(), &one.histograms), (Some(&first), &again.histograms));
    }

    #[test]
    fn an_invalid_codec_error_names_its_allocation() {
        let wrong = measured(json!({ "ramp": [{ "codec": "table64", "values": "x" }] })).unwrap_err();
        assert!(wrong.to_string().starts_with("allocation \"ramp\": a table's values are words"), "{wrong}");
    }
}
