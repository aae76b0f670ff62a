//! The claims and the constants, in the order of the paper's text. One list, and therefore a long file.

use buddy_core::{ENTRY_BYTES, SECTOR_BYTES, Target};
use buddy_record::{GridCell, Policy, Unit};
use buddy_report::number;
use buddy_sim::Mode;

use super::{
    Claim, Source, Test, Verdict,
    facts::{Facts, Group, doubling, largest_batch, largest_ratio, share_of_peak, transitions},
};
use crate::{Experiment, Findings, Settings, figures::Design, geometric};

const ALLOCATION: Policy = Policy::Allocation;
const FINAL: Policy = Policy::Allocation16x;
/// Codecs that the paper compares with BPC.
pub(super) const OTHER_CODECS: [&str; 4] = ["bdi", "fpc", "fvc", "cpack"];
/// Capacities that "oversubscribing by 50%" may mean: half more memory, and half of it missing.
const HALF: [f64; 2] = [1.5, 2.0];
/// Lowest metadata hit rate that counts as high.
const HIGH: f64 = 0.9;
const EVERYTHING: &str = "everything compressed, programs of 64 MB";
const NOT_COMPRESSED: &str = "memory that 1x does not pay for stays uncompressed (D78)";

const fn claim(place: &'static str, text: &'static str, source: Source, test: Test) -> Claim {
    Claim { place, text, test, source, note: "" }
}

const fn untested(place: &'static str, text: &'static str, why: &'static str) -> Claim {
    claim(place, text, Source::None, Test::None(why))
}

impl Claim {
    const fn with(self, note: &'static str) -> Self {
        let Self { place, text, test, source, .. } = self;
        Self { place, text, test, source, note }
    }
}

/// Formats a share in percent.
fn percent(share: f64) -> String {
    number(Unit::Percent, share)
}

fn ratio(value: f64) -> String {
    number(Unit::Ratio, value)
}

/// Formats a loss of speed, or a gain if negative.
fn loss(share: f64) -> String {
    if share < 0.0 { format!("{} faster", percent(-share)) } else { format!("{} slower", percent(share)) }
}

/// Returns the losses of some workloads, and whether all lose more than `least`.
fn losses(facts: &Facts<'_>, names: &[&str], mode: Mode, link: u32, least: f64) -> Option<(String, Verdict)> {
    let all: Option<Vec<f64>> = names.iter().map(|name| facts.slowdown(name, mode, link)).collect();
    let all = all?;
    let text: Vec<String> =
        names.iter().zip(&all).map(|(name, share)| format!("{name} {}", loss(*share))).collect();
    Some((text.join(", "), Verdict::holds_if(all.iter().all(|share| *share > least))))
}

/// A statement about all holds in direction if it is true of more than half.
fn more_than_half(count: usize, all: usize) -> Verdict {
    match count {
        _ if count == all => Verdict::Holds,
        _ if 2 * count > all => Verdict::InDirection,
        _ => Verdict::Differs,
    }
}

