//! The analysis of arrays in files: the paper's codec beside the best of ours.

use buddy_codec::{Codec, CodecKind};
use buddy_core::{Analysis, ArrayAnalysis, Fit, Histogram, Outcome, PageMap};
use buddy_snapshot::Array;

use crate::{Progress, candidates, choose_codec, measure, page_map, sample};

/// Most rows of one page map, and of all of them together: a picture stays readable and a page small.
const MOST_ROWS: usize = 512;
const ALL_ROWS: usize = 16_384;
/// Rows that even the smallest array may have.
const FEWEST_ROWS: usize = 8;

/// Analyses the arrays of files, given with the names of their files.
pub fn analyze(arrays: &[(String, Array)], threshold: f64, progress: Progress<'_>) -> Analysis {
    let all_bytes: usize = arrays.iter().map(|(_, array)| array.bytes().len()).sum();
    let analyze_one = |(file, array): &(String, Array)| {
        analyze_array(file, array, threshold, rows(array.bytes().len(), all_bytes), progress)
    };
    let arrays: Vec<ArrayAnalysis> = arrays.iter().map(analyze_one).collect();
    let bpc = Fit::total(arrays.iter().map(|array| &array.bpc.fit));
    let auto = Fit::total(arrays.iter().map(|array| &array.auto.fit));
    Analysis { threshold, arrays, bpc, auto }
}

/// How many pages of an array are shown: its share of all rows, within limits.
fn rows(bytes: usize, all_bytes: usize) -> usize {
    let share = ALL_ROWS as f64 * bytes as f64 / all_bytes.max(1) as f64;
    (share as usize).clamp(FEWEST_ROWS, MOST_ROWS)
}

fn analyze_array(
    file: &str,
    array: &Array,
    threshold: f64,
    rows: usize,
    progress: Progress<'_>,
) -> ArrayAnalysis {
    let sample = sample(array);
    let bpc = CodecKind::Bpc.train(&sample);
    let auto = choose_codec(&sample, &candidates(), threshold);
    let same = bpc == auto;
    let codecs = if same { vec![bpc] } else { vec![bpc, auto] };
    let histograms = measure(array, &codecs, progress);
    let outcomes: Vec<Outcome> = codecs
        .iter()
        .zip(histograms)
        .map(|(codec, histogram)| outcome(codec, histogram, threshold, page_map(array, codec, rows)))
        .collect();
    let bpc = outcomes[0].clone();
    let auto = outcomes.get(1).cloned().unwrap_or_else(|| Outcome { pages: None, ..bpc.clone() });
    ArrayAnalysis {
        file: file.to_owned(),
        name: array.name.clone(),
        dtype: array.dtype,
        shape: array.shape.clone(),
        bytes: array.bytes().len() as u64,
        bpc,
        auto,
    }
}

fn outcome(codec: &Codec, histogram: Histogram, threshold: f64, pages: PageMap) -> Outcome {
    let target = histogram.target_at(threshold);
    let fit = Fit::at(histogram, target);
    Outcome { codec: codec.kind().name().to_owned(), target, fit, pages: Some(pages) }
}

#[cfg(test)]
mod tests {
    use buddy_core::{Dtype, Record, SizeClass, Target};

    use super::*;

    fn array(name: &str, bytes: Vec<u8>) -> (String, Array) {
        ("file".to_owned(), Array::from_memory(name, Dtype::U8, bytes).unwrap())
    }

    #[test]
    fn each_array_has_its_target_and_the_total_weighs_them() {
        let arrays = [array("zeros", vec![0; 128 * 300]), array("one", vec![1; 128]), array("none", vec![])];
        let analysis = analyze(&arrays, 0.3, &|_| ());
        let targets: Vec<Target> = analysis.arrays.iter().map(|array| array.bpc.target).collect();
        assert_eq!(targets, [Target::X16, Target::X16, Target::X1]);
        assert_eq!(analysis.bpc.histogram.entries(), 301);
        assert_eq!(analysis.bpc.histogram.classes[SizeClass::B8.index()], 1);
        assert_eq!(analysis.bpc.ratio, 16.0);
        let json = Record::new(analysis).to_json();
        Record::<Analysis>::from_json(&json).unwrap();
    }

    /// bf16 values of a few exponents and random mantissas: noise to BPC, three sectors to a float codec.
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
        assert!(weights.auto.pages.is_some(), "both are shown");
    }

    #[test]
    fn rows_are_shared_out() {
        assert_eq!(rows(100, 100), MOST_ROWS);
        assert_eq!(rows(1, 1_000_000), FEWEST_ROWS);
        assert_eq!(rows(100, 10_000), ALL_ROWS / 100);
        assert_eq!(rows(0, 0), FEWEST_ROWS);
    }
}
