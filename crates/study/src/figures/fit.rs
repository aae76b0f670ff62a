//! Beyond the paper: cost of a smaller device memory on current GPUs and links.

use buddy_dl::{NetworkInfo, PAPER, TODAY};
use buddy_profile::{Measured, PlanRequest, Tried, plan};
use buddy_record::{
    AllocationSizes, AxisInfo, Figure, Profile, RunRecord, SeriesInfo, Unit,
    spec::{Gpu, Link},
};

use super::{charts, line_chart};
use crate::{About, Experiment, Findings, Subject, geometric};

/// The plan that fits, by available device memory.
#[derive(Debug)]
pub struct Fit;

const MACHINES: [(&str, &str, &str); 2] =
    [("h200", "pcie5", "H200 over PCIe 5"), ("gh200", "c2c", "GH200 over C2C")];
/// Device memory as a share of the footprint.
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
        let of = |networks: &[NetworkInfo]| -> Vec<Measured> {
            networks.iter().filter_map(|one| Some(found.networks.get(one.name)?.measured.clone())).collect()
        };
        let classes = [("HPC", hpc), ("DL", of(&PAPER)), ("DL today, bf16", of(&TODAY))];
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

/// Returns the geometric mean over runs, for shares where all fit.
fn line((gpu, link, name): &(&str, &str, &str), class: &str, runs: &[Measured]) -> SeriesInfo {
    let point = |share: &f64| {
        let times: Option<Vec<f64>> = runs.iter().map(|run| time(run, gpu, link, *share)).collect();
        Some((*share, geometric(times?)?))
    };
    let mut points: Vec<(f64, f64)> = SHARES.iter().filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    SeriesInfo::new(&format!("{name}, {class}"), points)
}

/// Returns the time relative to a GPU that holds everything; `None` if nothing fits.
fn time(run: &Measured, gpu: &str, link: &str, share: f64) -> Option<f64> {
    let device_memory = (run.run.bytes() as f64 * share) as u64;
    let (gpu, link) = (Gpu::named(gpu).ok()?, Link::named(link).ok()?);
    let request = PlanRequest { device_memory, gpu, link, accesses: None };
    let (_, outcome) = plan(run, &request).ok()?;
    Some(1.0 + outcome.link_seconds / outcome.device_seconds)
}

/// Returns the sizes of a profile as policies use them.
fn measured(subject: &Subject<'_>) -> Option<Measured> {
    let profile = subject.profile?;
    let tried = Tried { kinds: Vec::new(), auto: true, threshold: profile.threshold };
    Measured::from_record(&record(profile), &tried).ok()
}

fn record(profile: &Profile) -> RunRecord {
    let sizes = |snapshot: usize| {
        let one = |allocation: &buddy_record::AllocationProfile| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{chart, findings, near, points};

    fn at(figure: &Figure, line: &str, share: f64) -> Option<f64> {
        points(chart(figure, 0), line).iter().find(|(x, _)| *x == share).map(|(_, y)| *y)
    }

    /// A pass reads 32768 bytes of device memory; let r be its bandwidth over the link's.
    ///
    /// Half of 32768 bytes for cg: a has 32 B entries with planes64 at 4x, 4096 + 64 bytes; 12224
    /// are left for b, which takes 2x with two buddy sectors for each of 64 raw entries: 4096 bytes
    /// over the link, r/8. For seismic: p takes 16x, 1024 + 64 bytes, and in one of two snapshots
    /// 32 raw entries use the link: 2048; q takes 4/3x with one sector for each of 128 entries:
    /// 4096. Together 6144 bytes, 3r/16. All other plans that fit lose more.
    #[test]
    fn half_the_memory_costs_the_link_traffic() {
        let figure = Fit.draw(&findings());
        let r = Gpu::named("h200").unwrap().dram_gb_per_s() / Link::named("pcie5").unwrap().gb_per_s;
        let (cg, seismic) = (1.0 + r / 8.0, 1.0 + 3.0 * r / 16.0);
        near(at(&figure, "H200 over PCIe 5, HPC", 0.5), (cg * seismic).sqrt());
        near(at(&figure, "H200 over PCIe 5, HPC", 1.05), 1.0);
    }

    /// At 80% cg has 4x for a and needs no link; seismic takes 2x for p: 32 x 64 bytes in one of
    /// two snapshots.
    #[test]
    fn zeros_or_a_better_codec_cost_little() {
        let figure = Fit.draw(&findings());
        let r = Gpu::named("gh200").unwrap().dram_gb_per_s() / Link::named("c2c").unwrap().gb_per_s;
        near(at(&figure, "GH200 over C2C, HPC", 0.8), (1.0 + r / 32.0_f64).sqrt());
        // bf16 at 4/3x, and half a sector more if only half fits: 2x leaves a sector of 128
        // entries.
        near(at(&figure, "GH200 over C2C, DL today, bf16", 0.8), 1.0);
        near(at(&figure, "GH200 over C2C, DL today, bf16", 0.6), 1.0 + r * 4096.0 / 16384.0);
    }
}
