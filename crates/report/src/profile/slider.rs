//! The threshold as a slider: the page gets the histograms and computes targets itself (`page.js`).

use buddy_core::{Histogram, SizeClass};
use buddy_record::Profile;

use super::histograms;

/// Maximum number of allocations with embedded histograms: a few megabytes.
const MOST_ALLOCATIONS: usize = 4096;

/// Renders the slider with its data, or a sentence if there are too many allocations.
pub(super) fn slider(profile: &Profile) -> String {
    if profile.allocations.len() > MOST_ALLOCATIONS {
        return "<p class=\"remark\">There are too many allocations to choose their targets in a page.</p>\n"
            .to_owned();
    }
    let percent = profile.threshold * 100.0;
    let first = profile.policies.first().map_or("bpc", |one| one.codec.as_str());
    let each = 0..profile.allocations.len();
    let auto: Vec<String> = each.clone().map(|index| candidates(profile, index)).collect();
    let fixed: Vec<String> = each.map(|index| list([offer(profile, index, first)])).collect();
    format!(
        "<div class=\"slider\"><label>Threshold <input type=\"range\" min=\"0\" max=\"99\" step=\"0.5\" \
         value=\"{percent}\"><output></output></label><div class=\"scroll\"><table><thead><tr><th>codec</th><th class=\"n\">ratio</th>\
         <th class=\"n\">overflow</th><th class=\"n\">at worst</th><th>allocations by target: 1x, 4/3x, 2x, 4x, \
         16x</th></tr></thead><tbody></tbody></table></div>\
         <script type=\"application/json\">{{\"{}\":{},\"auto\":{}}}</script></div>\n",
        crate::escape(first),
        list(fixed),
        list(auto)
    )
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(","))
}

/// Returns the codecs that `auto` chooses from; only the chosen one for older records.
fn candidates(profile: &Profile, index: usize) -> String {
    let found = &profile.allocations[index];
    let all = found.candidates.keys().filter(|codec| found.histograms.contains_key(*codec));
    let mut all: Vec<&String> = all.collect();
    if all.is_empty() {
        all.push(&found.auto);
    }
    list(all.into_iter().map(|codec| offer(profile, index, codec)))
}

/// Returns the parameter bytes of a codec and its class counts in each snapshot.
fn offer(profile: &Profile, index: usize, codec: &str) -> String {
    let counts = |histogram: &Histogram| {
        list(SizeClass::ALL.map(|class| histogram.classes[class.index()].to_string()))
    };
    let parameters = profile.allocations[index].candidates.get(codec).copied().unwrap_or(0);
    let snapshots = list(histograms(profile, index, codec).iter().map(counts));
    list([parameters.to_string(), snapshots])
}
