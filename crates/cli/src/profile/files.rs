//! Files that a profile reads and writes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use buddy_codec::CodecKind;
use buddy_profile::write_targets;
use buddy_record::{Profile, Record};

use crate::say;

/// Notes the chosen codecs that have no GPU kernels.
pub(super) fn warn_without_kernels(profile: &Profile) {
    let kernels: Vec<&str> = buddy_cuda::codecs().map(CodecKind::name).collect();
    let mut without: Vec<&str> = profile.targets.allocations.iter().map(|row| row.codec.as_str()).collect();
    without.retain(|codec| !kernels.contains(codec));
    without.sort_unstable();
    without.dedup();
    if !without.is_empty() {
        let names = without.join(", ");
        say(format_args!("note: the GPU runtime has no kernels for {names}; --codec bpc works for all"));
    }
}

/// Returns the files of a run, two levels deep.
pub(super) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let list = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let (dirs, mut files): (Vec<PathBuf>, Vec<PathBuf>) =
        list(dir).into_iter().partition(|path| path.is_dir());
    files.extend(dirs.iter().flat_map(|dir| list(dir)));
    files
}

/// Renders the targets file, with the overflow of each allocation as a comment.
pub(super) fn targets_text(record: &Record<Profile>) -> String {
    let profile = &record.data;
    let about = format!(
        "Targets for {}, made by {} from {} snapshots: policy {}, codec {}, threshold {:.1}%.\n",
        profile.run.program,
        record.tool,
        profile.run.snapshots.len(),
        profile.policy,
        profile.codec,
        profile.threshold * 100.0
    );
    let note = |index: usize| {
        let found = &profile.allocations[index];
        let entries = profile.run.allocations[index].entries().max(1) as f64;
        let worst = found.overflowing.iter().max().copied().unwrap_or(0) as f64 / entries;
        let mean =
            found.overflowing.iter().sum::<u64>() as f64 / entries / found.overflowing.len().max(1) as f64;
        let learned = if found.learned.is_empty() { String::new() } else { format!("; {}", found.learned) };
        format!("{:.2}% of its entries overflow, {:.2}% at worst{learned}", mean * 100.0, worst * 100.0)
    };
    write_targets(&profile.targets, &about, note)
}

#[cfg(test)]
mod tests {
    use buddy_profile::{Place, candidates};

    #[test]
    fn every_recommended_codec_has_kernels() {
        let kernels: Vec<_> = buddy_cuda::codecs().collect();
        assert!(candidates(Place::Memory).iter().all(|kind| kernels.contains(kind)));
        assert!(candidates(Place::Frozen).iter().all(|kind| kernels.contains(kind) && kind.freezes()));
    }
}
