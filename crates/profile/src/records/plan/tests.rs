//! Compares plans with brute force.

use buddy_codec::CodecKind;
use buddy_core::Dtype;
use buddy_record::{AllocationInfo, SnapshotInfo};

use super::*;
use crate::MeasuredCodec;

/// A linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// Returns a random histogram of `entries` entries, often mostly of one class.
    fn histogram(&mut self, entries: u64) -> Histogram {
        let mut classes = [0; 6];
        let mut left = entries;
        for class in &mut classes {
            *class = if self.below(3) == 0 { self.below(left + 1) } else { 0 };
            left -= *class;
        }
        classes[self.below(6) as usize] += left;
        Histogram { classes, optimistic_bytes: 0 }
    }
}

fn measured(random: &mut Random, allocations: u64) -> Measured {
    let mut run = RunInfo::new("random", Default::default(), Vec::new());
    run.snapshots = (0..2).map(|step| SnapshotInfo { step, label: String::new(), file: None }).collect();
    let mut all = Vec::new();
    for index in 0..allocations {
        let scale = random.below(10);
        let pages = 1 + random.below(1 << scale);
        let entries = pages * 64;
        run.allocations.push(AllocationInfo {
            name: index.to_string(),
            call_site: String::new(),
            base: 0,
            bytes: entries * 128,
            dtype: Dtype::U8,
        });
        let mut codec = |kind| MeasuredCodec {
            kind,
            codec: None,
            parameter_bytes: 0,
            histograms: (0..2).map(|_| random.histogram(entries)).collect(),
            blocks: None,
            maps: Vec::new(),
        };
        all.push(MeasuredAllocation::new(vec![codec(CodecKind::Bpc), codec(CodecKind::Planes64)], 0.3));
    }
    Measured { run, allocations: all, auto: true }
}

fn request(device_memory: u64, accesses: Option<Vec<u64>>) -> PlanRequest {
    let mut gpu = Gpu::named("paper").unwrap();
    (gpu.core.clock_mhz, gpu.dram.clock_mhz) = (1000.0, 1e6 / 32.0 / 32.0);
    assert_eq!(gpu.dram_gb_per_s(), 1000.0);
    PlanRequest { device_memory, gpu, link: Link::named("50").unwrap(), accesses }
}

/// Returns the least seconds on the link over all assignments that fit. Independent of the
/// planner's code.
fn brute_force(measured: &Measured, memory: u64, accesses: Option<&[u64]>) -> Option<f64> {
    let mut partial = vec![(0u64, 0u64, 0.0f64)];
    for (index, allocation) in measured.allocations.iter().enumerate() {
        let entries = measured.run.allocations[index].bytes / 128;
        let mut next = Vec::new();
        for codec in &allocation.codecs {
            // At 1x, entries that save fewer than two sectors on average have no metadata.
            let classes = || {
                codec.histograms.iter().flat_map(|histogram| histogram.classes.iter().zip([4, 3, 3, 2, 1, 0]))
            };
            let plain = classes().map(|(count, saved)| count * saved).sum::<u64>()
                < 2 * classes().map(|(count, _)| count).sum::<u64>();
            for (device, slot) in [(128, 0), (96, 32), (64, 64), (32, 96), (8, 128)] {
                let over = |histogram: &Histogram| -> u64 {
                    let sizes = [0, 8, 32, 64, 96, 128];
                    let rest = sizes.map(|size: u64| match device {
                        8 if size > 8 => size,
                        _ => size.saturating_sub(device),
                    });
                    histogram.classes.iter().zip(rest).map(|(count, rest)| count * rest).sum()
                };
                let mean = codec.histograms.iter().map(over).sum::<u64>() as f64 / 2.0;
                let passes = accesses.map_or(1.0, |accesses| accesses[index] as f64 / entries as f64);
                for &(cost, buddy, loss) in &partial {
                    let metadata = if device == 128 && plain { 0 } else { entries / 2 };
                    let cost = cost + entries * device + metadata;
                    if cost <= memory {
                        next.push((cost, buddy + entries * slot, loss + passes * mean / 50e9));
                    }
                }
            }
        }
        partial = next;
    }
    let fits = partial.into_iter().filter(|(_, buddy, _)| *buddy <= 3 * memory);
    fits.map(|(_, _, loss)| loss).min_by(f64::total_cmp)
}