/// Every claim.
pub(super) const CLAIMS: &[Claim] = &[
    untested(
        "2.1",
        "Discarded benchmarks have large parts of zeros and extremely high ratios",
        "the paper does not name them",
    ),
    claim(
        "2.4",
        "Of five codecs, BPC is chosen for its high ratio",
        Source::Measured,
        Test::Statement(|facts| {
            let bpc = facts.bpc();
            let ratios = |group, eight| -> Option<Vec<(f64, &str)>> {
                let codecs = std::iter::once(bpc).chain(OTHER_CODECS);
                codecs.map(|codec| Some((facts.codec(group, codec, eight)?, codec))).collect()
            };
            let (mut texts, mut won) = (Vec::new(), 0);
            for (group, name) in [(Group::Hpc, "HPC"), (Group::Dl, "DL")] {
                for (eight, design) in [(true, "eight sizes"), (false, "final design")] {
                    let mut all = ratios(group, eight)?;
                    let own = all[0].0;
                    // A stable sort: bpc stays before a codec with the same ratio.
                    all.sort_by(|a, b| b.0.total_cmp(&a.0));
                    let place = all.iter().position(|one| one.1 == bpc)? + 1;
                    won += usize::from(place == 1);
                    let best = all.iter().find(|one| one.1 != bpc)?;
                    texts.push(format!(
                        "{name} {design}: place {place}, {own:.3}x, {} {:.3}x",
                        best.1, best.0
                    ));
                }
            }
            Some((format!("{} and the best other: {}", bpc, texts.join("; ")), more_than_half(won, 4)))
        }),
    )
    .with("networks recorded on a CPU"),
    untested(
        "2.4",
        "Larger entries need less metadata and compress better; smaller ones need fewer read-modify-writes",
        "only entries of 128 B are built",
    ),
    claim(
        "3.1",
        "Eight sizes, geometric mean of HPC",
        Source::Measured,
        Test::Number(Unit::Ratio, 2.51, 1.0, |facts| facts.mean(Group::Hpc, |one| one.optimistic_ratio)),
    ),
    claim(
        "3.1",
        "Eight sizes, geometric mean of DL",
        Source::Recorded,
        Test::Number(Unit::Ratio, 1.85, 1.0, |facts| facts.mean(Group::Dl, |one| one.optimistic_ratio)),
    ),
    untested(
        "3.1",
        "The ratios are higher than those of CPU workloads, because allocations have one data type",
        "no memory of CPU workloads is here",
    ),
    untested(
        "3.1",
        "Compressibility changes more often than in CPU workloads",
        "no memory of CPU workloads is here",
    ),
    claim(
        "3.1",
        "355.seismic begins with many zeros and falls to 2x",
        Source::Measured,
        Test::Statement(|facts| {
            let all = facts.over_time("seismic")?;
            let (first, last) = (*all.first()?, *all.last()?);
            let holds = first > 2.0 * last && (last / 2.0 - 1.0).abs() <= super::NEAR;
            Some((format!("{} to {}", ratio(first), ratio(last)), Verdict::holds_if(holds)))
        }),
    ),
    claim(
        "3.1",
        "The ratio of a network stays roughly constant over time",
        Source::Recorded,
        Test::Statement(|facts| {
            let spread = facts.spread_over_time()?;
            let text = format!("largest over smallest ratio of the snapshots: {} (median)", ratio(spread));
            Some((text, Verdict::holds_if(spread <= 1.0 + super::NEAR)))
        }),
    ),
    untested(
        "3.1",
        "Single entries of networks change their compressibility often",
        "records keep the pages of one snapshot",
    ),
    claim(
        "3.2",
        "Most applications have high metadata-cache hit rates",
        Source::Simulated,
        Test::Statement(|facts| {
            let rates = facts.metadata_hits();
            let high = rates.iter().filter(|(_, rate)| *rate >= HIGH).count();
            let text = format!("{high} of {} above {}", rates.len(), percent(HIGH));
            (!rates.is_empty()).then(|| (text, Verdict::holds_if(2 * high > rates.len())))
        }),
    )
    .with(EVERYTHING),
    claim(
        "3.2",
        "351.palm and 355.seismic have lower metadata-cache hit rates",
        Source::Simulated,
        Test::Statement(|facts| {
            let rates = facts.metadata_hits();
            let of = |name: &str| rates.iter().find(|one| one.0 == name).map(|one| one.1);
            let (palm, seismic) = (of("palm")?, of("seismic")?);
            let others = rates.iter().filter(|one| !["palm", "seismic"].contains(&one.0));
            let lowest = others.min_by(|a, b| a.1.total_cmp(&b.1))?;
            let text = format!(
                "palm {}, seismic {}, the lowest other {} {}",
                percent(palm),
                percent(seismic),
                lowest.0,
                percent(lowest.1)
            );
            let low = [palm, seismic].iter().filter(|rate| **rate < lowest.1).count();
            Some((text, [Verdict::Differs, Verdict::InDirection, Verdict::Holds][low]))
        }),
    )
    .with(EVERYTHING),
    claim(
        "3.3",
        "A change of compressibility moves no data",
        Source::Built,
        Test::Statement(|_| Some(("the address map does not depend on data".to_owned(), Verdict::Holds))),
    ),
    claim(
        "3.3",
        "Programs that fit run without compression at no cost",
        Source::Built,
        Test::Statement(|facts| {
            let names = ["palm", "sp", "csp"];
            let all: Option<Vec<f64>> =
                names.iter().map(|name| facts.slowdown(name, Mode::Buddy, 150)).collect();
            let worst = all?.into_iter().map(f64::abs).reduce(f64::max)?;
            let text = "uncompressed memory has no metadata and no codec in its path";
            // The three stay uncompressed in the recorded simulations.
            Some((text.to_owned(), Verdict::holds_if(worst < 1e-6)))
        }),
    ),
    claim(
        "3.4",
        "One target for the program compresses HPC",
        Source::Measured,
        Test::Number(Unit::Ratio, 1.57, 1.0, |facts| facts.rounded(Group::Hpc)),
    ),
    claim(
        "3.4",
        "One target for the program compresses DL",
        Source::Recorded,
        Test::Number(Unit::Ratio, 1.18, 1.0, |facts| facts.rounded(Group::Dl)),
    ),
    claim(
        "3.4",
        "Buddy accesses with one target, HPC",
        Source::Measured,
        Test::Number(Unit::Percent, 0.08, 0.0, |facts| facts.rounded_overflow(Group::Hpc)),
    ),
    claim(
        "3.4",
        "Buddy accesses with one target, DL",
        Source::Recorded,
        Test::Number(Unit::Percent, 0.32, 0.0, |facts| facts.rounded_overflow(Group::Dl)),
    ),
    claim(
        "3.4",
        "One target for the program is too coarse",
        Source::Measured,
        Test::Statement(|facts| {
            let [hpc, dl] = [Group::Hpc, Group::Dl]
                .map(|group| Some((facts.rounded(group)?, facts.ratio(ALLOCATION, group)?)));
            let (hpc, dl) = (hpc?, dl?);
            let text = format!(
                "per allocation HPC {} instead of {}, DL {} instead of {}",
                ratio(hpc.1),
                ratio(hpc.0),
                ratio(dl.1),
                ratio(dl.0)
            );
            Some((text, Verdict::holds_if(hpc.1 > hpc.0 && dl.1 > dl.0)))
        }),
    ),
    claim(
        "3.4",
        "Most HPC programs have large homogeneous regions, networks mixed ones",
        Source::Measured,
        Test::Statement(|facts| {
            let (hpc, dl) = (facts.homogeneity(Group::Hpc)?, facts.homogeneity(Group::Dl)?);
            let text =
                format!("{} of a page's entries in one class in HPC, {} in DL", percent(hpc), percent(dl));
            Some((text, Verdict::holds_if(hpc > dl)))
        }),
    ),
    claim(
        "3.4",
        "FF_HPGMG has stripes from its arrays of structs",
        Source::Measured,
        Test::Statement(|facts| {
            let (next, best, distance) = facts.stripes("hpgmg")?;
            let text = format!(
                "equal classes {} at the next entry, {} at a distance of {distance}",
                percent(next),
                percent(best)
            );
            Some((text, Verdict::holds_if(best > next)))
        }),
    ),
    claim(
        "3.4",
        "Most region boundaries are those of allocations",
        Source::Measured,
        Test::Statement(|facts| {
            let share = facts.explained_by_allocations()?;
            let text = format!("{} of the variance between pages lies between allocations", percent(share));
            Some((text, Verdict::holds_if(share > 0.5)))
        }),
    )
    .with("HPC programs"),
    claim(
        "3.4",
        "Most allocations of 355.seismic have a target of 2x, not 7x",
        Source::Measured,
        Test::Statement(|facts| {
            let share = facts.share_at_most_2x("seismic")?;
            Some((format!("{} of the bytes have at most 2x", percent(share)), Verdict::holds_if(share > 0.5)))
        }),
    ),
    claim(
        "3.4",
        "AlexNet and ResNet50 have mixed regions",
        Source::Recorded,
        Test::Statement(|facts| {
            let hpc = facts.homogeneity(Group::Hpc)?;
            let [alexnet, resnet] = ["alexnet", "resnet50"].map(|name| facts.homogeneity_of(name));
            let (alexnet, resnet) = (alexnet?, resnet?);
            let text = format!(
                "{} and {} of a page's entries in one class, HPC {}",
                percent(alexnet),
                percent(resnet),
                percent(hpc)
            );
            let mixed = [alexnet, resnet].iter().filter(|one| **one < hpc).count();
            Some((text, [Verdict::Differs, Verdict::InDirection, Verdict::Holds][mixed]))
        }),
    ),
    claim(
        "3.4",
        "A higher threshold compresses more, with more buddy accesses",
        Source::Measured,
        Test::Statement(|facts| {
            let at = |threshold| {
                let (hpc, dl) =
                    (facts.at_threshold(threshold, Group::Hpc)?, facts.at_threshold(threshold, Group::Dl)?);
                Some(((hpc.0 * dl.0).sqrt(), (hpc.1 + dl.1) / 2.0))
            };
            let (low, high) = (at(0.1)?, at(0.4)?);
            let text = format!(
                "{} with {} at 10%, {} with {} at 40%",
                ratio(low.0),
                percent(low.1),
                ratio(high.0),
                percent(high.1)
            );
            Some((text, Verdict::holds_if(high.0 > low.0 && high.1 > low.1)))
        }),
    ),
    claim(
        "3.4",
        "Buddy accesses stay very low for HPC at every threshold",
        Source::Measured,
        Test::Statement(|facts| {
            let (low, high) =
                (facts.at_threshold(0.1, Group::Hpc)?.1, facts.at_threshold(0.4, Group::Hpc)?.1);
            Some((format!("{} to {}", percent(low), percent(high)), Verdict::holds_if(high < 0.01)))
        }),
    ),
    claim(
        "3.4",
        "Buddy accesses of DL are more frequent than those of HPC and grow with the threshold",
        Source::Recorded,
        Test::Statement(|facts| {
            let (low, high) = (facts.at_threshold(0.1, Group::Dl)?.1, facts.at_threshold(0.4, Group::Dl)?.1);
            let hpc = facts.at_threshold(0.4, Group::Hpc)?.1;
            let text = format!("{} to {}, HPC {} at 40%", percent(low), percent(high), percent(hpc));
            let verdict = match (high > low, high > hpc) {
                (true, true) => Verdict::Holds,
                (true, false) => Verdict::InDirection,
                _ => Verdict::Differs,
            };
            Some((text, verdict))
        }),
    ),
    claim(
        "3.4",
        "A higher threshold helps mostly DL",
        Source::Measured,
        Test::Statement(|facts| {
            let gain =
                |group| Some(facts.at_threshold(0.4, group)?.0 / facts.at_threshold(0.1, group)?.0 - 1.0);
            let (hpc, dl) = (gain(Group::Hpc)?, gain(Group::Dl)?);
            let text = format!("from 10 to 40% HPC gains {}, DL {}", percent(hpc), percent(dl));
            Some((text, Verdict::holds_if(dl > hpc)))
        }),
    ),
    claim(
        "3.4",
        "All but FF_HPGMG are near the best ratio",
        Source::Measured,
        Test::Statement(|facts| {
            let (near, all) = facts.near_best()?;
            Some((format!("{near} of {all} within a tenth"), more_than_half(near, all)))
        }),
    ),
    claim(
        "3.4",
        "FF_HPGMG needs a threshold above 80%",
        Source::Measured,
        Test::Statement(|facts| {
            let at = |threshold| facts.ratio_at("hpgmg", threshold);
            let (low, middle, high) = (at(0.3)?, at(0.8)?, at(0.9)?);
            let text = format!("{} at 30%, {} at 80%, {} at 90%", ratio(low), ratio(middle), ratio(high));
            // Most of the gain lies above 80%.
            Some((text, Verdict::holds_if(high > 1.0 && high - middle > middle - low)))
        }),
    ),
    claim(
        "3.4",
        "354.cg and 370.bt do not compress with one target",
        Source::Measured,
        Test::Statement(|facts| {
            let (cg, bt) = (facts.rounded_of("cg")?, facts.rounded_of("bt")?);
            Some((format!("{} and {}", ratio(cg), ratio(bt)), Verdict::holds_if(cg <= 1.0 && bt <= 1.0)))
        }),
    ),
    claim(
        "3.4",
        "354.cg compresses with targets per allocation",
        Source::Measured,
        Test::Number(Unit::Ratio, 1.1, 1.0, |facts| facts.ratio_of(ALLOCATION, "cg")),
    ),
    claim(
        "3.4",
        "370.bt compresses with targets per allocation",
        Source::Measured,
        Test::Number(Unit::Ratio, 1.3, 1.0, |facts| facts.ratio_of(ALLOCATION, "bt")),
    ),
    claim(
        "3.4",
        "Targets per allocation compress HPC",
        Source::Measured,
        Test::Number(Unit::Ratio, 1.7, 1.0, |facts| facts.ratio(ALLOCATION, Group::Hpc)),
    ),
    claim(
        "3.4",
        "Targets per allocation compress DL",
        Source::Recorded,
        Test::Number(Unit::Ratio, 1.42, 1.0, |facts| facts.ratio(ALLOCATION, Group::Dl)),
    ),
    claim(
        "3.4",
        "Over an iteration, buddy accesses of SqueezeNet and ResNet50 do not change a lot",
        Source::Recorded,
        Test::Statement(|facts| {
            let (squeezenet, resnet) =
                (facts.overflow_range("squeezenet")?, facts.overflow_range("resnet50")?);
            let text = format!(
                "{} to {} and {} to {}",
                percent(squeezenet.0),
                percent(squeezenet.1),
                percent(resnet.0),
                percent(resnet.1)
            );
            let change = (squeezenet.1 - squeezenet.0).max(resnet.1 - resnet.0);
            Some((text, Verdict::holds_if(change < 0.02)))
        }),
    ),
    claim(
        "3.4",
        "Ratio of SqueezeNet over an iteration",
        Source::Recorded,
        Test::Number(Unit::Ratio, 1.49, 1.0, |facts| facts.ratio_of(FINAL, "squeezenet")),
    ),
    claim(
        "3.4",
        "Ratio of ResNet50 over an iteration",
        Source::Recorded,
        Test::Number(Unit::Ratio, 1.64, 1.0, |facts| facts.ratio_of(FINAL, "resnet50")),
    ),
    untested(
        "3.4",
        "Entries change in both directions almost equally",
        "records keep the pages of one snapshot",
    ),
    claim(
        "3.4",
        "16x raises the ratio of 352.ep and VGG16",
        Source::Measured,
        Test::Statement(|facts| {
            let of = |name| Some((facts.ratio_of(ALLOCATION, name)?, facts.ratio_of(FINAL, name)?));
            let (ep, vgg) = (of("ep")?, of("vgg16")?);
            let text =
                format!("ep {} to {}, VGG16 {} to {}", ratio(ep.0), ratio(ep.1), ratio(vgg.0), ratio(vgg.1));
            let raised = usize::from(ep.1 > ep.0 * 1.001) + usize::from(vgg.1 > vgg.0 * 1.001);
            Some((text, [Verdict::Differs, Verdict::InDirection, Verdict::Holds][raised]))
        }),
    ),
    claim(
        "3.4",
        "16x raises the ratio of HPC, from 1.7x to 1.9x",
        Source::Measured,
        Test::Number(Unit::Percent, 1.9 / 1.7 - 1.0, 0.0, |facts| {
            Some(facts.ratio(FINAL, Group::Hpc)? / facts.ratio(ALLOCATION, Group::Hpc)? - 1.0)
        }),
    ),
    claim(
        "3.4",
        "16x raises the ratio of DL, from 1.42x to 1.5x",
        Source::Recorded,
        Test::Number(Unit::Percent, 1.5 / 1.42 - 1.0, 0.0, |facts| {
            Some(facts.ratio(FINAL, Group::Dl)? / facts.ratio(ALLOCATION, Group::Dl)? - 1.0)
        }),
    ),
    claim(
        "3.4",
        "16x has little effect on buddy accesses",
        Source::Measured,
        Test::Statement(|facts| {
            let more = |group| Some(facts.overflow(FINAL, group)? - facts.overflow(ALLOCATION, group)?);
            let (hpc, dl) = (more(Group::Hpc)?, more(Group::Dl)?);
            let text = format!("{} more of HPC, {} more of DL", percent(hpc), percent(dl));
            Some((text, Verdict::holds_if(hpc < 0.005 && dl < 0.005)))
        }),
    ),
    claim(
        "3.4",
        "The ratio of a program stays under 4x",
        Source::Measured,
        Test::AtMost(Unit::Ratio, 4.0, largest_ratio),
    ),
    untested(
        "3.4",
        "Metadata and device memory can be read in parallel on a metadata miss",
        "an option of the design that neither the paper nor we evaluate",
    ),
    claim(
        "3.5",
        "The final design compresses HPC",
        Source::Measured,
        Test::Number(Unit::Ratio, 1.9, 1.0, |facts| facts.ratio(FINAL, Group::Hpc)),
    ),
    claim(
        "3.5",
        "The final design compresses DL",
        Source::Recorded,
        Test::Number(Unit::Ratio, 1.5, 1.0, |facts| facts.ratio(FINAL, Group::Dl)),
    ),
    claim(
        "3.5",
        "Buddy accesses of the final design, HPC",
        Source::Measured,
        Test::Number(Unit::Percent, 0.0008, 0.0, |facts| facts.overflow(FINAL, Group::Hpc)),
    ),
    claim(
        "3.5",
        "Buddy accesses of the final design, DL",
        Source::Recorded,
        Test::Number(Unit::Percent, 0.04, 0.0, |facts| facts.overflow(FINAL, Group::Dl)),
    ),
    claim(
        "4.1",
        "The simulator correlates with a GPU",
        Source::Recorded,
        Test::Number(Unit::Number, 0.989, 0.0, |facts| facts.simulator("Correlation with hardware")),
    )
    .with("kernels of public programs on an H200"),
    untested("4.1", "GPGPU-Sim correlates with a GPU by 0.948", "GPGPU-Sim is not run here"),
    claim(
        "4.1",
        "The simulator is two orders of magnitude faster than GPGPU-Sim",
        Source::Measured,
        Test::Statement(|facts| {
            let faster = facts.simulator("Speed beside")?;
            // No number above the claim, since it depends on the machine.
            let text = if faster >= 100.0 { "over 100x".to_owned() } else { ratio(faster) };
            Some((text, Verdict::holds_if(faster >= 100.0)))
        }),
    )
    .with("than Accel-Sim, on one core; figure 10 has the numbers of this machine"),
    claim(
        "4.2",
        "Compressed bandwidth alone gains",
        Source::Simulated,
        Test::Number(Unit::Percent, 0.055, 0.0, |facts| {
            facts.mean_speed(None, Mode::Bandwidth, 150).map(|speed| speed - 1.0)
        }),
    ),
    claim(
        "4.2",
        "Most of that gain is in the networks",
        Source::Simulated,
        Test::Statement(|facts| {
            let of = |group| Some(facts.mean_speed(Some(group), Mode::Bandwidth, 150)? - 1.0);
            let (hpc, dl) = (of(Group::Hpc)?, of(Group::Dl)?);
            Some((format!("HPC {}, DL {}", percent(hpc), percent(dl)), Verdict::holds_if(dl > hpc)))
        }),
    ),
    claim(
        "4.2",
        "Compressed bandwidth slows down 354.cg and 360.ilbdc, which read single sectors at random",
        Source::Simulated,
        Test::Statement(|facts| losses(facts, &["cg", "ilbdc"], Mode::Bandwidth, 150, 0.0)),
    ),
    claim(
        "4.2",
        "Compressed bandwidth slows down FF_Lulesh by the latency of the codec",
        Source::Simulated,
        Test::Statement(|facts| losses(facts, &["lulesh"], Mode::Bandwidth, 150, 0.0)),
    ),
    claim(
        "4.2",
        "With 200 GB/s, Buddy Compression gains",
        Source::Simulated,
        Test::Number(Unit::Percent, 0.02, 0.0, |facts| {
            facts.mean_speed(None, Mode::Buddy, 200).map(|speed| speed - 1.0)
        }),
    )
    .with(NOT_COMPRESSED),
    claim(
        "4.2",
        "All slower links lose some speed",
        Source::Simulated,
        Test::Statement(|facts| {
            let speeds: Option<Vec<f64>> =
                [150, 100, 50].iter().map(|link| facts.mean_speed(None, Mode::Buddy, *link)).collect();
            let speeds = speeds?;
            let text: Vec<String> = speeds.iter().map(|speed| percent(*speed)).collect();
            let slower = speeds.iter().filter(|speed| **speed < 1.0).count();
            let verdict =
                [Verdict::Differs, Verdict::InDirection, Verdict::InDirection, Verdict::Holds][slower];
            Some((format!("speed {} with 150, 100 and 50 GB/s", text.join(", ")), verdict))
        }),
    )
    .with(NOT_COMPRESSED),
    claim(
        "4.2",
        "351.palm and 355.seismic are slower because of metadata misses",
        Source::Simulated,
        Test::Statement(|facts| losses(facts, &["palm", "seismic"], Mode::Buddy, 150, 0.0)),
    )
    .with("all of palm stays uncompressed (D78)"),
    claim(
        "4.2",
        "Slow links slow down 352.ep and 355.seismic considerably",
        Source::Simulated,
        Test::Statement(|facts| {
            let of =
                |name| Some(facts.speed(name, Mode::Buddy, 150)? / facts.speed(name, Mode::Buddy, 50)? - 1.0);
            let (ep, seismic) = (of("ep")?, of("seismic")?);
            let text =
                format!("50 instead of 150 GB/s: ep {}, seismic {} more time", percent(ep), percent(seismic));
            let slow = usize::from(ep > 0.05) + usize::from(seismic > 0.05);
            Some((text, [Verdict::Differs, Verdict::InDirection, Verdict::Holds][slow]))
        }),
    ),
    claim(
        "4.2",
        "FF_HPGMG copies from the host, so slow links slow it down drastically",
        Source::Simulated,
        Test::Statement(|facts| losses(facts, &["hpgmg"], Mode::Buddy, 50, 0.1)),
    ),
    claim(
        "4.2",
        "Accesses of AlexNet that go to buddy memory",
        Source::Simulated,
        Test::Number(Unit::Percent, 0.054, 0.0, |facts| facts.link_accesses("alexnet")),
    ),
    claim(
        "4.2",
        "Slowdown of AlexNet with 150 GB/s",
        Source::Simulated,
        Test::Number(Unit::Percent, 0.065, 0.0, |facts| facts.slowdown("alexnet", Mode::Buddy, 150)),
    ),
    claim(
        "4.2",
        "Slowdown of AlexNet with 50 GB/s",
        Source::Simulated,
        Test::Number(Unit::Percent, 0.35, 0.0, |facts| facts.slowdown("alexnet", Mode::Buddy, 50)),
    ),
    claim(
        "4.2",
        "With 50 GB/s, all lose more than 20% in the mean",
        Source::Simulated,
        Test::Statement(|facts| {
            let share = 1.0 / facts.mean_speed(None, Mode::Buddy, 50)? - 1.0;
            Some((loss(share), Verdict::holds_if(share > 0.2)))
        }),
    )
    .with(NOT_COMPRESSED),
    claim(
        "4.2",
        "With 150 GB/s, HPC is within 1% of the ideal GPU",
        Source::Simulated,
        Test::Statement(|facts| {
            let share = 1.0 / facts.mean_speed(Some(Group::Hpc), Mode::Buddy, 150)? - 1.0;
            Some((loss(share), Verdict::holds_if(share.abs() <= 0.01)))
        }),
    )
    .with(NOT_COMPRESSED),
    claim(
        "4.2",
        "With 150 GB/s, DL is within 2.2% of the ideal GPU",
        Source::Simulated,
        Test::Statement(|facts| {
            let share = 1.0 / facts.mean_speed(Some(Group::Dl), Mode::Buddy, 150)? - 1.0;
            Some((loss(share), Verdict::holds_if(share.abs() <= 0.022)))
        }),
    )
    .with(NOT_COMPRESSED),
    claim(
        "4.3",
        "Oversubscribed Unified Memory is often slower than memory pinned on the host",
        Source::Simulated,
        Test::Statement(|facts| {
            let pinned = facts.at_capacity(Mode::Pinned, 75, 1.0);
            let (mut texts, mut slower, mut count) = (Vec::new(), 0, 0);
            for capacity in HALF {
                let unified = facts.at_capacity(Mode::Um, 75, capacity);
                let mut shares = Vec::new();
                for (name, time) in &unified {
                    shares.push(time / pinned.iter().find(|one| one.0 == *name)?.1);
                }
                let here = shares.iter().filter(|share| **share > 1.0).count();
                (slower, count) = (slower + here, count + shares.len());
                let mean = ratio(geometric(shares.iter().copied())?);
                texts.push(format!(
                    "capacity {}: {here} of {} slower, {mean} of its time in the mean",
                    ratio(capacity),
                    shares.len()
                ));
            }
            (count > 0).then(|| (texts.join("; "), Verdict::holds_if(2 * slower > count)))
        }),
    )
    .with("over 75 GB/s; the paper measured a V100"),
    claim(
        "4.3",
        "Buddy Compression takes at most 1.67x of the time at 50% over 50 GB/s",
        Source::Simulated,
        Test::Statement(|facts| {
            let worst = |capacity| {
                let all = facts.at_capacity(Mode::Buddy, 50, capacity).into_iter();
                all.max_by(|a, b| a.1.total_cmp(&b.1))
            };
            let all: Option<Vec<(String, f64)>> = HALF.into_iter().map(worst).collect();
            let all = all?;
            let text = HALF.iter().zip(&all).map(|(capacity, (name, time))| {
                format!("at capacity {} at most {} ({name})", ratio(*capacity), ratio(*time))
            });
            let text: Vec<String> = text.collect();
            let within = all.iter().filter(|(_, time)| *time <= 1.67).count();
            Some((text.join(", "), [Verdict::Differs, Verdict::InDirection, Verdict::Holds][within]))
        }),
    )
    .with("programs of 32 MB"),
    claim(
        "4.4",
        "The memory of AlexNet grows from a batch of",
        Source::Modelled,
        Test::Number(Unit::Count, 96.0, 0.0, |_| {
            transitions().iter().find(|(name, _)| *name == "AlexNet").map(|(_, batch)| *batch as f64)
        }),
    ),
    claim(
        "4.4",
        "All other networks grow from a batch of at most 32",
        Source::Modelled,
        Test::Statement(|_| {
            let others: Vec<_> = transitions().into_iter().filter(|(name, _)| *name != "AlexNet").collect();
            let text: Vec<String> = others.iter().map(|(name, batch)| format!("{name} {batch}")).collect();
            let small = others.iter().filter(|(_, batch)| *batch <= 32).count();
            Some((text.join(", "), more_than_half(small, others.len())))
        }),
    ),
    claim(
        "4.4",
        "A larger batch is faster until the GPU is full",
        Source::Modelled,
        Test::Statement(|_| {
            let (small, large) = (doubling(8)?, doubling(256)?);
            let text = format!(
                "8 to 16 gains {} to {}, 256 to 512 gains {} to {}",
                percent(small.0),
                percent(small.1),
                percent(large.0),
                percent(large.1)
            );
            Some((text, Verdict::holds_if(small.0 > 0.0 && large.1 < small.1)))
        }),
    ),
    claim(
        "4.4",
        "A larger batch gains in the mean",
        Source::Modelled,
        Test::Number(Unit::Percent, 0.14, 0.0, |facts| facts.larger_batch("mean, paper's")),
    )
    .with("with the paper's ratios"),
    claim(
        "4.4",
        "A larger batch gains for BigLSTM",
        Source::Modelled,
        Test::Number(Unit::Percent, 0.28, 0.0, |facts| facts.larger_batch("BigLSTM")),
    ),
    claim(
        "4.4",
        "A larger batch gains for VGG16",
        Source::Modelled,
        Test::Number(Unit::Percent, 0.30, 0.0, |facts| facts.larger_batch("VGG16")),
    ),
    claim(
        "4.4",
        "Without compression, BigLSTM and VGG16 do not fit a batch of 64",
        Source::Modelled,
        Test::Statement(|_| {
            let (lstm, vgg) = (largest_batch("biglstm")?, largest_batch("vgg16")?);
            let small = usize::from(lstm < 64) + usize::from(vgg < 64);
            let verdict = [Verdict::Differs, Verdict::InDirection, Verdict::Holds][small];
            Some((format!("largest batch in 12 GB: {lstm} and {vgg}"), verdict))
        }),
    ),
    claim(
        "4.4",
        "The gain of a larger batch exceeds the overhead of compression",
        Source::Modelled,
        Test::Statement(|facts| {
            let gain = facts.larger_batch("mean, paper's")?;
            let cost = 1.0 - facts.mean_speed(Some(Group::Dl), Mode::Buddy, 150)?;
            let text = format!("{} of gain, {} of overhead", percent(gain), percent(cost.max(0.0)));
            Some((text, Verdict::holds_if(gain > cost)))
        }),
    ),
    claim(
        "4.4",
        "Batches of 16 and 32 do not reach the best accuracy",
        Source::Recorded,
        Test::Statement(|facts| {
            let all = facts.accuracy()?;
            let at = |batch: u64| all.iter().find(|one| one.batch == batch).map(|one| one.last);
            let best = all.iter().map(|one| one.last).reduce(f64::max)?;
            let (small, next) = (at(16)?, at(32)?);
            let text = format!("{} and {}, the best {}", percent(small), percent(next), percent(best));
            let below = usize::from(best - small > 0.005) + usize::from(best - next > 0.005);
            Some((text, [Verdict::Differs, Verdict::InDirection, Verdict::Holds][below]))
        }),
    )
    .with("a smaller network on Fashion-MNIST (D63)"),
    claim(
        "4.4",
        "Small batches have more jitter",
        Source::Recorded,
        Test::Statement(|facts| {
            let all = facts.accuracy()?;
            let jitter = |batch: u64| all.iter().find(|one| one.batch == batch).map(|one| one.jitter);
            let (small, large) = (jitter(16)?, jitter(256)?);
            let text =
                format!("mean change between epochs {} at 16, {} at 256", percent(small), percent(large));
            Some((text, Verdict::holds_if(small > large)))
        }),
    )
    .with("a smaller network on Fashion-MNIST (D63)"),
    claim(
        "4.4",
        "Accuracy stays good up to a batch of 256",
        Source::Recorded,
        Test::Statement(|facts| {
            let all = facts.accuracy()?;
            let last = all.iter().find(|one| one.batch == 256)?.last;
            let best = all.iter().map(|one| one.last).reduce(f64::max)?;
            let text = format!("{} at 256, the best {}", percent(last), percent(best));
            Some((text, Verdict::holds_if(best - last < 0.01)))
        }),
    )
    .with("a smaller network on Fashion-MNIST (D63)"),
    untested(
        "4.4",
        "Networks such as MegDet and BERT fit 2 to 4 samples, and normalisation needs 32",
        "cited from other work",
    ),
    claim(
        "4.4",
        "A batch of 64 to 128 is needed for nearly the best throughput",
        Source::Modelled,
        Test::Statement(|_| {
            let [small, middle, large] = [16, 64, 128].map(share_of_peak);
            let (small, middle, large) = (small?, middle?, large?);
            let text = format!(
                "mean of the throughput at 512: {} at 16, {} at 64, {} at 128",
                percent(small),
                percent(middle),
                percent(large)
            );
            let verdict = match (small < 0.95 && large >= 0.95, middle > small && large > middle) {
                (true, _) => Verdict::Holds,
                (_, true) => Verdict::InDirection,
                _ => Verdict::Differs,
            };
            Some((text, verdict))
        }),
    ),
];

