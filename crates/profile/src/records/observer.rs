//! Measures the allocations of a run, one snapshot after the other.
//!
//! Each entry is classified once with each codec. Profiles, records, page maps and the simulator's
//! size classes are derived from the result.

use buddy_codec::{Codec, CodecKind, EntryCodec};
use buddy_core::{Blocks, PageMap};
use buddy_record::{AllocationInfo, RunInfo, SnapshotInfo};
use rayon::prelude::*;

use crate::{
    Measured, MeasuredAllocation, MeasuredCodec, Memory, Progress, Rows,
    look::{Look, look},
    sample,
};

/// Measures the memory of a run, in files or in the running program.
#[derive(Debug)]
pub struct Observer {
    run: RunInfo,
    /// Size classes of each allocation with every codec.
    allocations: Vec<Vec<MeasuredCodec>>,
}

impl Observer {
    /// Creates an observer of a run with no snapshots yet, given the codecs of each allocation.
    ///
    /// # Panics
    /// If `codecs` and the run's allocations differ in number.
    pub fn new(run: RunInfo, codecs: Vec<Vec<Codec>>) -> Self {
        assert_eq!(codecs.len(), run.allocations.len(), "codecs for each allocation");
        let all = |codecs: Vec<Codec>| codecs.into_iter().map(MeasuredCodec::new).collect();
        Self { run, allocations: codecs.into_iter().map(all).collect() }
    }

    /// Adds a snapshot: classifies the current contents of the arrays and keeps the pages given by
    /// `rows`.
    ///
    /// # Panics
    /// If `arrays` and the run's allocations differ in number.
    pub fn add(
        &mut self,
        snapshot: SnapshotInfo,
        arrays: &[impl Memory],
        rows: Rows,
        progress: Progress<'_>,
    ) {
        assert_eq!(arrays.len(), self.allocations.len(), "one array for each allocation");
        let bytes = self.run.bytes();
        let one = |((array, codecs), info): ((_, &Vec<MeasuredCodec>), &AllocationInfo)| {
            let codecs: Vec<Codec> = codecs.iter().filter_map(|one| one.codec.clone()).collect();
            look(array, &codecs, rows.of(info.bytes, bytes), progress)
        };
        let all = arrays.par_iter().zip(&self.allocations).zip(&self.run.allocations).map(one);
        let looks: Vec<Vec<Look>> = all.collect();
        for (seen, look) in self.allocations.iter_mut().flatten().zip(looks.into_iter().flatten()) {
            seen.add(look);
        }
        self.run.snapshots.push(snapshot);
    }

    /// Returns the measured run, with the best codec of each allocation at the threshold. `auto`
    /// states whether all candidate codecs were tried.
    pub fn finish(self, threshold: f64, auto: bool) -> Measured {
        let allocation = |codecs| MeasuredAllocation::new(codecs, threshold);
        let allocations = self.allocations.into_iter().map(allocation).collect();
        Measured { run: self.run, allocations, auto }
    }
}

impl MeasuredCodec {
    fn new(codec: Codec) -> Self {
        let (histograms, maps) = (Vec::new(), Vec::new());
        let parameter_bytes = codec.parameter_bytes() as u64;
        let (kind, codec, blocks) = (codec.kind(), Some(codec), Some(Vec::new()));
        Self { kind, codec, parameter_bytes, histograms, blocks, maps }
    }

    fn add(&mut self, look: Look) {
        self.histograms.push(look.histogram);
        self.blocks.get_or_insert_default().push(Blocks::from_pages(&look.pages));
        // Much of a program's memory never changes: equal maps are shared.
        let last: Option<&PageMap> = self.maps.last().and_then(Option::as_ref);
        let same = last.filter(|last| Some(*last) == look.map.as_ref()).cloned();
        self.maps.push(same.or(look.map));
    }
}

/// Trains codecs of these kinds for each array, on a sample of its current contents.
pub fn train(arrays: &[impl Memory], kinds: &[CodecKind]) -> Vec<Vec<Codec>> {
    let codecs = |array| {
        let sample = sample(array);
        kinds.iter().map(|kind| kind.train(&sample)).collect()
    };
    arrays.iter().map(codecs).collect()
}

#[cfg(test)]
mod tests {
    use buddy_core::Dtype;
    use buddy_record::{AllocationInfo, Policy};
    use buddy_snapshot::{Run, RunWriter};

    use super::*;
    use crate::{CodecChoice, Settings, Tried, profile};

    /// Half zeros, half a ramp of slope `step`.
    fn memory(step: u64) -> Vec<u8> {
        let ramp = |i: u64| if i < 20_000 { 0 } else { (i * step) as u32 };
        (0..40_000).flat_map(|i| ramp(i).to_le_bytes()).collect()
    }

    #[test]
    fn an_observed_run_has_the_profile_of_its_snapshots() {
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
        let mut observer: Option<Observer> = None;
        for step in [1, 1 << 20] {
            let arrays = [memory(step)];
            writer.write(step, &[&arrays[0]]).unwrap();
            let snapshot = SnapshotInfo { step, label: String::new(), file: None };
            let arrays = [&arrays[0][..]];
            let begin = || Observer::new(info.clone(), train(&arrays, &tried.kinds));
            observer.get_or_insert_with(begin).add(snapshot, &arrays, Rows::EVERY, &|_| ());
        }
        let settings = Settings {
            threshold: 0.3,
            policy: Policy::Page,
            codec: CodecChoice::Fixed(CodecKind::Bpc),
            plan: None,
            link: None,
        };
        let stored = Measured::from_run(&Run::open(&path).unwrap(), &tried, &|_| ()).unwrap();
        let (mut from_disk, _) = profile(&stored, &settings).unwrap();
        let (watched, _) = profile(&observer.unwrap().finish(0.3, false), &settings).unwrap();
        from_disk.run = watched.run.clone();
        assert_eq!(watched, from_disk);
        assert!(watched.outcome(Policy::Page, "bpc").unwrap().ratio > 1.5);
    }
}
