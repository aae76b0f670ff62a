//! The record of `buddy analyze`: the compressibility of arrays and the effect of targets on it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{RecordKind, Skipped, SweepPoint};
use buddy_core::{Dtype, ENTRY_BYTES, Histogram, PageMap, Target};

/// Compressibility of the arrays of some files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Analysis {
    /// Largest share of entries that a target may overflow to buddy memory.
    pub threshold: f64,
    /// Every array, in the order of the files.
    pub arrays: Vec<ArrayAnalysis>,
    /// Datasets, fields and files that were skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// Totals over all arrays with the paper's codec.
    pub bpc: Fit,
    /// Totals over all arrays, each with the codec chosen for it.
    pub auto: Fit,
    /// Ratio and overflow at other thresholds, with `bpc` and with `auto`: the best of each array's
    /// measured codecs at that threshold. Empty in older records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweep: Vec<SweepPoint>,
}

impl RecordKind for Analysis {
    const KIND: &'static str = "analysis";
    const VERSION: u32 = 1;

    fn check(&self) -> Result<(), String> {
        let bytes = self.arrays.iter().fold(0, |sum: u64, array| sum.saturating_add(array.bytes));
        if bytes > 1 << 63 {
            return Err("the arrays have more than 2^63 bytes together".to_owned());
        }
        for array in &self.arrays {
            for outcome in [&array.bpc, &array.auto] {
                let at = |why| format!("array {:?}, codec {}: {why}", array.name, outcome.codec);
                outcome.check(array.bytes.div_ceil(ENTRY_BYTES as u64)).map_err(at)?;
            }
        }
        Ok(())
    }
}

/// Results of one array with the paper's codec and with the codec chosen for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayAnalysis {
    /// File that holds the array.
    pub file: String,
    /// Name in the file, unique there.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, slowest first.
    pub shape: Vec<u64>,
    /// Bytes of all elements.
    pub bytes: u64,
    /// Result with the paper's codec.
    pub bpc: Outcome,
    /// Result with the codec chosen from a sample of its entries.
    pub auto: Outcome,
    /// Estimated bytes with general compressors in independent blocks of 64 KiB, each after the best of
    /// byte shuffles, by name; empty unless requested.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<String, u64>,
}

/// Result of one array with one codec.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Name of the codec.
    pub codec: String,
    /// Target chosen at the threshold.
    pub target: Target,
    /// Memory use at the target.
    pub fit: Fit,
    /// Sampled pages; `None` if another outcome shows the same pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageMap>,
}

impl Outcome {
    fn check(&self, entries: u64) -> Result<(), &'static str> {
        let Fit { histogram, device_bytes, overflowing, .. } = self.fit;
        if !histogram.fits(entries) || overflowing > entries {
            return Err("the sizes are not of its entries");
        }
        if self.fit != Fit::new(histogram, device_bytes, overflowing) {
            return Err("the ratios are not of its sizes");
        }
        match &self.pages {
            Some(map) if !map.fits(entries) => Err("the page map has rows of other lengths"),
            _ => Ok(()),
        }
    }
}

/// Memory use of entries at their targets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// Entries by size class.
    pub histogram: Histogram,
    /// Compression ratio with the paper's eight sizes; `None` if every entry is zero.
    pub optimistic_ratio: Option<f64>,
    /// Bytes in device memory, without the four bits of metadata per entry.
    pub device_bytes: u64,
    /// Uncompressed bytes per device byte.
    pub ratio: f64,
    /// Entries that need buddy memory.
    pub overflowing: u64,
    /// Overflowing entries over all entries, 0 to 1.
    pub overflow_share: f64,
}

impl Fit {
    /// Returns the memory use of the entries at one target.
    pub fn at(histogram: Histogram, target: Target) -> Self {
        let device_bytes = histogram.entries() * target.device_bytes() as u64;
        Self::new(histogram, device_bytes, histogram.overflowing(target))
    }

    /// Adds `parameter_bytes` of codec parameters to the device bytes.
    #[must_use]
    pub fn with_parameters(self, parameter_bytes: u64) -> Self {
        Self::new(self.histogram, self.device_bytes + parameter_bytes, self.overflowing)
    }

    /// Sums several parts.
    pub fn total<'a>(parts: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let histogram = parts.clone().map(|fit| fit.histogram).sum();
        let device_bytes = parts.clone().map(|fit| fit.device_bytes).sum();
        Self::new(histogram, device_bytes, parts.map(|fit| fit.overflowing).sum())
    }

    fn new(histogram: Histogram, device_bytes: u64, overflowing: u64) -> Self {
        let ratio = if device_bytes == 0 { 1.0 } else { histogram.bytes() as f64 / device_bytes as f64 };
        Self {
            histogram,
            optimistic_ratio: histogram.optimistic_ratio(),
            device_bytes,
            ratio,
            overflowing,
            overflow_share: overflowing as f64 / histogram.entries().max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_weigh_by_their_entries() {
        let half = Histogram { classes: [0, 0, 0, 90, 0, 10], optimistic_bytes: 100 * 64 };
        let zero = Histogram { classes: [300, 0, 0, 0, 0, 0], optimistic_bytes: 0 };
        let fits = [Fit::at(half, Target::X2), Fit::at(zero, Target::X16)];
        assert_eq!((fits[0].ratio, fits[0].overflow_share), (2.0, 0.1));
        assert_eq!(fits[1].optimistic_ratio, None);
        let all = Fit::total(fits.iter());
        assert_eq!(all.device_bytes, 100 * 64 + 300 * 8);
        assert_eq!((all.overflowing, all.overflow_share), (10, 0.025));
        assert_eq!(all.ratio, 400.0 * 128.0 / 8800.0);
        assert_eq!(Fit::total([].iter()).ratio, 1.0);
    }
}
