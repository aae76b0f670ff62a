//! The settings of one run, and the grid that sweeps over them make.

use anyhow::Result;
use buddy_sim::Mode;
use buddy_workloads::SNAPSHOTS;

/// The settings that can be swept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    pub(crate) spec: String,
    pub(crate) mode: Mode,
    pub(crate) link: String,
    pub(crate) targets: Option<String>,
    pub(crate) metadata: Option<u32>,
    pub(crate) oversubscription: f64,
}

/// One setting and its values.
#[derive(Debug, Clone)]
pub(crate) struct Sweep {
    key: String,
    values: Vec<String>,
}

const KEYS: &str = "spec, mode, link, targets, metadata and oversubscription";

impl Sweep {
    /// Reads `key=v1,v2`, and checks each value by setting it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (key, values) = text.split_once('=').ok_or("a sweep is written KEY=V1,V2")?;
        let values: Vec<String> = values.split(',').map(str::to_owned).collect();
        let sweep = Self { key: key.to_owned(), values };
        let mut point = Point {
            spec: String::new(),
            mode: Mode::Ideal,
            link: String::new(),
            targets: None,
            metadata: None,
            oversubscription: 0.0,
        };
        sweep.values.iter().try_for_each(|value| point.set(&sweep.key, value))?;
        Ok(sweep)
    }
}

impl Point {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "spec" => self.spec = value.to_owned(),
            "mode" => self.mode = mode(value)?,
            "link" => self.link = value.to_owned(),
            "targets" => self.targets = Some(value.to_owned()),
            "metadata" => {
                self.metadata = Some(value.parse().map_err(|_| format!("'{value}' is no number of bytes"))?)
            }
            "oversubscription" => self.oversubscription = oversubscription(value)?,
            _ => return Err(format!("'{key}' cannot be swept; {KEYS} can")),
        }
        Ok(())
    }
}

/// A mode by its name.
pub(crate) fn mode(name: &str) -> Result<Mode, String> {
    let names = Mode::ALL.map(Mode::name).join(", ");
    Mode::ALL
        .into_iter()
        .find(|mode| mode.name() == name)
        .ok_or(format!("there is no mode '{name}'; there are {names}"))
}

/// A share from 0 to 0.5.
pub(crate) fn oversubscription(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=0.5).contains(&share) => Ok(share),
        _ => Err(format!("'{text}' is no share from 0 to 0.5")),
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
