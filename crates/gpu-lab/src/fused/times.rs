//! Speed of a linear layer, alone and in a chain, compared with cuBLASLt's fastest algorithm and
//! with the same kernel on plain weights.

use std::time::Instant;

use buddy_cuda::{DeviceBytes, Launch, Output};
use cudarc::driver::CudaGraph;

use super::{FusedRow, Speeds, TWIN, linear::Layer, tight::Way};
use crate::{
    Error,
    lab::{at, none_wrong},
    vendor::Vendor,
};

/// The most and the fewest launches that are timed together, and the microseconds that suffice.
const MOST: usize = 40;
const LEAST: usize = 12;
const CHAIN_US: f64 = 2000.0;
/// cuBLASLt's algorithms that are timed precisely.
const FINALISTS: usize = 6;

/// Returns the launches to time together, given the time of one at memory bandwidth: enough to hide
/// the cost of a graph launch. Copies of the weights are used in turn and equally often, so that
/// none is still in L2.
pub(super) fn chain(copies: usize, one_us: f64, tokens: u32) -> usize {
    let launches = match tokens {
        ..512 => ((CHAIN_US / one_us) as usize).clamp(LEAST, MOST),
        512 => LEAST / 2,
        _ => 1,
    };
    launches.next_multiple_of(copies)
}

/// Returns the resource that limits a kernel, by the share of memory bandwidth that it reaches.
fn limiter(of_memory: f64) -> &'static str {
    if of_memory > 0.85 { "memory" } else { "instructions" }
}

