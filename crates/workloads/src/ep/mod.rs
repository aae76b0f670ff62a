//! `ep`: the NAS EP kernel, as on an accelerator.
//!
//! Uniform numbers become pairs of Gaussian deviates by Marsaglia's polar method; the deviates are
//! summed and counted by square annulus. One accelerator thread owns one batch, so the layout is
//! `xx[number][batch]`. A step is one launch over the next twentieth of the batches; the rest of
//! `xx` is still zero.

mod trace;

use std::f64::consts::FRAC_PI_4;
use std::ops::Range;

use buddy_trace::Application;
use rayon::prelude::*;

use crate::lcg::{Lcg, Leap};
use crate::workload::{Allocation, Check, Info, Workload};

/// Entry of `buddy workload list`. NAS fixes the generator's seed, so the seed passed to `build`
/// has no effect.
pub(crate) const INFO: Info = Info {
    name: "ep",
    paper_name: "352.ep",
    method: "NAS EP: pairs of Gaussian deviates, counted by annulus",
    paper_bytes: 2_750_000_000,
    seconds_per_mb: 0.04,
    simulated_seconds_per_mb: 0.07,
    has_host_memory: false,
    footprint: |bytes| Shape::fitting(bytes).bytes(),
    build: |bytes, _seed| Box::new(Ep::new(Shape::fitting(bytes))),
};

const SEED: u64 = 271_828_183;
const ANNULI: usize = 10;
const STEPS: u64 = 20;

/// Rows of `xx` per task: even, to hold whole pairs.
const ROWS: usize = 512;

/// Published sums: log2 of the pairs, sum of the first deviates, sum of the second.
const PUBLISHED: [(u32, f64, f64); 4] = [
    (24, -3.247_834_652_034_74e3, -6.958_407_078_382_297e3),
    (25, -2.863_319_731_645_753e3, -6.320_053_679_109_499e3),
    (28, -4.295_875_165_629_892e3, -1.580_732_573_678_431e4),
    (30, 4.033_815_542_441_498e4, -2.660_669_192_809_235e4),
];

/// Number of batches and pairs per batch.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shape {
    log_pairs: u32,
    batches: usize,
}

impl Shape {
    /// Returns the largest shape that fits: the accelerator version's batches of 2^16 pairs, or
    /// smaller ones if fewer than 64 of those fit.
    fn fitting(bytes: u64) -> Self {
        let batches = |log_pairs| (bytes / Self { log_pairs, batches: 1 }.bytes()) as usize;
        let log_pairs = (9..=16).rev().find(|&log| batches(log) >= 64).unwrap_or(9);
        Self { log_pairs, batches: batches(log_pairs).max(1) }
    }

    /// Returns the uniform numbers in a batch.
    fn numbers(self) -> usize {
        2 << self.log_pairs
    }

    /// Returns the bytes of all arrays.
    fn bytes(self) -> u64 {
        ((self.batches * (self.numbers() + ANNULI + 2) + ANNULI) * 8) as u64
    }

    fn pairs(self) -> f64 {
        (self.batches * self.numbers() / 2) as f64
    }
}

/// Sums and counts of a batch or a part of it.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    counts: [f64; ANNULI],
    sx: f64,
    sy: f64,
}

impl Tally {
    /// Adds one pair of numbers in (0, 1); about a fifth are rejected.
    #[inline]
    fn take(&mut self, first: f64, second: f64) {
        let (x, y) = (2.0 * first - 1.0, 2.0 * second - 1.0);
        let t = x * x + y * y;
        if t <= 1.0 {
            let scale = (-2.0 * t.ln() / t).sqrt();
            let (x, y) = (x * scale, y * scale);
            self.counts[x.abs().max(y.abs()) as usize] += 1.0;
            self.sx += x;
            self.sy += y;
        }
    }
}

struct Ep {
    shape: Shape,
    done: u64,
    xx: Vec<f64>,
    qq: Vec<f64>,
    sx: Vec<f64>,
    sy: Vec<f64>,
    q: Vec<f64>,
}

impl Ep {
    fn new(shape: Shape) -> Self {
        let zeros = |count: usize| vec![0.0; count * shape.batches];
        let (xx, qq) = (zeros(shape.numbers()), zeros(ANNULI));
        Self { shape, done: 0, xx, qq, sx: zeros(1), sy: zeros(1), q: vec![0.0; ANNULI] }
    }

    /// Returns the batches of one launch.
    fn launch(&self, step: u64) -> Range<usize> {
        let edge = |step: u64| (self.shape.batches as u64 * step / STEPS) as usize;
        edge(step)..edge(step + 1)
    }

    /// Fills the batches' columns of `xx` and returns a tally per batch. Parts of a batch are added
    /// in row order, so the sums are independent of the number of threads.
    fn generate(&mut self, launch: Range<usize>) -> Vec<Tally> {
        let (width, numbers) = (self.shape.batches, self.shape.numbers() as u64);
        let starts: Vec<Lcg> =
            launch.clone().map(|batch| Lcg::new(SEED).after(Leap::over(batch as u64 * numbers))).collect();
        let parts: Vec<Vec<Tally>> = self
            .xx
            .par_chunks_mut(ROWS * width)
            .enumerate()
            .map(|(chunk, rows)| {
                let leap = Leap::over((chunk * ROWS) as u64);
                let generators = starts.iter().map(|start| start.after(leap)).collect();
                fill(rows, width, launch.clone(), generators)
            })
            .collect();
        (0..launch.len()).map(|column| total(parts.iter().map(|part| part[column]))).collect()
    }

