//! `buddy profile` for the terminal and as a page.

mod page;
mod phases;
mod rows;
mod slider;
mod text;

pub use page::profile_page;
pub use rows::profile_csv;
pub use text::profile_text;

use buddy_core::{AllocationTarget, ENTRY_BYTES, Histogram, Policy, PolicyOutcome, Profile, Target, Targets};

/// The share of an allocation's entries that overflow: the mean over the snapshots that it lives in, and the worst.
fn overflow(profile: &Profile, index: usize) -> (f64, f64) {
    let entries = profile.run.allocations[index].entries().max(1) as f64;
    let counts = &profile.allocations[index].overflowing;
    let histograms = histograms(profile, index, &profile.targets.allocations[index].codec);
    let alive = histograms.iter().filter(|histogram| histogram.entries() > 0).count();
    let mean = counts.iter().sum::<u64>() as f64 / alive.max(1) as f64;
    (mean / entries, counts.iter().copied().max().unwrap_or(0) as f64 / entries)
}

/// The ratio of one allocation at what was chosen for it.
fn ratio_of(profile: &Profile, index: usize) -> f64 {
    let bytes = profile.run.allocations[index].entries() * ENTRY_BYTES as u64;
    match profile.allocations[index].device_bytes {
        0 => 1.0,
        device => bytes as f64 / device as f64,
    }
}

/// A target, or how many ranges there are.
fn target_text(row: &AllocationTarget) -> String {
    match &row.targets {
        Targets::Uniform(target) => target.to_string(),
        Targets::Pages(ranges) => format!("{} ranges", ranges.len()),
    }
}

/// A share in percent, without digits that say nothing; a small one with two that do.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if (percent - percent.round()).abs() < 1e-9 {
        return format!("{percent:.0}%");
    }
    let small = (1.0 - percent.abs().log10().floor()).clamp(2.0, 9.0) as usize;
    format!("{percent:.small$}%")
}

/// The codec of an allocation, `-` where nothing is compressed, and what it learned.
fn codec_text(profile: &Profile, index: usize) -> (String, String) {
    let row = &profile.targets.allocations[index];
    match row.targets.uniform() {
        Some(Target::Uncompressed) => ("-".to_owned(), String::new()),
        _ => (row.codec.clone(), profile.allocations[index].learned.clone()),
    }
}

/// The memory that lives at once where most does, for what is saved of it; all of it where everything lives all the time.
fn footprint(profile: &Profile, one: &PolicyOutcome) -> u64 {
    profile.run.bytes().min((one.ratio * one.device_bytes as f64).round() as u64)
}

/// What the policy and codec give whose targets were chosen.
fn chosen(profile: &Profile) -> Option<&PolicyOutcome> {
    profile.outcome(profile.policy, &profile.codec)
}

/// Whether nothing that was measured, and may be recommended, has a larger ratio than what was chosen.
fn is_recommended(profile: &Profile) -> bool {
    let may_be = |one: &&PolicyOutcome| !matches!(one.policy, Policy::Naive | Policy::Plan);
    let (chosen, best) = (chosen(profile).filter(may_be), profile.best());
    chosen.zip(best).is_some_and(|(chosen, best)| chosen.ratio >= best.ratio)
}

/// The optimistic ratio of an allocation in all snapshots, with the paper's codec or the first there is.
fn histograms<'a>(profile: &'a Profile, index: usize, codec: &str) -> &'a [Histogram] {
    let all = &profile.allocations[index].histograms;
    all.get(codec).or_else(|| all.values().next()).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