/// The search proves small plans optimal, so they equal brute force.
#[test]
fn a_thousand_small_plans_are_as_good_as_brute_force() {
    let mut random = Random(1);
    let (mut fitted, mut exact) = (0, 0);
    for case in 0..1000 {
        let allocations = 1 + random.below(4);
        let measured = measured(&mut random, allocations);
        let memory = measured.run.bytes() * (5 + random.below(95)) / 100;
        let accesses =
            (case % 2 == 0).then(|| (0..allocations).map(|_| random.below(1_000_000)).collect::<Vec<u64>>());
        let best = brute_force(&measured, memory, accesses.as_deref());
        match (plan(&measured, &request(memory, accesses)), best) {
            (Ok((assigned, outcome)), Some(best)) => {
                fitted += 1;
                exact += usize::from(outcome.optimal);
                assert!(outcome.device_bytes <= memory && assigned.len() as u64 == allocations);
                assert!(outcome.link_seconds <= best * 1.1 + 1e-15, "case {case}: {outcome:?}, best {best}");
                assert!(outcome.link_seconds >= best * (1.0 - 1e-9), "case {case}: {outcome:?}, best {best}");
                assert!(
                    outcome.bound_seconds <= best * (1.0 + 1e-9),
                    "case {case}: {outcome:?}, best {best}"
                );
            }
            (Err(Error::NothingFits { .. } | Error::CarveOut { .. }), None) => {}
            (found, best) => panic!("case {case}: {found:?}, but brute force says {best:?}"),
        }
    }
    assert!((400..1000).contains(&fitted), "{fitted} cases fit");
    assert!(exact > fitted * 9 / 10, "{exact} of {fitted} are proved optimal");
}

#[test]
fn errors_give_the_missing_bytes() {
    let mut random = Random(5);
    let measured = measured(&mut random, 3);
    let least = measured.run.bytes() / 16 + measured.run.bytes() / 256;
    let error = plan(&measured, &request(least - 1, None)).unwrap_err().to_string();
    assert!(error.ends_with(&format!("needs {}, 1 B too much", buddy_core::binary_size(least))), "{error}");
    // It fits the device memory, but not the carve-out.
    let error = plan(&measured, &request(least, None)).unwrap_err();
    assert!(matches!(error, Error::CarveOut { .. }), "{error}");
    assert_eq!(error.to_string().lines().count(), 1);
}

#[test]
fn a_run_that_fits_uncompressed_loses_no_time() {
    let measured = measured(&mut Random(9), 3);
    let (_, outcome) = plan(&measured, &request(2 * measured.run.bytes(), None)).unwrap();
    assert_eq!((outcome.link_seconds, outcome.optimal), (0.0, true));
    let seconds = measured.run.bytes() as f64 / 1000e9;
    assert!((outcome.device_seconds / seconds - 1.0).abs() < 1e-12);
}

#[test]
fn access_counts_match_the_allocations_of_the_run() {
    let run = measured(&mut Random(2), 2).run;
    let read = |text: &str| read_accesses("counts.json", text, &run).map_err(|error| error.to_string());
    assert_eq!(read(r#"{"0": 5, "1": 7}"#), Ok(vec![5, 7]));
    assert!(read(r#"{"0": 5}"#).unwrap_err().contains("\"1\""));
    assert!(read(r#"{"0": 5, "1": 7, "2": 1}"#).unwrap_err().contains("\"2\""));
    assert!(read(r#"{"0": -1}"#).unwrap_err().starts_with("counts.json: invalid access counts"));
}

/// An allocation that is never accessed loses no time in buddy memory, but gets unused device
/// memory.
#[test]
fn unused_device_memory_goes_to_allocations_without_accesses() {
    let measured = measured(&mut Random(9), 2);
    let entries = |index: usize| measured.run.allocations[index].entries();
    let request = request(2 * measured.run.bytes(), Some(vec![0, entries(1)]));
    let (assigned, outcome) = plan(&measured, &request).unwrap();
    for (one, allocation) in assigned.iter().zip(&measured.allocations) {
        let target = one.targets.uniform().unwrap();
        let histograms = &allocation.codecs[one.codec].histograms;
        assert!(histograms.iter().all(|histogram| histogram.overflowing(target) == 0), "{target}");
    }
    assert_eq!((outcome.link_seconds, outcome.next_bytes), (0.0, None));
}

/// The remaining memory is smaller than the next step, whose requirement the plan reports.
#[test]
fn a_plan_reports_the_memory_of_the_next_step() {
    let mut random = Random(3);
    for _ in 0..50 {
        let measured = measured(&mut random, 3);
        let memory = measured.run.bytes() * 6 / 10;
        let Ok((_, outcome)) = plan(&measured, &request(memory, None)) else { continue };
        assert_eq!(outcome.next_bytes.is_some(), outcome.link_seconds > 0.0, "{outcome:?}");
        let Some(next) = outcome.next_bytes else { continue };
        assert!(next > memory, "{outcome:?}");
        let (_, better) = plan(&measured, &request(next, None)).unwrap();
        assert!(better.link_seconds < outcome.link_seconds, "{better:?} against {outcome:?}");
    }
}
