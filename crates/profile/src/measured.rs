//! A run as policies see it: the sizes of every allocation in every snapshot.

use std::collections::BTreeMap;

use buddy_codec::{Codec, CodecKind};
use buddy_core::{
    AllocationSizes, Blocks, ENTRY_BYTES, Entry, Histogram, PageMap, RunInfo, RunRecord, SizeClass,
};
use buddy_snapshot::{Array, Run};
use rayon::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    Error, Observer, PageClasses, Progress, Rows, candidates,
    choose::{Score, best_codecs},
    rows::MOST_OF_PROFILE,
    sample::sample_runs,
};

/// A run as its size classes: all that policies, plans and records look at.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Its program, allocations and snapshots, without their bytes.
    pub run: RunInfo,
    /// Its allocations, in its order.
    pub allocations: Vec<MeasuredAllocation>,
    /// Whether each allocation was tried with a codec of its own.
    pub auto: bool,
}

/// What was seen of one allocation, with each codec that was tried on it.
#[derive(Debug, Clone)]
pub struct MeasuredAllocation {
    /// Its sizes with each codec that was tried.
    pub codecs: Vec<MeasuredCodec>,
    /// Which of them suits it best.
    pub auto: usize,
}

/// One allocation with one codec.
#[derive(Debug, Clone)]
pub struct MeasuredCodec {
    /// The codec's name, which records keep.
    pub kind: CodecKind,
    /// The codec with what it learned; none in a record that does not keep that.
    pub codec: Option<Codec>,
    /// Bytes that the codec keeps of the allocation beside its entries.
    pub parameter_bytes: u64,
    /// The allocation's entries in each snapshot; none where it is not alive.
    pub histograms: Vec<Histogram>,
    /// The entries of all pages in each snapshot, block by block; none where not all pages are known.
    pub blocks: Option<Vec<Blocks>>,
    /// The class of every entry of some or all pages, in each snapshot; none where no page was kept.
    pub maps: Vec<Option<PageMap>>,
}

/// Which codecs are tried.
#[derive(Debug, Clone)]
pub struct Tried {
    /// These on every allocation.
    pub kinds: Vec<CodecKind>,
    /// And on each allocation those that a sample of it chooses.
    pub auto: bool,
    /// The threshold at which codecs are judged.
    pub threshold: f64,
}

/// The run's parameter that says what codecs had learned of its allocations (docs/reference/snapshots.md).
const LEARNED: &str = "learned_codecs";
/// Short runs of entries that are sampled of an allocation, in all snapshots together.
const SAMPLE_RUNS: usize = 512;
/// Stretches of one snapshot that are sampled at least.
const FEWEST_RUNS: usize = 64;

impl Measured {
    /// Measures the snapshots of a run. Pictures are of the last one.
    ///
    /// # Errors
    /// If a snapshot cannot be read.
    pub fn from_run(run: &Run, tried: &Tried, progress: Progress<'_>) -> Result<Self, Error> {
        let last = run.info().snapshots.len() - 1;
        let rows = |snapshot| if snapshot == last { Rows::PROFILE } else { Rows::NONE };
        Self::look_at(run, tried, rows, progress)
    }

    /// Looks at every snapshot of a run with the codecs that its allocations are given for all of it.
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

    /// Takes the sizes from a record.
    ///
    /// # Errors
    /// If the record contradicts itself, names a codec that is none, or has no sizes of those in `tried`.
    pub fn from_record(record: &RunRecord, tried: &Tried) -> Result<Self, Error> {
        record.validate()?;
        let learned = learned(&record.run)?;
        let of_allocation = |index| recorded_allocation(record, index, &learned, tried);
        let allocations = (0..record.run.allocations.len()).map(of_allocation).collect::<Result<_, _>>()?;
        Ok(Self { run: record.run.clone(), allocations, auto: tried.auto })
    }

