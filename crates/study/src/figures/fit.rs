//! Beyond the paper: what a smaller device memory costs on today's cards and links.

use buddy_core::{
    AllocationSizes, AxisInfo, Figure, Profile, RunRecord, SeriesInfo, Unit,
    spec::{Gpu, Link},
};
use buddy_profile::{Measured, PlanRequest, Tried, plan};

use super::{charts, line_chart};
use crate::{About, Experiment, Findings, Subject, TODAY, geometric};

/// The plan that fits, by the device memory that is left.
#[derive(Debug)]
pub struct Fit;

const MACHINES: [(&str, &str, &str); 2] =
    [("h200", "pcie5", "H200 over PCIe 5"), ("gh200", "c2c", "GH200 over C2C")];
/// Shares of the footprint that lie in device memory.
const SHARES: [f64; 6] = [1.05, 0.9, 0.8, 0.7, 0.6, 0.5];

impl Experiment for Fit {
    fn about(&self) -> About {
        About {
            name: "fit",
            title: "Planned to fit today's cards",
            place: "beyond the paper",
            text: "A program gets less device memory than it asks for. The plan takes the codecs and targets that fit \
                   and lose the least time to the link. Shown is the time of one pass over all memory, beside a card \
                   that holds everything, if device memory and link never work at the same time.",
        }
    }

    fn draw(&self, found: &Findings) -> Figure {
        let hpc: Vec<Measured> = found.hpc().iter().filter_map(measured).collect();
        let of = |names: &[&str]| -> Vec<Measured> {
            names.iter().filter_map(|name| Some(found.networks.get(*name)?.measured.clone())).collect()
        };
        let dl = of(&crate::NETWORKS.map(|network| network.name));
        let today = of(&TODAY.map(|network| network.name));
        let classes = [("HPC", hpc), ("DL", dl), ("DL today, bf16", today)];
        let series = MACHINES.iter().flat_map(|machine| {
            let known = classes.iter().filter(|(_, runs)| !runs.is_empty());
            known.map(|(class, runs)| line(machine, class, runs)).collect::<Vec<_>>()
        });
        let chart = line_chart(
            "Time of a pass over all memory",
            AxisInfo::new("device memory, share of the footprint", Unit::Percent),
            AxisInfo::new("time", Unit::Ratio).logarithmic(),
            series.collect(),
        );
        Figure { panels: charts([chart]), missing: found.missing(), ..self.about().figure() }
    }
}

/// The geometric mean over some runs, where all of them fit.
fn line((gpu, link, name): &(&str, &str, &str), class: &str, runs: &[Measured]) -> SeriesInfo {
    let point = |share: &f64| {
        let times: Option<Vec<f64>> = runs.iter().map(|run| time(run, gpu, link, *share)).collect();
        Some((*share, geometric(times?)?))
    };
    let mut points: Vec<(f64, f64)> = SHARES.iter().filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    SeriesInfo::new(&format!("{name}, {class}"), points)
}

/// Time beside a card that holds everything; none if nothing fits.
fn time(run: &Measured, gpu: &str, link: &str, share: f64) -> Option<f64> {
    let device_memory = (run.run.bytes() as f64 * share) as u64;
    let (gpu, link) = (Gpu::named(gpu).ok()?, Link::named(link).ok()?);
    let request = PlanRequest { device_memory, gpu, link, accesses: None };
    let (_, outcome) = plan(run, &request).ok()?;
    Some(1.0 + outcome.link_seconds / outcome.device_seconds)
}

/// The sizes that a profile keeps, as policies see them.
fn measured(subject: &Subject<'_>) -> Option<Measured> {
    let profile = subject.profile?;
    let tried = Tried { kinds: Vec::new(), auto: true, threshold: profile.threshold };
    Measured::from_record(&record(profile), &tried).ok()
}

fn record(profile: &Profile) -> RunRecord {
    let sizes = |snapshot: usize| {
        let one = |allocation: &buddy_core::AllocationProfile| {
            let of = |(codec, all): (&String, &Vec<_>)| (codec.clone(), all[snapshot]);
            AllocationSizes {
                histograms: allocation.histograms.iter().map(of).collect(),
                ..Default::default()
            }
        };
        profile.allocations.iter().map(one).collect()
    };
    let snapshots = 0..profile.run.snapshots.len();
    RunRecord { run: profile.run.clone(), sizes: snapshots.map(sizes).collect() }
}
