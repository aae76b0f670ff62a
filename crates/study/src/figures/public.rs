//! Beyond the paper: public CUDA programs, recorded on a GPU.

use buddy_record::{
    AxisInfo, Chart, Figure, Grid, GridCell, Panel, Policy, PolicyOutcome, Profile, SeriesInfo, Unit,
};

use super::{bar_chart, charts};
use crate::{About, Experiment, Findings, PUBLIC, PublicInfo, arithmetic, geometric};

/// The design applied to public programs.
#[derive(Debug)]
pub struct Public;

const CHOICES: [(Policy, &str, &str); 2] =
    [(Policy::Allocation16x, "bpc", "final design"), (Policy::Allocation16x, "auto", "best codec")];

impl Experiment for Public {
    fn about(&self) -> About {
        About {
            name: "public",
            title: "Public CUDA programs",
            place: "beyond the paper",
            text: "NPB-GPU, LULESH, HPGMG and Rodinia as their authors publish them, watched on an H200 with buddy watch: ten to \
                   nineteen snapshots of all device memory. The final design makes of them what it makes of our own \
                   programs.",
        }
    }

    fn needs_programs(&self) -> bool {
        false
    }

    fn draw(&self, found: &Findings) -> Figure {
        let ratio = AxisInfo::new("ratio", Unit::Ratio).starting_at(0.0);
        let share = AxisInfo::new("entries in buddy memory", Unit::Percent).starting_at(0.0);
        let mut panels = charts([
            chart("Compression ratio", found, ratio, |one| one.ratio, geometric),
            chart("Buddy accesses", found, share, |one| one.mean_overflow, arithmetic),
        ]);
        panels.push(Panel::Table(table(found)));
        Figure { panels, deviations: vec![46], ..self.about().figure() }
    }
}

fn profile<'a>(found: &'a Findings, info: &PublicInfo) -> Option<&'a Profile> {
    found.public.get(info.name).map(|recorded| &recorded.profile)
}

/// A column of the table: name, unit, a program's number, and the mean over all.
type TableColumn = (&'static str, Unit, fn(&Profile) -> Option<f64>, fn(Vec<f64>) -> Option<f64>);

const COLUMNS: [TableColumn; 6] = [
    ("bytes", Unit::Bytes, |one| Some(one.run.bytes() as f64), |_| None),
    ("optimistic", Unit::Ratio, |one| one.optimistic_ratio, geometric),
    ("final design", Unit::Ratio, |one| Some(chosen(one, 0)?.ratio), geometric),
    ("overflow", Unit::Percent, |one| Some(chosen(one, 0)?.mean_overflow), arithmetic),
    ("best codec", Unit::Ratio, |one| Some(chosen(one, 1)?.ratio), geometric),
    ("overflow", Unit::Percent, |one| Some(chosen(one, 1)?.mean_overflow), arithmetic),
];

fn chosen(profile: &Profile, choice: usize) -> Option<&PolicyOutcome> {
    let (policy, codec, _) = CHOICES[choice];
    profile.outcome(policy, codec)
}

/// Returns the results as a table with sizes, means last.
fn table(found: &Findings) -> Grid {
    let known = PUBLIC.iter().filter_map(|info| Some((info.label, profile(found, info)?)));
    let known: Vec<(&str, &Profile)> = known.collect();
    let row = |(label, profile): &(&str, &Profile)| -> Vec<GridCell> {
        let cells = COLUMNS.iter().map(|(_, _, value, _)| GridCell::from(value(profile)));
        std::iter::once(GridCell::from(*label)).chain(cells).collect()
    };
    let mut rows: Vec<_> = known.iter().map(row).collect();
    let means = COLUMNS.iter().map(|(_, _, value, mean)| {
        GridCell::from(mean(known.iter().filter_map(|(_, profile)| value(profile)).collect()))
    });
    rows.push(std::iter::once(GridCell::from("mean")).chain(means).collect());
    let names = COLUMNS.iter().map(|(name, unit, ..)| ((*name).to_owned(), *unit));
    let columns = std::iter::once(("program".to_owned(), Unit::Number)).chain(names).collect();
    Grid { title: String::new(), columns, rows }
}

/// Returns a bar for each program and choice, the mean last.
fn chart(
    title: &str,
    found: &Findings,
    y: AxisInfo,
    value: fn(&PolicyOutcome) -> f64,
    mean: fn(Vec<f64>) -> Option<f64>,
) -> Chart {
    let series = |(policy, codec, name): (Policy, &str, &str)| {
        let of =
            |info: &crate::PublicInfo| found.public.get(info.name)?.profile.outcome(policy, codec).map(value);
        let values: Vec<Option<f64>> = PUBLIC.iter().map(of).collect();
        let all = mean(values.iter().flatten().copied().collect());
        SeriesInfo::bars(name, values.into_iter().chain([all]))
    };
    let groups = PUBLIC.iter().map(|info| info.label.to_owned()).chain(["mean".to_owned()]).collect();
    let series = CHOICES.map(series).into_iter().filter(|one| !one.points.is_empty()).collect();
    Chart { groups, ..bar_chart(title, &[], y, series) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{bar, chart as nth, findings, near};

    /// cg has 32768 bytes in 8192 + 16384, with planes64 in 4096 + 16384; is 16384 in 8192.
    #[test]
    fn every_public_program_has_its_ratio_and_all_their_mean() {
        let figure = Public.draw(&findings());
        let ratios = nth(&figure, 0);
        near(bar(ratios, "final design", "NPB cg C"), 4.0 / 3.0);
        near(bar(ratios, "best codec", "NPB cg C"), 1.6);
        near(bar(ratios, "final design", "NPB is C"), 2.0);
        near(bar(ratios, "final design", "mean"), (8.0 / 3.0_f64).sqrt());
        assert_eq!(bar(ratios, "final design", "NPB mg C"), None);
        near(bar(nth(&figure, 1), "final design", "NPB cg C"), 0.0625);
    }
}
