//! The paper's table of workloads.

use buddy_record::{Figure, Grid, GridCell, Panel, RunInfo, Unit};

use crate::{About, Experiment, Findings, Subject};

/// The sixteen workloads and their footprints.
#[derive(Debug)]
pub struct Workloads;

impl Experiment for Workloads {
    fn about(&self) -> About {
        About {
            name: "table1",
            title: "The workloads",
            place: "Table 1",
            text: "What the paper ran and what runs here. The HPC programs are compact ones of the same methods \
                   that really compute; each checks its own answer. The networks were trained on a GPU and \
                   recorded.",
        }
    }

    fn draw(&self, found: &Findings) -> Figure {
        let text = |name: &str| (name.to_owned(), Unit::Number);
        let size = |name: &str| (name.to_owned(), Unit::Bytes);
        let columns = vec![
            text("workload"),
            size("paper"),
            size("ours"),
            ("allocations".to_owned(), Unit::Count),
            ("snapshots".to_owned(), Unit::Count),
            text("its answer"),
        ];
        let rows = found.subjects().iter().map(|subject| row(found, subject)).collect();
        let table = Grid { title: String::new(), columns, rows };
        Figure {
            panels: vec![Panel::Table(table)],
            missing: found.missing(),
            deviations: vec![70],
            ..self.about().figure()
        }
    }
}

fn row(found: &Findings, subject: &Subject<'_>) -> Vec<GridCell> {
    let run = subject.profile.map(|profile| &profile.run);
    let number = |value: Option<u64>| GridCell::from(value.map(|value| value as f64));
    vec![
        subject.label.into(),
        (subject.paper_bytes as f64).into(),
        number(run.map(footprint)),
        number(run.map(|run| run.allocations.len() as u64)),
        number(run.map(|run| run.snapshots.len() as u64)),
        answer(found, subject).into(),
    ]
}

/// Returns the footprint of a run, which is less than the sum of allocations if they are freed and
/// reused.
fn footprint(run: &RunInfo) -> u64 {
    run.parameters.get("footprint_bytes").and_then(serde_json::Value::as_u64).unwrap_or_else(|| run.bytes())
}

/// Returns the result of the program's own check.
fn answer(found: &Findings, subject: &Subject<'_>) -> &'static str {
    match found.programs.get(subject.name) {
        Some(program) if program.checks.iter().all(|(_, passed)| *passed) => "right",
        Some(_) => "WRONG",
        None if subject.profile.is_some() => "recorded",
        None => "not recorded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::findings;

    #[test]
    fn every_workload_has_a_row() {
        let figure = Workloads.draw(&findings());
        let [Panel::Table(table)] = &figure.panels[..] else { panic!("one table") };
        assert_eq!(table.rows.len(), 16);
        let row = |label: &str| table.rows.iter().find(|row| row[0] == GridCell::from(label)).unwrap();
        let cells = |paper: f64, ours: f64, allocations: f64, answer: &str| -> [GridCell; 5] {
            [paper.into(), ours.into(), allocations.into(), 2.0.into(), answer.into()]
        };
        // Two allocations of 128 entries are 32768 bytes.
        assert_eq!(row("354.cg")[1..], cells(1.23e9, 32768.0, 2.0, "right"));
        assert_eq!(row("355.seismic")[5], GridCell::from("WRONG"), "its check failed");
        assert_eq!(row("AlexNet")[1..], cells(8.85e9, 16384.0, 1.0, "recorded"));
        assert_eq!(row("VGG16")[2..5], [const { GridCell::Empty }; 3]);
        assert_eq!(row("VGG16")[5], GridCell::from("not recorded"));
    }
}
