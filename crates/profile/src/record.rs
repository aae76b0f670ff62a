//! A run without its bytes.

use buddy_codec::{Codec, CodecKind};
use buddy_core::{AllocationSizes, Entry, RunInfo, RunRecord, SnapshotInfo};
use buddy_snapshot::{Error, Run};

use crate::{Memory, Progress, measure, page_map, prune::drop_beaten, sample};

/// Pages of each snapshot that a record keeps for pictures; the allocations share them by their sizes.
const ROWS: u64 = 64;

/// Measures every allocation in every snapshot with each of the codecs, and keeps pages of the first. A codec
/// that learns sees a sample of all snapshots, since an allocation keeps its parameters for the whole run.
///
/// # Errors
/// If a snapshot cannot be read any more.
pub fn record_run(run: &Run, kinds: &[CodecKind], progress: Progress<'_>) -> Result<RunRecord, Error> {
    let mut info = run.info().clone();
    info.snapshots.clear();
    let mut recorder = Recorder { codecs: train(run, kinds)?, ..Recorder::new(info, kinds) };
    for (index, snapshot) in run.info().snapshots.iter().enumerate() {
        recorder.add(SnapshotInfo { file: None, ..snapshot.clone() }, &run.snapshot(index)?, progress);
    }
    Ok(recorder.record)
}

/// The codecs of every allocation.
fn train(run: &Run, kinds: &[CodecKind]) -> Result<Vec<Vec<Codec>>, Error> {
    let mut samples: Vec<Vec<Entry>> = vec![Vec::new(); run.info().allocations.len()];
    for snapshot in 0..run.info().snapshots.len() {
        for (sampled, array) in samples.iter_mut().zip(run.snapshot(snapshot)?) {
            sampled.extend(sample(&array));
        }
    }
    Ok(samples.iter().map(|sample| kinds.iter().map(|kind| kind.train(sample)).collect()).collect())
}

/// Records a run while it happens, from the memory of the program itself. Nothing is written.
#[derive(Debug)]
pub struct Recorder {
    record: RunRecord,
    kinds: Vec<CodecKind>,
    codecs: Vec<Vec<Codec>>,
}

impl Recorder {
    /// Begins the record of a run that has not been looked at yet. The first of the codecs is the one whose
    /// pages are kept.
    pub fn new(run: RunInfo, kinds: &[CodecKind]) -> Self {
        Self { record: RunRecord { run, sizes: Vec::new() }, kinds: kinds.to_vec(), codecs: Vec::new() }
    }

    /// Measures the arrays as they are now. A codec that learns is trained when the first ones come, since what
    /// comes later is not known yet.
    ///
    /// # Panics
    /// If there is not one array for every allocation of the run.
    pub fn add(&mut self, snapshot: SnapshotInfo, arrays: &[impl Memory], progress: Progress<'_>) {
        assert_eq!(arrays.len(), self.record.run.allocations.len(), "one array for each allocation");
        if self.codecs.is_empty() {
            let train = |array| self.kinds.iter().map(|kind| kind.train(&sample(array))).collect();
            self.codecs = arrays.iter().map(train).collect();
        }
        let all = self.record.run.bytes();
        let measured = arrays.iter().zip(&self.codecs).map(|(array, codecs)| {
            let rows = (ROWS * array.bytes().len() as u64 / all.max(1)).max(1);
            measure_one(array, codecs, rows as usize, progress)
        });
        self.record.sizes.push(measured.collect());
        self.record.run.snapshots.push(snapshot);
    }

    /// The record, with the first codec and every other one that is the best choice for something.
    pub fn finish(mut self) -> RunRecord {
        if let Some(first) = self.kinds.first() {
            drop_beaten(&mut self.record, first.name());
        }
        self.record
    }
}

fn measure_one(
    array: &impl Memory,
    codecs: &[Codec],
    rows: usize,
    progress: Progress<'_>,
) -> AllocationSizes {
    let name = |codec: &Codec| codec.kind().name().to_owned();
    let sizes = measure(array, codecs, progress).into_iter().map(|sizes| sizes.histogram);
    let histograms = codecs.iter().map(name).zip(sizes).collect();
    let pages = codecs.iter().take(1).map(|codec| (name(codec), page_map(array, codec, rows))).collect();
    AllocationSizes { histograms, pages }
}

#[cfg(test)]
mod tests {
    use buddy_core::{AllocationInfo, Dtype, Record, RunInfo};
    use buddy_snapshot::RunWriter;

    use super::*;

    #[test]
    fn a_record_counts_what_the_run_holds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let allocation = AllocationInfo {
            name: "u".to_owned(),
            call_site: "main".to_owned(),
            base: 0,
            bytes: 20_000,
            dtype: Dtype::F32,
        };
        let info = RunInfo::new("demo", Default::default(), vec![allocation]);
        let mut writer = RunWriter::create(&path, info, 2).unwrap();
        writer.write(0, &[&[0; 20_000]]).unwrap();
        writer.write(1, &[&[7; 20_000]]).unwrap();
        let record = record_run(&Run::open(&path).unwrap(), &CodecKind::ALL, &|_| ()).unwrap();
        record.validate().unwrap();
        assert_eq!(record.sizes[0][0].histograms["bpc"].classes, [157, 0, 0, 0, 0, 0]);
        assert_eq!(record.sizes[1][0].histograms["bpc"].classes, [0, 156, 1, 0, 0, 0]);
        assert_eq!(record.sizes[1][0].pages["bpc"].rows.len(), 3);
        let record = Record::new(record);
        assert_eq!(Record::from_json(&record.to_json()).unwrap(), record);
    }

    #[test]
    fn a_recorder_sees_in_memory_what_a_run_has_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let allocation = |name: &str, bytes| AllocationInfo {
            name: name.to_owned(),
            call_site: "main".to_owned(),
            base: 0,
            bytes,
            dtype: Dtype::U8,
        };
        let info =
            RunInfo::new("demo", Default::default(), vec![allocation("a", 40_000), allocation("b", 5)]);
        let mut writer = RunWriter::create(&path, info.clone(), 2).unwrap();
        let kinds = [CodecKind::Bpc, CodecKind::Zeros64];
        let mut recorder = Recorder::new(info, &kinds);
        for step in 0..2u8 {
            let a: Vec<u8> = (0..40_000).map(|i: u32| (i * i * u32::from(step) % 251) as u8).collect();
            let arrays = [&a[..], &[step; 5]];
            writer.write(step.into(), &arrays).unwrap();
            let snapshot = SnapshotInfo { step: step.into(), label: String::new(), file: None };
            recorder.add(snapshot, &arrays, &|_| ());
        }
        let mut from_disk = record_run(&Run::open(&path).unwrap(), &kinds, &|_| ()).unwrap();
        drop_beaten(&mut from_disk, "bpc");
        assert_eq!(recorder.finish(), from_disk);
    }
}
