//! A run measured while it happens, from the memory of the program itself.

use buddy_codec::{Codec, CodecKind};
use buddy_core::{PageMap, RunInfo, SnapshotInfo};

use crate::{
    Measured, MeasuredAllocation, MeasuredCodec, Memory, Progress, Tried, measure, page_map, sample,
};

/// Pages of an allocation that a picture shows at most.
const MOST_ROWS: usize = 256;

/// Measures a run as [`Measured::from_run`] does, without its snapshots on disk. The difference: a codec that
/// learns sees the first snapshot only, and with `auto` every candidate is measured in full, not by a sample.
#[derive(Debug)]
pub struct Watcher {
    run: RunInfo,
    tried: Tried,
    /// For each allocation its sizes with every codec.
    codecs: Vec<Vec<MeasuredCodec>>,
    maps: Vec<PageMap>,
}

impl Watcher {
    /// Begins with a run that has not been looked at yet. Of the codecs tried, the first is the paper's.
    pub fn new(run: RunInfo, tried: Tried) -> Self {
        Self { run, tried, codecs: Vec::new(), maps: Vec::new() }
    }

    /// Measures the arrays as they are now.
    ///
    /// # Panics
    /// If there is not one array for every allocation of the run.
    pub fn add(&mut self, snapshot: SnapshotInfo, arrays: &[impl Memory], progress: Progress<'_>) {
        assert_eq!(arrays.len(), self.run.allocations.len(), "one array for each allocation");
        if self.codecs.is_empty() {
            self.codecs = arrays.iter().map(|array| trained(array, &self.kinds())).collect();
        }
        self.maps.clear();
        for (array, measured) in arrays.iter().zip(&mut self.codecs) {
            let codecs: Vec<Codec> = measured.iter().filter_map(|one| one.codec.clone()).collect();
            for (one, sizes) in measured.iter_mut().zip(measure(array, &codecs, progress)) {
                one.histograms.push(sizes.histogram);
                one.pages.get_or_insert_default().push(sizes.pages);
            }
            self.maps.push(page_map(array, &codecs[0], MOST_ROWS));
        }
        self.run.snapshots.push(snapshot);
    }

    /// The measured run. The pages of codecs that no policy asks for are let go.
    pub fn finish(self) -> Measured {
        let allocation = |(codecs, map)| {
            let mut found = MeasuredAllocation::new(codecs, Some(map), self.tried.threshold);
            let auto = found.auto;
            let others = found.codecs.iter_mut().enumerate().filter(|(index, _)| ![0, auto].contains(index));
            others.for_each(|(_, codec)| codec.pages = None);
            found
        };
        let allocations = self.codecs.into_iter().zip(self.maps).map(allocation).collect();
        Measured { run: self.run, allocations, auto: self.tried.auto }
    }

    /// The codecs that are tried on every allocation.
    fn kinds(&self) -> Vec<CodecKind> {
        let mut kinds = self.tried.kinds.clone();
        let more = if self.tried.auto { crate::candidates() } else { Vec::new() };
        kinds.extend(more.into_iter().filter(|kind| !self.tried.kinds.contains(kind)));
        kinds
    }
}

fn trained(array: &impl Memory, kinds: &[CodecKind]) -> Vec<MeasuredCodec> {
    let sample = sample(array);
    let one = |kind: &CodecKind| MeasuredCodec {
        kind: *kind,
        codec: Some(kind.train(&sample)),
        histograms: Vec::new(),
        pages: None,
    };
    kinds.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use buddy_core::{AllocationInfo, Dtype, Policy};
    use buddy_snapshot::{Run, RunWriter};

    use super::*;
    use crate::{CodecChoice, Settings, profile};

    /// Half zeros, half a ramp that grows with time.
    fn memory(step: u64) -> Vec<u8> {
        let ramp = |i: u64| if i < 20_000 { 0 } else { (i * step) as u32 };
        (0..40_000).flat_map(|i| ramp(i).to_le_bytes()).collect()
    }

    #[test]
    fn a_watched_run_is_profiled_like_its_snapshots() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let allocation = AllocationInfo {
            name: "ramp".to_owned(),
            call_site: "main".to_owned(),
            base: 0,
            bytes: 160_000,
            dtype: Dtype::I32,
        };
        let info = RunInfo::new("demo", Default::default(), vec![allocation]);
        let tried = Tried { kinds: vec![CodecKind::Bpc], auto: false, threshold: 0.3 };
        let mut writer = RunWriter::create(&path, info.clone(), 2).unwrap();
        let mut watcher = Watcher::new(info, tried.clone());
        for step in [1, 1 << 20] {
            let arrays = [memory(step)];
            writer.write(step, &[&arrays[0]]).unwrap();
            let snapshot = SnapshotInfo { step, label: String::new(), file: None };
            watcher.add(snapshot, &[&arrays[0][..]], &|_| ());
        }
        let settings = Settings {
            threshold: 0.3,
            policy: Policy::Page,
            codec: CodecChoice::Fixed(CodecKind::Bpc),
            plan: None,
        };
        let stored = Measured::from_run(&Run::open(&path).unwrap(), &tried, &|_| ()).unwrap();
        let (mut from_disk, _) = profile(&stored, &settings).unwrap();
        let (watched, _) = profile(&watcher.finish(), &settings).unwrap();
        from_disk.run = watched.run.clone();
        assert_eq!(watched, from_disk);
        assert!(watched.outcome(Policy::Page, "bpc").unwrap().ratio > 1.5);
    }
}