    /// The run without its bytes: the sizes with every codec, and the pages that were kept.
    pub fn to_record(&self) -> RunRecord {
        let mut run = self.run.clone();
        run.snapshots.iter_mut().for_each(|snapshot| snapshot.file = None);
        let sizes = (0..run.snapshots.len())
            .map(|snapshot| self.allocations.iter().map(|allocation| allocation.sizes(snapshot)).collect())
            .collect();
        RunRecord { run, sizes }
    }

    /// Lets go of the blocks of codecs that are neither the first nor the best of their allocation.
    pub fn drop_blocks(&mut self) {
        for allocation in &mut self.allocations {
            let kept = [0, allocation.auto];
            let others = allocation.codecs.iter_mut().enumerate().filter(|(index, _)| !kept.contains(index));
            others.for_each(|(_, codec)| codec.blocks = None);
        }
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
    pub(crate) fn new(codecs: Vec<MeasuredCodec>, threshold: f64) -> Self {
        let may_be_chosen = candidates();
        let judged = codecs.iter().enumerate().filter(|(_, codec)| may_be_chosen.contains(&codec.kind));
        let score = |codec: &MeasuredCodec| Score::of(&codec.histograms, codec.parameter_bytes, threshold);
        let best = judged.min_by_key(|(_, codec)| score(codec));
        let auto = best.map_or(0, |(index, _)| index);
        Self { codecs, auto }
    }

    /// Some of its pages in the last snapshot that has them, with one of its codecs; with the first that pages were kept of
    /// where there are none of that. The codec comes with them.
    pub fn picture(&self, codec: usize) -> Option<(CodecKind, PageMap)> {
        let first_choice = self.codecs.get(codec).into_iter();
        let last = |codec: &MeasuredCodec| {
            let map = codec.maps.iter().rev().flatten().next()?;
            Some((codec.kind, map.sampled(MOST_OF_PROFILE)))
        };
        first_choice.chain(&self.codecs).find_map(last)
    }

    /// What a record keeps of one snapshot.
    fn sizes(&self, snapshot: usize) -> AllocationSizes {
        let name = |codec: &MeasuredCodec| codec.kind.name().to_owned();
        let histograms = self.codecs.iter().map(|codec| (name(codec), codec.histograms[snapshot]));
        let pages = self.codecs.iter().filter_map(|codec| Some((name(codec), codec.maps[snapshot].clone()?)));
        let kept = self.codecs.iter().filter(|codec| codec.parameter_bytes > 0);
        let parameter_bytes = kept.map(|codec| (name(codec), codec.parameter_bytes)).collect();
        let (histograms, pages) = (histograms.collect(), pages.collect());
        AllocationSizes { histograms, pages, parameter_bytes, ..Default::default() }
    }

    /// Where the sizes of a codec are.
    pub fn find(&self, kind: CodecKind) -> Option<usize> {
        self.codecs.iter().position(|codec| codec.kind == kind)
    }
}

/// The codecs that had learned of allocations when the run was written or watched, by the allocation's name.
fn learned(run: &RunInfo) -> Result<BTreeMap<String, Vec<Codec>>, Error> {
    let all = run.parameters.get(LEARNED).and_then(Value::as_object).into_iter().flatten();
    let codecs = |(name, codecs): (&String, &Value)| {
        let codecs = Vec::<Codec>::deserialize(codecs);
        let wrong = |error: serde_json::Error| Error::Codec { name: name.clone(), what: error.to_string() };
        Ok((name.clone(), codecs.map_err(wrong)?))
    };
    all.map(codecs).collect()
}

/// The codecs to try on an allocation, trained on samples of all its snapshots unless they had learned when it was written: it
/// keeps what they learn for the whole run.
pub(crate) fn codecs_for(arrays: &[&Array], tried: &Tried, learned: &[Codec]) -> Vec<Codec> {
    let runs = (SAMPLE_RUNS / arrays.len()).max(FEWEST_RUNS);
    let learns = tried.auto || tried.kinds.iter().any(|kind| kind.has_parameters());
    let samples = |turn: u64, wanted: bool| -> Vec<Vec<Entry>> {
        let sample = |array: &&Array| if wanted { sample_runs(*array, runs, turn) } else { Vec::new() };
        arrays.iter().map(sample).collect()
    };
    // A table that knows every value of the sample that it was made of may know few others.
    let (known, others) = (samples(0, learns), samples(1, tried.auto));
    let sampled: usize = others.iter().map(Vec::len).sum();
    let all: usize = arrays.iter().map(|array| array.bytes().len().div_ceil(ENTRY_BYTES)).sum();
    let scale = all as f64 / sampled.max(1) as f64;
    tried.codecs(&known.concat(), &others, learned, scale.max(1.0))
}

impl Tried {
    /// The codecs that are tried on memory that is not there to be sampled before: with `auto`, all that may be chosen.
    pub fn all_kinds(&self) -> Vec<CodecKind> {
        let more = if self.auto { candidates() } else { Vec::new() };
        let more = more.into_iter().filter(|kind| !self.kinds.contains(kind));
        self.kinds.iter().copied().chain(more).collect()
    }

