//! Beyond the paper: a target for each range of pages, and the best codec for each allocation.

use buddy_core::{AxisInfo, Figure, Policy, PolicyOutcome, Unit};

use super::{Column, bar_chart, charts};
use crate::{About, Experiment, Findings};

/// The final design beside targets by page and codecs by allocation.
#[derive(Debug)]
pub struct Pages;

const CHOICES: [(Policy, &str, &str); 4] = [
    (Policy::Allocation16x, "bpc", "final design"),
    (Policy::Page, "bpc", "targets by page"),
    (Policy::Allocation16x, "auto", "best codec"),
    (Policy::Page, "auto", "best codec, by page"),
];

impl Experiment for Pages {
    fn about(&self) -> About {
        About {
            name: "pages",
            title: "Targets by page and codecs by allocation",
            place: "beyond the paper",
            text: "The page table has room for a target in every page, and an allocation may have a codec of its \
                   own. Both keep the rule that nothing moves. Records of networks hold sampled pages only, so that \
                   targets by page are shown for the programs that run here.",
        }
    }

    fn draw(&self, found: &Findings) -> Figure {
        let subjects = found.subjects();
        let column = |value: fn(&PolicyOutcome) -> f64, ratios: bool| {
            let one = |(policy, codec, name): (Policy, &str, &str)| {
                let of = |profile: &buddy_core::Profile| profile.outcome(policy, codec).map(value);
                let column =
                    if ratios { Column::ratios(&subjects, of) } else { Column::shares(&subjects, of) };
                column.bars(name)
            };
            CHOICES.map(one).into()
        };
        let ratio = AxisInfo::new("ratio", Unit::Ratio).starting_at(0.0);
        let share = AxisInfo::new("entries in buddy memory", Unit::Percent).starting_at(0.0);
        Figure {
            panels: charts([
                bar_chart("Compression ratio", &subjects, ratio, column(|one| one.ratio, true)),
                bar_chart("Buddy accesses", &subjects, share, column(|one| one.mean_overflow, false)),
            ]),
            missing: found.missing(),
            ..self.about().figure()
        }
    }
}
