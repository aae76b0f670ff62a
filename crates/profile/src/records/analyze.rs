//! Analyses arrays in files with the paper's codec and with the best candidate codec.

use buddy_codec::CodecKind;
use buddy_core::{Target, conservative_target};
use buddy_record::{
    AllocationInfo, Analysis, ArrayAnalysis, Fit, Outcome, RunInfo, SnapshotInfo, SweepPoint,
};
use buddy_snapshot::Array;

use crate::{
    Measured, MeasuredAllocation, MeasuredCodec, Observer, Progress, Rows, Tried,
    records::measured::codecs_for,
};

/// Analyses arrays, each given with the name of its file.
///
/// Each array gets the codec and target that a profile would give an allocation. The carve-out's
/// limit of 4x over a whole program does not apply.
pub fn analyze(arrays: &[(String, Array)], threshold: f64, progress: Progress<'_>) -> Analysis {
    let tried = Tried { kinds: vec![CodecKind::Bpc], auto: true, threshold };
    let codecs = arrays.iter().map(|(_, array)| codecs_for(&[array], &tried, &[])).collect();
    let mut observer = Observer::new(as_run(arrays), codecs);
    let bare: Vec<&Array> = arrays.iter().map(|(_, array)| array).collect();
    let snapshot = SnapshotInfo { step: 0, label: String::new(), file: None };
    observer.add(snapshot, &bare, Rows::ANALYSIS, progress);
    let measured = observer.finish(threshold, true);
    let analyzed = arrays.iter().zip(&measured.allocations).map(|((file, array), seen)| ArrayAnalysis {
        file: file.clone(),
        name: array.name.clone(),
        dtype: array.dtype,
        shape: array.shape.clone(),
        bytes: array.bytes().len() as u64,
        bpc: outcome(&seen.codecs[0], threshold),
        auto: chosen(seen, threshold),
        peers: Default::default(),
    });
    let arrays: Vec<ArrayAnalysis> = analyzed.collect();
    let bpc = Fit::total(arrays.iter().map(|array| &array.bpc.fit));
    let auto = Fit::total(arrays.iter().map(|array| &array.auto.fit));
    Analysis { threshold, arrays, skipped: Vec::new(), bpc, auto, sweep: sweep(&measured, threshold) }
}

/// Returns the totals at the thresholds of a chart and at the given one.
fn sweep(measured: &Measured, threshold: f64) -> Vec<SweepPoint> {
    let mut thresholds: Vec<f64> = (0..=12).map(|step| f64::from(step) / 20.0).chain([threshold]).collect();
    thresholds.sort_by(f64::total_cmp);
    thresholds.dedup();
    let point = |codec: &str, index: fn(&MeasuredAllocation) -> usize, threshold: f64| {
        let measured = measured.at_threshold(threshold);
        let fits: Vec<Fit> =
            measured.allocations.iter().map(|seen| fit(&seen.codecs[index(seen)], threshold).1).collect();
        let Fit { ratio, overflow_share, .. } = Fit::total(fits.iter());
        SweepPoint { codec: codec.to_owned(), threshold, ratio, mean_overflow: overflow_share }
    };
    let bpc = thresholds.iter().map(|&threshold| point("bpc", |_| 0, threshold));
    let auto = thresholds.iter().map(|&threshold| point("auto", |seen| seen.auto, threshold));
    bpc.chain(auto).collect()
}

/// Describes the arrays as the allocations of a run.
fn as_run(arrays: &[(String, Array)]) -> RunInfo {
    let info = |(file, array): &(String, Array)| AllocationInfo {
        name: array.name.clone(),
        call_site: file.clone(),
        base: 0,
        bytes: array.bytes().len() as u64,
        dtype: array.dtype,
    };
    RunInfo::new("", Default::default(), arrays.iter().map(info).collect())
}

fn fit(seen: &MeasuredCodec, threshold: f64) -> (Target, Fit) {
    let target = conservative_target(&seen.histograms, threshold, true);
    (target, Fit::at(seen.histograms[0], target).with_parameters(seen.parameter_bytes))
}

fn outcome(seen: &MeasuredCodec, threshold: f64) -> Outcome {
    let (target, fit) = fit(seen, threshold);
    Outcome { codec: seen.kind.name().to_owned(), target, fit, pages: seen.maps[0].clone() }
}

/// Returns the outcome with the best codec. Omits the page map if that is the paper's codec, whose
/// outcome already has it.
fn chosen(seen: &MeasuredAllocation, threshold: f64) -> Outcome {
    let found = outcome(&seen.codecs[seen.auto], threshold);
    Outcome { pages: found.pages.filter(|_| seen.auto > 0), ..found }
}

#[cfg(test)]
mod tests {
    use buddy_core::{Dtype, SizeClass};
    use buddy_record::Record;

    use super::*;

    fn array(name: &str, bytes: Vec<u8>) -> (String, Array) {
        ("file".to_owned(), Array::from_memory(name, Dtype::U8, bytes).unwrap())
    }

    #[test]
    fn each_array_has_its_target_and_the_total_weighs_them() {
        let arrays = [array("zeros", vec![0; 128 * 300]), array("one", vec![1; 128]), array("none", vec![])];
        let analysis = analyze(&arrays, 0.3, &|_| ());
        let targets: Vec<Target> = analysis.arrays.iter().map(|array| array.bpc.target).collect();
        assert_eq!(targets, [Target::X16, Target::X4, Target::X1], "small values are not zeros");
        assert_eq!(analysis.bpc.histogram.entries(), 301);
        assert_eq!(analysis.bpc.histogram.classes[SizeClass::B8.index()], 1);
        assert_eq!(analysis.bpc.ratio, 301.0 * 128.0 / (300.0 * 8.0 + 32.0));
        let json = Record::new(analysis).to_json();
        Record::<Analysis>::from_json(&json).unwrap();
    }

    /// bf16 values with few exponents and random mantissas: incompressible for BPC, three sectors
    /// for bf16.
    #[test]
    fn auto_finds_the_codec_that_suits() {
        let mut state = 7u64;
        let mut weight = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let noise = (state >> 40) as u16;
            (noise & 0x807f) | ((118 + (noise >> 7) % 6) << 7)
        };
        let bytes = (0..64 * 8000).flat_map(|_| weight().to_le_bytes()).collect();
        let analysis = analyze(&[array("weights", bytes)], 0.3, &|_| ());
        let weights = &analysis.arrays[0];
        assert_eq!((weights.bpc.codec.as_str(), weights.bpc.target), ("bpc", Target::X1));
        assert_eq!((weights.auto.codec.as_str(), weights.auto.target), ("bf16", Target::X4Over3));
        assert!(weights.auto.pages.is_some(), "both outcomes have page maps");
        assert!(analysis.sweep.iter().any(|one| (one.codec.as_str(), one.threshold) == ("auto", 0.6)));
        for (codec, fit) in [("bpc", analysis.bpc), ("auto", analysis.auto)] {
            let here = analysis.sweep.iter().find(|one| (one.codec.as_str(), one.threshold) == (codec, 0.3));
            assert_eq!(here.map(|one| one.ratio), Some(fit.ratio), "the chart agrees with the result");
        }
    }
}