/// Returns the rows of the design's constants: those of table 2's figure, and further ones.
pub(super) fn constants() -> Vec<Vec<GridCell>> {
    let design = Design.draw(&Findings::new(Settings::QUICK));
    let number_row = |one: &buddy_record::Quantity| {
        let ours = one.ours.map(|ours| number(one.unit, ours)).unwrap_or_default();
        [one.place.clone(), one.name.clone(), number(one.unit, one.paper), ours]
    };
    let ratios =
        |targets: &mut dyn Iterator<Item = Target>| targets.map(Target::name).collect::<Vec<_>>().join(", ");
    let mut up_to_4x = Target::ALL.into_iter().filter(|target| (1.0..=4.0).contains(&target.ratio()));
    let rows = [
        ["section 2.4", "Bytes of an entry", "128", &ENTRY_BYTES.to_string()],
        ["section 3.2", "Bytes of a sector", "32", &SECTOR_BYTES.to_string()],
        ["section 3.2", "Targets", "1x, 1.33x, 2x, 4x", &ratios(&mut up_to_4x)],
        [
            "section 3.4",
            "Target of mostly-zero memory",
            "16x: 8 B of 128 B",
            &format!("{}: {} B of {ENTRY_BYTES} B", Target::X16.name(), Target::X16.device_bytes()),
        ],
        ["section 3.5", "Threshold", "30%", &percent(buddy_profile::DEFAULT_THRESHOLD)],
    ]
    .map(|row| row.map(str::to_owned));
    let all = rows.into_iter().chain(design.quantities.iter().map(number_row));
    all.map(|row| row.map(GridCell::from).into()).collect()
}
