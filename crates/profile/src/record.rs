//! A run without its bytes.

use buddy_codec::{Codec, CodecKind};
use buddy_core::{AllocationSizes, Entry, RunRecord};
use buddy_snapshot::{Array, Error, Run};

use crate::{Progress, measure, page_map, sample};

/// Pages of each allocation that a record keeps for pictures.
const ROWS: usize = 256;

/// Measures every allocation in every snapshot with each of the codecs, and keeps pages of the first. A codec
/// that learns sees a sample of all snapshots, since an allocation keeps its parameters for the whole run.
///
/// # Errors
/// If a snapshot cannot be read any more.
pub fn record_run(run: &Run, kinds: &[CodecKind], progress: Progress<'_>) -> Result<RunRecord, Error> {
    let codecs = train(run, kinds)?;
    let mut sizes = Vec::new();
    for snapshot in 0..run.info().snapshots.len() {
        let arrays = run.snapshot(snapshot)?;
        sizes.push(
            arrays.iter().zip(&codecs).map(|(array, codecs)| measure_one(array, codecs, progress)).collect(),
        );
    }
    let mut info = run.info().clone();
    for snapshot in &mut info.snapshots {
        snapshot.file = None;
    }
    Ok(RunRecord { run: info, sizes })
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

fn measure_one(array: &Array, codecs: &[Codec], progress: Progress<'_>) -> AllocationSizes {
    let name = |codec: &Codec| codec.kind().name().to_owned();
    let histograms = codecs.iter().map(name).zip(measure(array, codecs, progress)).collect();
    let pages = codecs.iter().take(1).map(|codec| (name(codec), page_map(array, codec, ROWS))).collect();
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
}
