//! What the options of a simulation are written as, and the grid that sweeps over them make.

use anyhow::Result;
use buddy_scenario::Point;
use buddy_sim::Mode;
use buddy_workloads::SNAPSHOTS;

/// One setting and its values.
#[derive(Debug, Clone)]
pub(crate) struct Sweep {
    key: String,
    values: Vec<String>,
}

impl Sweep {
    /// Reads `key=v1,v2`, and checks each value by setting it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (key, values) = text.split_once('=').ok_or("a sweep is written KEY=V1,V2")?;
        let values: Vec<String> = values.split(',').map(str::to_owned).collect();
        let sweep = Self { key: key.to_owned(), values };
        let mut point = Point::new("", Mode::Ideal);
        sweep.values.iter().try_for_each(|value| point.set(&sweep.key, value))?;
        Ok(sweep)
    }
}

/// A share above 0, at most 1.
pub(crate) fn sample(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!("'{text}' is no share above 0, at most 1")),
    }
}

/// Shares of zero, b8, s1, s2, s3 and raw entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares(pub(crate) [f64; 6]);

pub(crate) fn shares(text: &str) -> Result<Shares, String> {
    let all: Result<Vec<f64>, _> = text.split(',').map(|share| share.trim().parse()).collect();
    let six = all.ok().and_then(|all| all.try_into().ok());
    six.map(Shares).ok_or_else(|| format!("'{text}' is not six shares, such as 0,0,0.3,0.6,0,0.1"))
}

/// A snapshot of a run, counted from 0.
pub(crate) fn snapshot(text: &str) -> Result<usize, String> {
    let last = SNAPSHOTS as usize - 1;
    match text.parse() {
        Ok(index) if index <= last => Ok(index),
        _ => Err(format!("a run has the snapshots 0 to {last}")),
    }
}

/// Every combination; the first sweep varies slowest.
pub(crate) fn points(first: &Point, sweeps: &[Sweep]) -> Result<Vec<Point>> {
    let mut points = vec![first.clone()];
    for Sweep { key, values } in sweeps {
        let mut wider = Vec::new();
        for point in &points {
            for value in values {
                let mut next = point.clone();
                next.set(key, value).map_err(anyhow::Error::msg)?;
                wider.push(next);
            }
        }
        points = wider;
    }
    Ok(points)
}