    /// The codecs to try on an allocation, trained on a sample of all snapshots and judged by others, one for each, which are one part
    /// in `scale` of it; those that have learned are as they are.
    fn codecs(&self, sample: &[Entry], others: &[Vec<Entry>], learned: &[Codec], scale: f64) -> Vec<Codec> {
        let ready = |kind: &CodecKind| {
            learned.iter().find(|codec| codec.kind() == *kind).cloned().unwrap_or_else(|| kind.train(sample))
        };
        let mut codecs: Vec<Codec> = self.kinds.iter().map(ready).collect();
        if self.auto {
            for best in best_codecs(others, &candidates(), ready, self.threshold, scale) {
                if !codecs.contains(&best) {
                    codecs.push(best);
                }
            }
        }
        codecs
    }
}

/// One allocation of a record. Where it is not alive it has no sizes, and its histogram is empty.
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
    // The paper's codec first, as in what is measured here.
    codecs.sort_by_key(|codec| CodecKind::ALL.iter().position(|kind| *kind == codec.kind));
    match tried.kinds.iter().find(|kind| !codecs.iter().any(|codec| codec.kind == **kind)) {
        Some(kind) => Err(Error::NoSizes { codec: kind.name().to_owned(), name: name() }),
        None => Ok(MeasuredAllocation::new(codecs, tried.threshold)),
    }
}

/// The blocks of an allocation in one snapshot, if the record has them, or a map of all its pages. Where it is not alive
/// there are none.
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
    use buddy_core::{AllocationInfo, Dtype};
    use buddy_snapshot::RunWriter;
    use serde_json::json;

    use super::*;

    /// A run of two snapshots, a ramp and then a steeper one, of which codecs may have learned before.
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
    fn what_codecs_had_learned_is_not_learned_again_and_stays_in_the_record() {
        let early = ramp(1 << 30);
        let first = CodecKind::Table64.train(buddy_core::as_entries(&early).0);
        let (fresh, kept) = (measured(Value::Null).unwrap(), measured(json!({ "ramp": [first] })).unwrap());
        let [fresh, again] = [&fresh, &kept].map(|measured| &measured.allocations[0].codecs[0]);
        assert_ne!(fresh.codec.as_ref(), Some(&first), "it learns of both snapshots");
        assert_eq!(again.codec.as_ref(), Some(&first), "it keeps what it learned of the first");
        assert_ne!(again.histograms[1], fresh.histograms[1]);
        let recorded = Measured::from_record(&kept.to_record(), &tried()).unwrap();
        let one = &recorded.allocations[0].codecs[recorded.allocations[0].find(CodecKind::Table64).unwrap()];
        assert_eq!((one.codec.as_ref(), &one.histograms), (Some(&first), &again.histograms));
    }

    #[test]
    fn what_is_no_codec_is_told_with_its_allocation() {
        let wrong = measured(json!({ "ramp": [{ "codec": "table64", "values": "x" }] })).unwrap_err();
        assert!(wrong.to_string().starts_with("allocation \"ramp\": a table's values are words"), "{wrong}");
    }
}
