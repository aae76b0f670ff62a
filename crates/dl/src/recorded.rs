//! Maps recorded tensors and their compressibility to the allocations of a trace.
//!
//! A recorded network has the same layers but not always the same tensors, since frameworks fuse,
//! save and free differently. Each of our allocations takes the recording of the same name, else
//! the one at the same position among its kind, else all of its kind.

use buddy_core::{Histogram, SizeClass};
use buddy_record::{AllocationInfo, RunRecord};

/// Returns, for each of our allocations, the indices of the recorded ones that represent it; empty
/// if none of its kind was recorded. The kind is the call site.
pub fn matches(recorded: &[AllocationInfo], ours: &[AllocationInfo]) -> Vec<Vec<usize>> {
    ours.iter()
        .enumerate()
        .map(|(number, one)| {
            by_name(recorded, one).unwrap_or_else(|| {
                let kind = |all: &[AllocationInfo]| -> Vec<usize> {
                    (0..all.len()).filter(|&number| all[number].call_site == one.call_site).collect()
                };
                let (theirs, own) = (kind(recorded), kind(ours));
                if theirs.len() == own.len() {
                    let position = own
                        .iter()
                        .position(|&other| other == number)
                        .expect("an allocation is among its own kind");
                    vec![theirs[position]]
                } else {
                    theirs
                }
            })
        })
        .collect()
}

/// Returns the recorded allocation of this name, else its parts: `weights/conv1` matches
/// `weights/conv1.weight`.
fn by_name(recorded: &[AllocationInfo], one: &AllocationInfo) -> Option<Vec<usize>> {
    if let Some(number) = recorded.iter().position(|other| other.name == one.name) {
        return Some(vec![number]);
    }
    let is_part = |other: &AllocationInfo| {
        let rest = other.name.strip_prefix(one.name.as_str()).and_then(|rest| rest.strip_prefix('.'));
        // The gradient of a layer's output is not part of its weight gradient.
        other.call_site == one.call_site && rest.is_some_and(|rest| rest != "output")
    };
    let parts: Vec<usize> = (0..recorded.len()).filter(|&number| is_part(&recorded[number])).collect();
    (!parts.is_empty()).then_some(parts)
}

/// Returns the recorded entries that represent each of our allocations, by size class under a
/// codec, over all snapshots in which they are live. Empty if none of the kind was recorded under
/// that codec.
pub fn histograms_of(record: &RunRecord, codec: &str, ours: &[AllocationInfo]) -> Vec<Histogram> {
    let seen = |number: usize| -> Histogram {
        record.sizes.iter().filter_map(|sizes| sizes.get(number)?.histograms.get(codec).copied()).sum()
    };
    let all: Vec<Histogram> = (0..record.run.allocations.len()).map(seen).collect();
    let found = matches(&record.run.allocations, ours);
    found.into_iter().map(|numbers| numbers.into_iter().map(|number| all[number]).sum()).collect()
}

/// Returns the share of each size class, in the order of [`SizeClass::ALL`], for each of our
/// allocations. Unrecorded ones count as raw.
pub fn classes_of(record: &RunRecord, codec: &str, ours: &[AllocationInfo]) -> Vec<[f64; 6]> {
    histograms_of(record, codec, ours).iter().map(shares).collect()
}

fn shares(histogram: &Histogram) -> [f64; 6] {
    let entries = histogram.entries();
    if entries == 0 {
        return SizeClass::ALL.map(|class| if class == SizeClass::Raw { 1.0 } else { 0.0 });
    }
    histogram.classes.map(|count| count as f64 / entries as f64)
}

#[cfg(test)]
mod tests {

    use buddy_core::Dtype;
    use buddy_record::{AllocationSizes, RunInfo, SnapshotInfo};

    use super::*;

    fn allocations(names: &[&str]) -> Vec<AllocationInfo> {
        let allocation = |name: &&str| AllocationInfo {
            name: (*name).to_owned(),
            call_site: name.split('/').next().unwrap().to_owned(),
            base: 0,
            bytes: 1280,
            dtype: Dtype::F32,
        };
        names.iter().map(allocation).collect()
    }

    #[test]
    fn allocations_match_by_name_parts_position_then_kind() {
        let recorded = allocations(&[
            "weights/conv1",
            "weights/conv2.conv",
            "weights/conv2.bias",
            "gradients/conv1.output",
            "optimizer/a",
            "optimizer/b",
            "input/images",
        ]);
        let ours = allocations(&[
            "weights/conv1",
            "weights/conv2",
            "weights/conv",
            "gradients/conv1",
            "gradients/conv1.output",
            "optimizer/x",
            "optimizer/y",
            "input/batch",
            "workspace/w",
        ]);
        let found = matches(&recorded, &ours);
        // By name; by parts; by position, since both have three of the kind: the third.
        assert_eq!(found[..3], [vec![0], vec![1, 2], vec![2]]);
        // Two gradients of ours, one recorded: all of the kind.
        assert_eq!(found[3..5], [vec![3], vec![3]]);
        assert_eq!(found[5..], [vec![4], vec![5], vec![6], vec![]]);
    }

    #[test]
    fn shares_cover_only_live_snapshots() {
        let mut run = RunInfo::new("net", serde_json::Map::new(), allocations(&["activations/a"]));
        run.snapshots = vec![SnapshotInfo { step: 0, label: String::new(), file: None }; 3];
        let alive = |classes| {
            let histogram = Histogram { classes, optimistic_bytes: 0 };
            AllocationSizes { histograms: [("bpc".to_owned(), histogram)].into(), ..Default::default() }
        };
        let sizes = vec![
            vec![alive([10, 0, 0, 0, 0, 0])],
            vec![AllocationSizes::default()],
            vec![alive([0, 0, 0, 5, 0, 5])],
        ];
        let record = RunRecord { run, sizes };
        let ours = allocations(&["activations/a", "weights/a"]);
        assert_eq!(
            classes_of(&record, "bpc", &ours),
            [[0.5, 0.0, 0.0, 0.25, 0.0, 0.25], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]
        );
        assert_eq!(histograms_of(&record, "bdi", &ours)[0].entries(), 0);
    }
}
