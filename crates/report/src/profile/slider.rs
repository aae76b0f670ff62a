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
    let auto: Vec<&[Histogram]> = (0..profile.allocations.len())
        .map(|index| histograms(profile, index, &profile.allocations[index].auto))
        .collect();
    let fixed: Vec<&[Histogram]> =
        (0..profile.allocations.len()).map(|index| histograms(profile, index, first)).collect();
    format!(
        "<div class=\"slider\"><label>Threshold <input type=\"range\" min=\"1\" max=\"99\" step=\"0.5\" \
         value=\"{percent}\"><output></output></label><div class=\"scroll\"><table><thead><tr><th>codec</th><th class=\"n\">ratio</th>\
         <th class=\"n\">overflow</th><th class=\"n\">at worst</th><th>allocations by target: 1x, 4/3x, 2x, 4x, \
         16x</th></tr></thead><tbody></tbody></table></div>\
         <script type=\"application/json\">{{\"{}\":{},\"auto\":{}}}</script></div>\n",
        crate::escape(first),
        data(&fixed),
        data(&auto)
    )
}

/// Returns class counts per allocation and snapshot.
fn data(allocations: &[&[Histogram]]) -> String {
    let counts = |histogram: &Histogram| {
        let counts = SizeClass::ALL.map(|class| histogram.classes[class.index()].to_string());
        format!("[{}]", counts.join(","))
    };
    let list = |items: Vec<String>| format!("[{}]", items.join(","));
    list(allocations.iter().map(|snapshots| list(snapshots.iter().map(counts).collect())).collect())
}
