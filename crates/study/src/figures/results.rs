//! Every policy for every HPC program.

use buddy_record::{Figure, Grid, GridCell, Panel, Policy, Unit};

use super::Column;
use crate::{About, Experiment, Findings};

/// Results of the HPC programs by policy and codec.
#[derive(Debug)]
pub struct Results;

/// A policy with its codec and name, and the ratio and overflow stated by the paper.
type Choice = (Policy, &'static str, &'static str, Option<f64>, Option<f64>);
const CHOICES: [Choice; 6] = [
    (Policy::Naive, "bpc", "naive", Some(1.57), Some(0.08)),
    (Policy::Allocation, "bpc", "per allocation", Some(1.7), None),
    (Policy::Allocation16x, "bpc", "with 16x", Some(1.9), Some(0.0008)),
    (Policy::Page, "bpc", "per page", None, None),
    (Policy::Allocation16x, "auto", "auto", None, None),
    (Policy::Page, "auto", "auto, per page", None, None),
];

/// Maps a column and the paper's number for it to a cell.
type Value<'a> = dyn Fn(&(Column, Option<f64>)) -> Option<f64> + 'a;

impl Experiment for Results {
    fn about(&self) -> About {
        About {
            name: "results",
            title: "The HPC programs by policy",
            place: "section 3.4, and beyond the paper",
            text: "Bytes of data for each byte of device memory, and the share of entries that need buddy memory, the mean \
                   of ten snapshots; targets are chosen by the worst of them. Optimistic gives every entry the best of \
                   eight sizes. All columns before auto are the paper's BPC; auto is the codec that suits each allocation. \
                   The means are geometric for ratios and arithmetic for shares.",
        }
    }

    fn draw(&self, found: &Findings) -> Figure {
        let subjects = found.hpc();
        let mut columns = vec![("workload".to_owned(), Unit::Number), ("bytes".to_owned(), Unit::Bytes)];
        let bytes = Column::new(&subjects, |profile| Some(profile.run.bytes() as f64), |_| None);
        let optimistic = Column::ratios(&subjects, |profile| profile.optimistic_ratio);
        let mut filled = vec![(bytes, None), (optimistic, Some(2.51))];
        columns.push(("optimistic".to_owned(), Unit::Ratio));
        for (policy, codec, name, ratio, share) in CHOICES {
            let of = |profile: &buddy_record::Profile| profile.outcome(policy, codec).cloned();
            filled.push((Column::ratios(&subjects, |profile| Some(of(profile)?.ratio)), ratio));
            filled.push((Column::shares(&subjects, |profile| Some(of(profile)?.mean_overflow)), share));
            columns.extend([(name.to_owned(), Unit::Ratio), ("overflow".to_owned(), Unit::Percent)]);
        }
        let row = |name: &str, value: &Value<'_>| -> Vec<GridCell> {
            let cells = filled.iter().map(|column| GridCell::from(value(column)));
            std::iter::once(GridCell::from(name)).chain(cells).collect()
        };
        let known = subjects.iter().enumerate().filter(|(_, subject)| subject.profile.is_some());
        let mut rows: Vec<_> =
            known.map(|(at, subject)| row(subject.name, &|(column, _)| column.values[at])).collect();
        rows.push(row("mean", &|(column, _)| column.hpc));
        rows.push(row("the paper, HPC", &|(_, paper)| *paper));
        let table = Grid { title: String::new(), columns, rows };
        Figure { panels: vec![Panel::Table(table)], deviations: vec![46], ..self.about().figure() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::findings;

    /// The arithmetic is shown in the tests of fig7 and pages.
    #[test]
    fn a_row_for_each_program_then_the_means_and_the_paper() {
        let figure = Results.draw(&findings());
        let [Panel::Table(table)] = &figure.panels[..] else { panic!("one table") };
        let numbers = |row: usize| -> Vec<Option<f64>> {
            let number =
                |cell: &GridCell| if let GridCell::Number(number) = cell { Some(*number) } else { None };
            table.rows[row][1..].iter().map(number).collect()
        };
        let sixteenth = Some(0.0625);
        let third = Some(4.0 / 3.0);
        let cg = [
            &[
                Some(32768.0),
                Some(65536.0 / 38912.0),
                Some(1.0),
                Some(0.0),
                third,
                sixteenth,
                third,
                sixteenth,
            ][..],
            &[Some(32768.0 / 18432.0), sixteenth, Some(1.6), Some(0.0), Some(32768.0 / 14336.0), Some(0.0)],
        ];
        assert_eq!(numbers(0), cg.concat());
        assert_eq!(table.rows.len(), 4, "two programs ran");
        let means = numbers(2);
        assert_eq!((means[0], means[7]), (None, sixteenth));
        assert!((means[6].unwrap() - (4.0 / 3.0 * 32.0 / 17.0_f64).sqrt()).abs() < 1e-12);
        assert_eq!(numbers(3)[1..5], [Some(2.51), Some(1.57), Some(0.08), Some(1.7)]);
    }
}