impl Layer<'_> {
    /// Makes plain weights in tile order, for the same kernels without compression.
    pub(super) fn make_tiles(&mut self) -> Result<(), Error> {
        let (rows, columns) = self.size;
        for plain in &self.plain {
            let tiles = self.lab.bytes(u64::from(rows.next_multiple_of(16)) * u64::from(columns) * 2)?;
            tiles.fill(0)?;
            let arguments = (at(plain), at(&tiles), plain.len() / 128, columns / 64);
            // SAFETY: the arguments of `linear_tiles`; `tiles` holds whole tiles.
            unsafe { self.kernels.start("linear_tiles", Launch::new((4096, 1), 256, 0), &arguments)? };
            self.tiles.push(tiles);
        }
        Ok(())
    }

    /// Enqueues the kernel of the same form on plain weights; returns false if there is none for
    /// this number of tokens.
    fn start_plain(
        &self,
        copy: usize,
        tokens: u32,
        to: (&DeviceBytes, Output),
        overlaps: bool,
    ) -> Result<bool, Error> {
        let tiles = self.tiles[copy].all();
        self.with(copy, tokens, to, overlaps, |linear| Ok(linear.start_plain_form(&self.lab.stream, tiles)?))
    }

    /// Checks the kernel of the same form against exact sums.
    pub(super) fn verify_plain(&self, tokens: u32, compared: u32) -> Result<(), Error> {
        self.y.fill(0xee)?;
        if !self.start_plain(0, tokens, (&self.y, Output::Fp32), true)? {
            return Ok(());
        }
        none_wrong("linear layer on plain weights, against exact sums", self.wrong(compared)?)
    }

    /// Times all variants in turn, among them the kernels of the same form if they are correct, and
    /// returns a row for frozen weights and one for each other way.
    pub(super) fn rows(
        &self,
        speeds: Speeds,
        tokens: u32,
        is_twin_right: bool,
        ways: &[Way],
    ) -> Result<Vec<FusedRow>, Error> {
        let copies = self.plain.len();
        let (rows, columns) = (u64::from(self.size.0), u64::from(self.size.1));
        let others = 2 * u64::from(tokens) * (rows + columns);
        let fused_bytes = rows * columns / 64 * 96 + rows * columns / 128 + others;
        let memory_us = fused_bytes as f64 / speeds.read_gb_per_s / 1e3;
        let launches = chain(copies, memory_us, tokens);
        let bf16 = (&self.y, Output::Bf16);
        let ours = |overlaps| self.graph(launches, |i| self.start(i % copies, tokens, bf16, overlaps));
        let mut graphs = vec![ours(false)?, ours(true)?];
        let has_form = self.start_plain(0, tokens, bf16, false)?;
        let has_twin = has_form && is_twin_right;
        for overlaps in [false, true].into_iter().filter(|_| has_twin) {
            let start = |i| self.start_plain(i % copies, tokens, bf16, overlaps).map(drop);
            graphs.push(self.graph(launches, start)?);
        }
        let first_way = graphs.len();
        for &way in ways {
            for overlaps in [false, true] {
                let start = |i| self.start_way(way, i % copies, tokens, bf16, overlaps);
                graphs.push(self.graph(launches, start)?);
            }
        }
        let mine = graphs.len();
        // Graphs use its memory: it must live until they are timed.
        let vendor = Vendor::new(self.lab, self.size, tokens)?;
        graphs.extend(vendor.as_ref().map_or(Ok(Vec::new()), |vendor| self.finalists(vendor, launches))?);
        let all: Vec<&CudaGraph> = graphs.iter().collect();
        let mut times = self.lab.time_in_turn(launches, &all)?;
        let best = (mine..times.len()).min_by(|&a, &b| times[a].total_cmp(&times[b]));
        if let Some(best) = best.filter(|_| !has_form) {
            // Many tokens heat the GPU, and other kernels would change its clock, so the fastest is
            // timed again, in turn with ours alone.
            let again = self.lab.time_in_turn(launches, &[all[0], all[1], all[best]])?;
            (times[0], times[1], times[best]) = (again[0], again[1], again[2]);
        }
        let (fused_us, of_memory) = (times[0], memory_us / times[0]);
        let twin_us = if has_twin { times[2] } else { f64::NAN };
        let against = match best {
            Some(best) => ("cuBLASLt, the best of its algorithms".to_owned(), times[best]),
            None => (TWIN.to_owned(), twin_us),
        };
        let frozen = FusedRow {
            what: self.name(tokens),
            tokens: Some(tokens),
            memory: "bf16 frozen at 4/3x".to_owned(),
            fused_us,
            overlapped_us: Some(times[1]),
            against: against.0,
            against_us: against.1,
            twin_us: if has_twin { twin_us } else { against.1 },
            twin_overlapped_us: has_twin.then(|| times[3]),
            fused_bytes,
            plain_bytes: self.plain[0].len() + others,
            of_memory,
            overflow: 0.0,
            limiter: limiter(of_memory).to_owned(),
        };
        let others = ways.iter().enumerate().map(|(i, &way)| {
            let (alone, chained) = (times[first_way + 2 * i], times[first_way + 2 * i + 1]);
            let fused_bytes = self.weight_bytes(way) + others;
            let of_memory = fused_bytes as f64 / speeds.read_gb_per_s / 1e3 / alone;
            FusedRow {
                memory: way.memory().to_owned(),
                fused_us: alone,
                overlapped_us: Some(chained),
                fused_bytes,
                of_memory,
                limiter: limiter(of_memory).to_owned(),
                ..frozen.clone()
            }
        });
        let others: Vec<FusedRow> = others.collect();
        Ok([vec![frozen], others].concat())
    }

    /// Returns graphs of the fastest of all algorithms of the heuristics, each timed once.
    pub(super) fn finalists(&self, vendor: &Vendor, launches: usize) -> Result<Vec<CudaGraph>, Error> {
        let run = |algorithm: usize, turn: usize| {
            let weights = self.plain[turn % self.plain.len()].all();
            vendor.multiply(&self.lab.stream, algorithm, weights, self.x.all(), self.other.all())
        };
        let mut tried = Vec::new();
        for algorithm in (0..vendor.algorithms()).filter(|&algorithm| run(algorithm, 0).is_ok()) {
            self.lab.wait()?;
            let start = Instant::now();
            (0..self.plain.len()).try_for_each(|turn| run(algorithm, turn))?;
            self.lab.wait()?;
            tried.push((start.elapsed(), algorithm));
        }
        tried.sort();
        let best = tried.iter().take(FINALISTS);
        best.map(|&(_, algorithm)| self.graph(launches, |turn| run(algorithm, turn))).collect()
    }

    /// Captures several launches as a graph.
    pub(super) fn graph(
        &self,
        launches: usize,
        mut start: impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<CudaGraph, Error> {
        self.lab.graph(|| (0..launches).try_for_each(&mut start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_long_where_a_launch_is_short_and_use_every_copy_as_often() {
        // 4096 x 4096: 12 copies; 28672 x 4096: 3; 128256 x 8192: 3.
        assert_eq!(chain(12, 5.6, 1), 48);
        assert_eq!(chain(3, 39.4, 64), 42);
        assert_eq!(chain(3, 352.0, 1), 12);
        assert_eq!(chain(12, 5.6, 512), 12);
        assert_eq!(chain(3, 352.0, 512), 6);
        assert_eq!(chain(3, 352.0, 4096), 3);
    }
}
