//! Beyond the paper: a target per range of pages, and the best codec per allocation.

use buddy_dl::{NetworkInfo, TODAY};
use buddy_record::{AxisInfo, Chart, Figure, Policy, PolicyOutcome, SeriesInfo, Unit};

use super::{Column, bar_chart, charts};
use crate::{About, Experiment, Findings};

/// The final design compared with targets by page and codecs by allocation.
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
                   targets by page are shown for the programs that run here. Below, networks as they are trained today.",
        }
    }

    fn draw(&self, found: &Findings) -> Figure {
        let subjects = found.subjects();
        let column = |value: fn(&PolicyOutcome) -> f64, ratios: bool| {
            let one = |(policy, codec, name): (Policy, &str, &str)| {
                let of = |profile: &buddy_record::Profile| profile.outcome(policy, codec).map(value);
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
                bar_chart("Compression ratio", &subjects, ratio.clone(), column(|one| one.ratio, true)),
                bar_chart("Buddy accesses", &subjects, share.clone(), column(|one| one.mean_overflow, false)),
                today("Compression ratio of training in bf16", found, ratio, |one| one.ratio),
                today("Buddy accesses of training in bf16", found, share, |one| one.mean_overflow),
            ]),
            missing: found.missing(),
            ..self.about().figure()
        }
    }
}

/// Returns a chart of current networks, with the paper's codec and with the best per tensor.
fn today(title: &str, found: &Findings, y: AxisInfo, value: fn(&PolicyOutcome) -> f64) -> Chart {
    let series = |(policy, codec, name): (Policy, &str, &str)| {
        let of = |network: &NetworkInfo| {
            Some(value(found.networks.get(network.name)?.profile.outcome(policy, codec)?))
        };
        SeriesInfo::bars(name, TODAY.iter().map(of))
    };
    let groups = TODAY.iter().map(|network| network.label.to_owned()).collect();
    let series = CHOICES.into_iter().filter(|(policy, ..)| *policy != Policy::Page).map(series).collect();
    Chart { groups, ..bar_chart(title, &[], y, series) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{bar, chart, findings, near};

    /// By page, b of cg has 4x and 1x: 32768 bytes in 8192 + 2048 + 8192. With planes64 for a: 4096
    /// + 10240.
    #[test]
    fn parts_of_an_allocation_have_targets_of_their_own() {
        let figure = Pages.draw(&findings());
        let (ratios, shares) = (chart(&figure, 0), chart(&figure, 1));
        near(bar(ratios, "final design", "354.cg"), 4.0 / 3.0);
        near(bar(ratios, "targets by page", "354.cg"), 32768.0 / 18432.0);
        near(bar(ratios, "best codec", "354.cg"), 1.6);
        near(bar(ratios, "best codec, by page", "354.cg"), 32768.0 / 14336.0);
        near(bar(ratios, "final design", "HPC mean"), (4.0 / 3.0 * 32.0 / 17.0_f64).sqrt());
        // 32 of 256 entries of a overflow in one of two snapshots, with planes64 none.
        near(bar(shares, "targets by page", "354.cg"), 0.0625);
        near(bar(shares, "best codec", "354.cg"), 0.0);
    }

    #[test]
    fn networks_of_today_have_their_own_codec() {
        let figure = Pages.draw(&findings());
        near(bar(chart(&figure, 2), "final design", "ResNet50, bf16"), 1.0);
        near(bar(chart(&figure, 2), "best codec", "ResNet50, bf16"), 4.0 / 3.0);
        assert_eq!(bar(chart(&figure, 2), "best codec", "VGG16, bf16"), None);
        near(bar(chart(&figure, 3), "best codec", "ResNet50, bf16"), 0.0);
    }
}
