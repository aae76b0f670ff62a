//! Records the size classes of a run.

use buddy_codec::CodecKind;
use buddy_record::RunRecord;
use buddy_snapshot::Run;

use crate::{DEFAULT_THRESHOLD, Error, Measured, Progress, Rows, Tried};

/// Measures every allocation in every snapshot with each codec, and keeps pages of the first codec.
///
/// Codecs are trained on a sample of all snapshots, since an allocation keeps its parameters for
/// the run.
///
/// # Errors
/// If a snapshot cannot be read.
pub fn record_run(run: &Run, kinds: &[CodecKind], progress: Progress<'_>) -> Result<RunRecord, Error> {
    let tried = Tried { kinds: kinds.to_vec(), auto: false, threshold: DEFAULT_THRESHOLD };
    Ok(Measured::look_at(run, &tried, |_| Rows::RECORD, progress)?.to_record())
}

#[cfg(test)]
mod tests {
    use buddy_core::Dtype;
    use buddy_record::{AllocationInfo, Record, RunInfo, SnapshotInfo};
    use buddy_snapshot::RunWriter;

    use super::*;
    use crate::{Observer, train};

    #[test]
    fn a_record_has_the_size_classes_of_the_run() {
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
        let record = record_run(&Run::open(&path).unwrap(), &CodecKind::EVERY, &|_| ()).unwrap();
        record.validate().unwrap();
        assert_eq!(record.sizes[0][0].histograms["bpc"].classes, [157, 0, 0, 0, 0, 0]);
        assert_eq!(record.sizes[1][0].histograms["bpc"].classes, [0, 156, 1, 0, 0, 0]);
        assert_eq!(record.sizes[1][0].pages["bpc"].rows().len(), 3);
        let record = Record::new(record);
        assert_eq!(Record::from_json(&record.to_json()).unwrap(), record);
    }

    #[test]
    fn an_observer_of_memory_gives_the_record_of_the_run_on_disk() {
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
        let mut observer: Option<Observer> = None;
        for step in 0..2u8 {
            let a: Vec<u8> = (0..40_000).map(|i: u32| (i * i * u32::from(step) % 251) as u8).collect();
            let arrays = [&a[..], &[step; 5]];
            writer.write(step.into(), &arrays).unwrap();
            let snapshot = SnapshotInfo { step: step.into(), label: String::new(), file: None };
            let begin = || Observer::new(info.clone(), train(&arrays, &kinds));
            observer.get_or_insert_with(begin).add(snapshot, &arrays, Rows::RECORD, &|_| ());
        }
        let from_disk = record_run(&Run::open(&path).unwrap(), &kinds, &|_| ()).unwrap();
        assert_eq!(observer.unwrap().finish(0.3, false).to_record(), from_disk);
    }
}
