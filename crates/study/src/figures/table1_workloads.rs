//! The paper's table of workloads.

use buddy_core::{Figure, Grid, GridCell, Panel, RunInfo, Unit};

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

/// What a run says of its footprint, which where allocations come and go is less than all of them.
fn footprint(run: &RunInfo) -> u64 {
    run.parameters.get("footprint_bytes").and_then(serde_json::Value::as_u64).unwrap_or_else(|| run.bytes())
}

/// What the program found of its own answer.
fn answer(found: &Findings, subject: &Subject<'_>) -> &'static str {
    match found.programs.get(subject.name) {
        Some(program) if program.checks.iter().all(|(_, passed)| *passed) => "right",
        Some(_) => "WRONG",
        None if subject.profile.is_some() => "recorded",
        None => "not recorded",
    }
}
