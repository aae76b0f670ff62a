//! Drops the histograms of dominated codecs from a record.
//!
//! One codec dominates another on an allocation if, in every snapshot and for every size, at least
//! as many of its entries are within that size. No target and no threshold then prefers the other.

use std::collections::BTreeMap;

use buddy_core::Histogram;
use buddy_record::{AllocationSizes, RunRecord};

/// Keeps, for every allocation, the codec named `first` and the codecs that no other dominates.
pub fn drop_beaten(record: &mut RunRecord, first: &str) {
    for allocation in 0..record.run.allocations.len() {
        let mut column: Vec<&mut AllocationSizes> =
            record.sizes.iter_mut().map(|snapshot| &mut snapshot[allocation]).collect();
        let kept = unbeaten(&by_codec(&column), first);
        for sizes in &mut column {
            sizes.histograms.retain(|codec, _| kept.contains(codec));
        }
    }
}

/// Returns the histograms of one allocation in every snapshot, by codec.
fn by_codec(column: &[&mut AllocationSizes]) -> BTreeMap<String, Vec<Histogram>> {
    let mut codecs: BTreeMap<String, Vec<Histogram>> = BTreeMap::new();
    for (codec, histogram) in column.iter().flat_map(|sizes| &sizes.histograms) {
        codecs.entry(codec.clone()).or_default().push(*histogram);
    }
    codecs
}

/// Returns `first` and the codecs that no other dominates. Of equal codecs the earlier stays.
fn unbeaten(codecs: &BTreeMap<String, Vec<Histogram>>, first: &str) -> Vec<String> {
    let rest = codecs.keys().filter(|codec| *codec != first);
    let mut kept: Vec<String> = codecs.keys().filter(|codec| *codec == first).cloned().collect();
    for codec in rest {
        if kept.iter().any(|other| beats(&codecs[other], &codecs[codec])) {
            continue;
        }
        kept.retain(|other| other == first || !beats(&codecs[codec], &codecs[other]));
        kept.push(codec.clone());
    }
    kept
}

/// Returns whether `left` is at least as good as `right` in every snapshot and at every size.
fn beats(left: &[Histogram], right: &[Histogram]) -> bool {
    left.iter().zip(right).all(|(left, right)| {
        let (mut more, mut fewer) = (0, 0);
        left.classes.iter().zip(&right.classes).all(|(l, r)| {
            more += l;
            fewer += r;
            more >= fewer
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(codecs: &[(&str, &[[u64; 6]])]) -> Vec<String> {
        let histogram = |classes: &[u64; 6]| Histogram { classes: *classes, optimistic_bytes: 0 };
        let codecs = codecs
            .iter()
            .map(|(name, snapshots)| ((*name).to_owned(), snapshots.iter().map(histogram).collect()))
            .collect();
        unbeaten(&codecs, "bpc")
    }

    #[test]
    fn the_first_codec_stays_and_dominated_codecs_go() {
        let (good, bad) = ([0, 0, 4, 0, 0, 0], [0, 0, 0, 4, 0, 0]);
        assert_eq!(kept(&[("bpc", &[bad]), ("x", &[good]), ("y", &[bad])]), ["bpc", "x"]);
        assert_eq!(kept(&[("bpc", &[bad]), ("x", &[bad]), ("y", &[good])]), ["bpc", "y"]);
        assert_eq!(kept(&[("bpc", &[good]), ("x", &[good])]), ["bpc"], "an equal codec is dropped");
        assert_eq!(kept(&[("bpc", &[bad]), ("w", &[[0, 0, 1, 3, 0, 0]]), ("x", &[good])]), ["bpc", "x"]);
    }

    #[test]
    fn a_codec_that_is_better_somewhere_stays() {
        let (low, flat) = ([1, 0, 0, 0, 0, 3], [0, 0, 0, 4, 0, 0]);
        assert_eq!(kept(&[("bpc", &[low]), ("x", &[flat])]), ["bpc", "x"]);
        assert_eq!(kept(&[("bpc", &[low, flat]), ("x", &[flat, flat])]), ["bpc", "x"]);
        assert_eq!(kept(&[("bpc", &[flat, flat]), ("x", &[flat, low])]), ["bpc", "x"]);
    }
}
