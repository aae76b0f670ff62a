//! Prints the table of `docs/results.md` from records of `buddy profile`: `tools/results.sh` runs it.
//!
//! Each argument is a record; its program is the workload.

use std::{fs, process::ExitCode};

use buddy_core::{Policy, Profile, Record};

const HEAD: &str = "\
| workload | MB | optimistic | naive | overflow | per allocation | overflow | with 16x | overflow | per page | overflow | auto | overflow | auto, per page | overflow |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// The policies of the table, each with its codec.
const COLUMNS: [(Policy, &str); 6] = [
    (Policy::Naive, "bpc"),
    (Policy::Allocation, "bpc"),
    (Policy::Allocation16x, "bpc"),
    (Policy::Page, "bpc"),
    (Policy::Allocation16x, "auto"),
    (Policy::Page, "auto"),
];

/// The ratios of a row, the optimistic one first, and the overflow of all but that.
struct Row {
    ratios: Vec<f64>,
    overflow: Vec<f64>,
}

fn main() -> ExitCode {
    println!("{HEAD}");
    let mut rows = Vec::new();
    for path in std::env::args().skip(1) {
        match read(&path) {
            Ok(profile) => {
                let row = Row::of(&profile);
                println!(
                    "{}",
                    row.text(&profile.run.program, &format!("{:.0}", profile.run.bytes() as f64 / 1e6))
                );
                rows.push(row);
            }
            Err(message) => {
                eprintln!("{path}: {message}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{}", mean(&rows).text("**geometric mean, mean overflow**", ""));
    println!("| *the paper, HPC* | | 2.51 | 1.57 | 8% | 1.7 | | 1.9 | 0.08% | | | | | | |");
    ExitCode::SUCCESS
}

fn read(path: &str) -> Result<Profile, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    Ok(Record::<Profile>::from_json(&text).map_err(|error| error.to_string())?.data)
}

impl Row {
    fn of(profile: &Profile) -> Self {
        let found = COLUMNS.map(|(policy, codec)| profile.outcome(policy, codec));
        let mut ratios = vec![profile.optimistic_ratio.unwrap_or(f64::NAN)];
        ratios.extend(found.map(|one| one.map_or(f64::NAN, |one| one.ratio)));
        let overflow = found.map(|one| one.map_or(f64::NAN, |one| one.mean_overflow)).to_vec();
        Self { ratios, overflow }
    }

    fn text(&self, name: &str, megabytes: &str) -> String {
        let mut text = format!("| {name} | {megabytes} | {:.2} |", self.ratios[0]);
        for (ratio, overflow) in self.ratios[1..].iter().zip(&self.overflow) {
            // A record of a run has not all pages.
            match ratio.is_nan() {
                true => text.push_str(" - | - |"),
                false => text.push_str(&format!(" {ratio:.2} | {:.2}% |", overflow * 100.0)),
            }
        }
        text
    }
}

/// The geometric mean of ratios, the mean of shares.
fn mean(rows: &[Row]) -> Row {
    let count = rows.len().max(1) as f64;
    let geometric =
        |column: usize| (rows.iter().map(|row| row.ratios[column].ln()).sum::<f64>() / count).exp();
    let arithmetic = |column: usize| rows.iter().map(|row| row.overflow[column]).sum::<f64>() / count;
    Row {
        ratios: (0..=COLUMNS.len()).map(geometric).collect(),
        overflow: (0..COLUMNS.len()).map(arithmetic).collect(),
    }
}