    /// Compares with the published sums of the largest class that this run covers.
    fn covered(&self) -> Vec<Check> {
        let class = PUBLISHED.iter().rfind(|(log, ..)| (1_u64 << log) as f64 <= self.shape.pairs());
        let check = |what, sums: &[f64], log: u32, expected: f64| {
            let measured = sums[..1 << (log - self.shape.log_pairs)].iter().sum();
            Check { what, measured, expected, tolerance: 1e-8 * expected.abs() }
        };
        class.map_or(vec![], |&(log, sx, sy)| {
            vec![check("NAS sum of x", &self.sx, log, sx), check("NAS sum of y", &self.sy, log, sy)]
        })
    }
}

/// Draws the numbers of some rows for the batches of `launch`, and tallies their pairs.
fn fill(rows: &mut [f64], width: usize, launch: Range<usize>, mut generators: Vec<Lcg>) -> Vec<Tally> {
    let mut tallies = vec![Tally::default(); launch.len()];
    for pair in rows.chunks_mut(2 * width) {
        let (first, second) = pair.split_at_mut(width);
        for row in [&mut *first, &mut *second] {
            for (slot, generator) in row[launch.clone()].iter_mut().zip(&mut generators) {
                *slot = generator.draw();
            }
        }
        let numbers = first[launch.clone()].iter().zip(&second[launch.clone()]);
        for (tally, (&first, &second)) in tallies.iter_mut().zip(numbers) {
            tally.take(first, second);
        }
    }
    tallies
}

fn total(parts: impl Iterator<Item = Tally>) -> Tally {
    parts.fold(Tally::default(), |mut sum, part| {
        sum.counts.iter_mut().zip(part.counts).for_each(|(sum, count)| *sum += count);
        Tally { sx: sum.sx + part.sx, sy: sum.sy + part.sy, ..sum }
    })
}

impl Workload for Ep {
    fn steps(&self) -> u64 {
        STEPS
    }

    fn step(&mut self) {
        let launch = self.launch(self.done);
        let tallies = self.generate(launch.clone());
        for (batch, tally) in launch.zip(tallies) {
            for (annulus, count) in tally.counts.into_iter().enumerate() {
                self.qq[annulus * self.shape.batches + batch] = count;
                self.q[annulus] += count;
            }
            (self.sx[batch], self.sy[batch]) = (tally.sx, tally.sy);
        }
        self.done += 1;
    }

    fn allocations(&self) -> Vec<Allocation<'_>> {
        let arrays = [("xx", &self.xx), ("qq", &self.qq), ("sx", &self.sx), ("sy", &self.sy), ("q", &self.q)];
        arrays.map(|(name, data)| Allocation::f64(name, "ep.c: main", data)).into()
    }

    fn application(&self) -> Application {
        trace::application(self)
    }

    /// Checks the published sums if the run covers a class, and statistics within five standard
    /// deviations.
    fn check(&self) -> Vec<Check> {
        let accepted: f64 = self.q.iter().sum();
        let share = |what, measured, expected: f64, sample: f64| {
            let deviation = (expected * (1.0 - expected) / sample).sqrt();
            Check { what, measured, expected, tolerance: 5.0 * deviation }
        };
        // Probability that a normal deviate is within one and two standard deviations of the mean.
        let (within_one, within_two) = (0.682_689_492_137_085_9_f64, 0.954_499_736_103_641_6_f64);
        let (inner, second) = (within_one.powi(2), within_two.powi(2) - within_one.powi(2));
        let mean = |sums: &[f64]| sums.iter().sum::<f64>() / accepted.sqrt();
        let mut checks = self.covered();
        checks.extend([
            share("share of pairs accepted", accepted / self.shape.pairs(), FRAC_PI_4, self.shape.pairs()),
            share("share in the first annulus", self.q[0] / accepted, inner, accepted),
            share("share in the second annulus", self.q[1] / accepted, second, accepted),
            Check { what: "sum of x in deviations", measured: mean(&self.sx), expected: 0.0, tolerance: 5.0 },
            Check { what: "sum of y in deviations", measured: mean(&self.sy), expected: 0.0, tolerance: 5.0 },
        ]);
        checks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::tests::{assert_footprint, finish};

    fn class(log_all: u32, log_pairs: u32) -> Ep {
        Ep::new(Shape { log_pairs, batches: 1 << (log_all - log_pairs) })
    }

    #[test]
    fn class_s_has_the_published_sums_and_counts() {
        for log_pairs in [16, 11] {
            let mut ep = class(24, log_pairs);
            let checks = finish(&mut ep);
            assert_eq!(checks[0].expected, PUBLISHED[0].1);
            assert_eq!(ep.q[..6], [6_140_517.0, 5_865_300.0, 1_100_361.0, 68_546.0, 1_648.0, 17.0]);
        }
    }

    #[test]
    fn class_w_has_the_published_sums() {
        let checks = finish(&mut class(25, 16));
        assert_eq!((checks[0].expected, checks[1].expected), (PUBLISHED[1].1, PUBLISHED[1].2));
    }

    #[test]
    fn a_wrong_sum_fails_the_check() {
        let mut ep = class(24, 16);
        (0..STEPS).for_each(|_| ep.step());
        ep.sx[17] += 1e-4;
        assert!(!ep.check()[0].passed());
    }

    #[test]
    fn batches_not_launched_are_zero() {
        let mut ep = Ep::new(Shape::fitting(1 << 20));
        (0..STEPS / 2).for_each(|_| ep.step());
        let zeros = ep.xx.iter().filter(|x| **x == 0.0).count();
        assert!(zeros.abs_diff(ep.xx.len() / 2) <= ep.shape.numbers());
    }

    #[test]
    fn shapes_fit_any_request() {
        assert_footprint(INFO.paper_bytes, |bytes| Shape::fitting(bytes).bytes());
        assert_eq!(Shape::fitting(INFO.paper_bytes).log_pairs, 16);
    }
}
