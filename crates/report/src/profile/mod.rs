//! `buddy profile` for the terminal and as a page.

mod link;
mod page;
mod phases;
mod rows;
mod slider;
mod text;

pub use page::profile_page;
pub use rows::profile_csv;
pub use text::profile_text;

use buddy_core::{ENTRY_BYTES, Histogram, Target, Targets};
use buddy_record::{AllocationTarget, Policy, PolicyOutcome, Profile};

/// Returns the share of an allocation's entries that overflow: the mean over its live snapshots,
/// and the worst.
fn overflow(profile: &Profile, index: usize) -> (f64, f64) {
    let entries = profile.run.allocations[index].entries().max(1) as f64;
    let counts = &profile.allocations[index].overflowing;
    let histograms = histograms(profile, index, &profile.targets.allocations[index].codec);
    let alive = histograms.iter().filter(|histogram| histogram.entries() > 0).count();
    let mean = counts.iter().sum::<u64>() as f64 / alive.max(1) as f64;
    (mean / entries, counts.iter().copied().max().unwrap_or(0) as f64 / entries)
}

/// Returns the ratio of one allocation with its chosen target.
fn ratio_of(profile: &Profile, index: usize) -> f64 {
    let bytes = profile.run.allocations[index].entries() * ENTRY_BYTES as u64;
    match profile.allocations[index].device_bytes {
        0 => 1.0,
        device => bytes as f64 / device as f64,
    }
}

/// Formats a target, or the number of ranges.
fn target_text(row: &AllocationTarget) -> String {
    match &row.targets {
        Targets::Uniform(target) => target.to_string(),
        Targets::Pages(ranges) => format!("{} ranges", ranges.len()),
    }
}

/// Formats a share in percent without insignificant digits; small ones with two significant digits.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if (percent - percent.round()).abs() < 1e-9 {
        return format!("{percent:.0}%");
    }
    let small = (1.0 - percent.abs().log10().floor()).clamp(2.0, 9.0) as usize;
    format!("{percent:.small$}%")
}

/// Returns the codec of an allocation (`-` if uncompressed) and its parameters.
fn codec_text(profile: &Profile, index: usize) -> (String, String) {
    let row = &profile.targets.allocations[index];
    match row.targets.uniform() {
        Some(Target::Uncompressed) => ("-".to_owned(), String::new()),
        _ => (row.codec.clone(), profile.allocations[index].learned.clone()),
    }
}

/// Returns the peak of live memory, which savings refer to; all memory if everything lives
/// throughout.
fn footprint(profile: &Profile, one: &PolicyOutcome) -> u64 {
    profile.run.bytes().min((one.ratio * one.device_bytes as f64).round() as u64)
}

/// Returns the outcome of the chosen policy and codec.
fn chosen(profile: &Profile) -> Option<&PolicyOutcome> {
    profile.outcome(profile.policy, &profile.codec)
}

/// Returns whether no measured, recommendable outcome has a larger ratio than the chosen one. With a
/// machine, only targets within its limit of slowdown are recommendable.
fn is_recommended(profile: &Profile) -> bool {
    let by_link = profile.advice.is_some();
    let may_be = |one: &&PolicyOutcome| match one.policy {
        Policy::Naive | Policy::Plan => false,
        policy => (policy == Policy::Link) == by_link,
    };
    let (chosen, best) = (chosen(profile).filter(may_be), profile.best());
    chosen.zip(best).is_some_and(|(chosen, best)| chosen.ratio >= best.ratio)
}

/// Returns the histograms of an allocation with this codec, or with the first measured one.
fn histograms<'a>(profile: &'a Profile, index: usize, codec: &str) -> &'a [Histogram] {
    let all = &profile.allocations[index].histograms;
    all.get(codec).or_else(|| all.values().next()).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
