//! Parsers of simulation options, and the values that a sweep varies.

use buddy_scenario::{Case, Point};
use buddy_sweep::Axis;
use buddy_workloads::SNAPSHOTS;

/// Shares of zero, b8, s1, s2, s3 and raw entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares(pub(crate) [f64; 6]);

pub(crate) fn shares(text: &str) -> Result<Shares, String> {
    buddy_scenario::parse_shares(text).map(Shares)
}

/// Parses the index of a snapshot, from 0.
pub(crate) fn snapshot(text: &str) -> Result<usize, String> {
    let last = SNAPSHOTS as usize - 1;
    match text.parse() {
        Ok(index) if index <= last => Ok(index),
        _ => Err(format!("a run has the snapshots 0 to {last}")),
    }
}

/// Returns the swept settings of a case that have no column: `codec bdi, l2.bytes 8388608`.
pub(crate) fn settings(case: &Case, sweeps: &[Axis]) -> String {
    let keys = sweeps.iter().flat_map(|axis| &axis.keys);
    let rest = keys.filter(|key| !Point::KEYS[..6].contains(&key.as_str()));
    rest.map(|key| format!("{key} {}", value(case, key))).collect::<Vec<_>>().join(", ")
}

fn value(Case { input, point }: &Case, key: &str) -> String {
    match key {
        "program" => input.program.clone(),
        "scale" => match input.scale {
            buddy_scenario::Scale::Share(share) => share.to_string(),
            buddy_scenario::Scale::Bytes(bytes) => buddy_scenario::decimal(bytes),
        },
        "seed" => input.seed.to_string(),
        "snapshot" => input.snapshot.map_or("-".to_owned(), |snapshot| snapshot.to_string()),
        "codec" => input.codec.name().to_owned(),
        "batch" => input.batch.to_string(),
        "sample" => input.sample.to_string(),
        "size" => format!("{} MiB", input.size),
        "shares" => input.shares.map(|share| share.to_string()).join(" "),
        "policy" => point.policy.map_or("-", |policy| policy.name()).to_owned(),
        "threshold" => point.threshold.map_or("-".to_owned(), |share| format!("{}%", share.as_percent())),
        field => point.fields.get(field).cloned().unwrap_or_default(),
    }
}
