//! Mixtures of experts: [`Route`] sorts tokens by expert, [`GroupedLinear`] multiplies each
//! expert's tokens by its matrix, [`Combine`] adds up each token's results. The route stays on the
//! GPU, so that no step waits for the host.

use cudarc::driver::{CudaFunction, CudaStream, DeviceRepr};

use super::{
    Output, Weights, kernel,
    wide::{SLICED, WIDE, Wide},
};
use crate::{
    DeviceSpan, Error, Gpu, Source,
    driver::{Launch, TensorMap},
    layout::{CombiningView, LinearView, RoutingView},
};

/// Words of a route before its groups, words of a group, most experts, and warps of a CTA, as in
/// `route.cu`.
const HEAD: u64 = 4;
const GROUP: u64 = 4;
const MOST_EXPERTS: u32 = 1024;
const WARPS: u32 = 8;
/// Threads of a CTA of `experts_combine`.
const COMBINE_THREADS: u32 = 128;
/// Most assignments whose rows the kernel that sorts them gathers itself: with more, a second kernel
/// uses the whole GPU.
const FEW: u32 = 64;
/// Bytes at the beginning of scratch memory for counters.
const COUNTS: u64 = 64 << 10;

/// Sorts tokens by expert and gathers their rows.
#[derive(Debug, Clone, Copy)]
pub struct Route<'a> {
    /// The experts of each token: integers of 32 or 64 bits. Those outside `0..experts` are skipped.
    pub ids: DeviceSpan<'a>,
    /// True for ids of 64 bits.
    pub wide_ids: bool,
    /// A row for each token.
    pub x: DeviceSpan<'a>,
    /// Output: a row of x for each assignment, sorted by expert.
    pub rows: DeviceSpan<'a>,
    /// Output: the route, [`words`](Route::words) words of 32 bits.
    pub route: DeviceSpan<'a>,
    /// Experts of each token.
    pub top: u32,
    /// Experts in all, 1024 at most.
    pub experts: u32,
    /// Most tokens of a group.
    pub tile: u32,
}

/// y = W x, where W has the matrices of all experts, one below the other.
#[derive(Debug, Clone, Copy)]
pub struct GroupedLinear<'a> {
    /// A matrix of bf16 at 4/3x; those of experts have a multiple of 16 rows each.
    pub weights: Weights<'a>,
    /// Number of experts.
    pub experts: u32,
    /// The rows that [`Route`] sorted.
    pub x: DeviceSpan<'a>,
    /// A bf16 value for each output of each expert.
    pub bias: Option<DeviceSpan<'a>>,
    /// A row of bf16 for each row of x; rows of no group stay as they are.
    pub y: DeviceSpan<'a>,
    /// True for results silu(gate) * up, half as many, of weights in which eight rows of gates
    /// alternate with eight of ups.
    pub is_gated: bool,
    /// The route.
    pub route: DeviceSpan<'a>,
    /// Scratch memory of [`room`](GroupedLinear::room) bytes, zero at first. Layers that share it
    /// must not run at the same time.
    pub scratch: DeviceSpan<'a>,
    /// Most tokens of a group.
    pub tile: u32,
}

/// Adds up each token's results with their weights.
#[derive(Debug, Clone, Copy)]
pub struct Combine<'a> {
    /// Results by position.
    pub rows: DeviceSpan<'a>,
    /// The route.
    pub route: DeviceSpan<'a>,
    /// The weight of each assignment: bf16 or fp32.
    pub weights: DeviceSpan<'a>,
    /// True for weights in bf16.
    pub narrow_weights: bool,
    /// A row for each token.
    pub y: DeviceSpan<'a>,
    /// Experts of each token.
    pub top: u32,
}

fn shape(span: DeviceSpan<'_>, need: &'static str) -> Error {
    Error::Shape { bytes: span.bytes(), address: span.address(), need }
}

/// Enqueues a kernel of `route.cu`.
fn start(
    gpu: &Gpu,
    on: &CudaStream,
    name: &'static str,
    launch: Launch,
    view: impl DeviceRepr,
) -> Result<(), Error> {
    let kernel: CudaFunction = kernel(gpu, |kernels| &mut kernels.route, name, name, Source::route)?;
    let launch = Launch { overlaps: gpu.overlaps(), ..launch };
    // SAFETY: the arguments of the kernel, whose memory was found to be large enough.
    gpu.check("start a step of experts", unsafe { launch.start_allowed(on, &kernel, &(view,)) })
}

impl Route<'_> {
    /// Returns the words of a route: room for groups of eight tokens, the smallest tile.
    pub fn words(assignments: u32, experts: u32) -> u64 {
        HEAD + GROUP * Self::groups(assignments, experts) + u64::from(assignments)
    }

    fn groups(assignments: u32, experts: u32) -> u64 {
        u64::from(experts) + u64::from(assignments) / 8
    }

    /// Enqueues the kernel. Neither blocks nor allocates.
    ///
    /// # Errors
    /// [`Error::Shape`] for memory that does not fit, [`Error::Weights`] for too many experts, or
    /// what the driver says.
    pub fn start(&self, gpu: &Gpu, on: &CudaStream) -> Result<(), Error> {
        gpu.alive()?;
        if self.experts == 0 || self.experts > MOST_EXPERTS || self.top == 0 || self.tile < 8 {
            return Err(Error::Weights {
                what: "a route has 1 to 1024 experts, some of them for each token, and tiles of 8 tokens or more",
            });
        }
        let id = if self.wide_ids { 8 } else { 4 };
        let assignments = u32::try_from(self.ids.check(id, id, "aligned experts")?.bytes() / id)
            .ok()
            .filter(|all| all.is_multiple_of(self.top))
            .ok_or_else(|| shape(self.ids, "as many experts for each token"))?;
        if assignments == 0 {
            return Ok(());
        }
        let need = "whole rows of a multiple of 8 bf16 values, aligned to 16 bytes";
        let rows = self.rows.check(16 * u64::from(assignments), 16, need)?;
        let chunks = rows.bytes() / 16 / u64::from(assignments);
        if self.x.bytes() * u64::from(self.top) != rows.bytes() || !self.x.address().is_multiple_of(16) {
            return Err(shape(self.x, "a row for each token"));
        }
        let words = Self::words(assignments, self.experts);
        if self.route.bytes() != 4 * words || !self.route.address().is_multiple_of(16) {
            return Err(shape(self.route, "the words of a route, aligned to 16 bytes"));
        }
        let view = RoutingView {
            ids: self.ids.address(),
            x: self.x.address(),
            rows: rows.address(),
            route: self.route.address(),
            assignments,
            top: self.top,
            experts: self.experts,
            tile: self.tile,
            chunks: chunks as u32,
            room: Self::groups(assignments, self.experts) as u32,
            wide: u32::from(self.wide_ids),
            gathers: u32::from(assignments <= FEW),
        };
        // A warp for each expert, and one for assignments without an expert.
        let blocks = (self.experts + 1).div_ceil(WARPS);
        start(gpu, on, "experts_route", Launch::row(u64::from(blocks), 32 * WARPS), view)?;
        if assignments <= FEW {
            return Ok(());
        }
        let blocks = u64::from(assignments.div_ceil(WARPS));
        start(gpu, on, "experts_gather", Launch::row(blocks, 32 * WARPS), view)
    }
}

impl GroupedLinear<'_> {
    /// Returns the kernel for groups of at most `tile` tokens.
    fn shape(tile: u32, inputs: u32) -> Result<Wide, Error> {
        let fits = |wide: &&Wide| {
            wide.tokens == tile && (wide.split_k == 1 || inputs.is_multiple_of(64 * wide.entries))
        };
        let found = SLICED.iter().chain(&WIDE).find(fits);
        found
            .map(|wide| wide.grouped())
            .ok_or(Error::Weights { what: "groups have 8, 16, 32, 64, 128 or 256 tokens at most" })
    }

    /// Returns the bytes of scratch memory.
    ///
    /// # Errors
    /// [`Error::Weights`] if no kernel has this tile.
    pub fn room(gpu: &Gpu, tile: u32, inputs: u32) -> Result<u64, Error> {
        let wide = Self::shape(tile, inputs)?;
        Ok(COUNTS + 2 * 4 * u64::from(wide.rows() * wide.tokens) * u64::from(gpu.multiprocessors()))
    }

    /// Enqueues the kernel. Neither blocks nor allocates.
    ///
    /// # Errors
    /// [`Error::Weights`], [`Error::Shape`] for memory that does not fit, or what the driver says.
    pub fn start(&self, on: &CudaStream) -> Result<(), Error> {
        let gpu = self.weights.gpu();
        gpu.alive()?;
        let of = super::sizes(self.weights.header(), 0)?;
        let (inputs, outputs) = (of.inputs, of.outputs / self.experts.max(1));
        if self.experts == 0 || outputs * self.experts != of.outputs || !outputs.is_multiple_of(16) {
            return Err(Error::Weights { what: "experts have a multiple of 16 rows each" });
        }
        if !gpu.is_hopper() {
            return Err(Error::Weights { what: "grouped layers are computed on Hopper alone" });
        }
        let row_bytes = 2 * u64::from(inputs);
        let x = self.x.check(row_bytes, 16, "whole rows of x, aligned to 16")?;
        let tokens = u32::try_from(x.bytes() / row_bytes).map_err(|_| shape(x, "fewer than 2^32 rows"))?;
        if tokens == 0 || outputs == 0 {
            return Ok(());
        }
        let output = if self.is_gated { Output::Gated } else { Output::Bf16 };
        let y_bytes = u64::from(tokens) * output.row_bytes(outputs);
        if self.y.bytes() < y_bytes || !self.y.address().is_multiple_of(2) {
            return Err(shape(self.y, "a result for each row and output"));
        }
        if let Some(bias) = self.bias.filter(|bias| bias.bytes() < 2 * u64::from(of.outputs)) {
            return Err(shape(bias, "a bias for each output of each expert"));
        }
        if self.route.bytes() < 4 * Route::words(tokens, self.experts) {
            return Err(shape(self.route, "the route of these rows"));
        }
        let room = Self::room(gpu, self.tile, inputs)?;
        super::check_room(self.scratch, room)?;
        let wide = Self::shape(self.tile, inputs)?;
        let wide = if self.is_gated { wide.gated() } else { wide };
        let view = LinearView {
            weights: self.weights.view(),
            x: x.address(),
            bias: self.bias.map_or(0, DeviceSpan::address),
            y: self.y.address(),
            parts: self.scratch.part(COUNTS..room).address(),
            counts: self.scratch.address(),
            outputs,
            inputs,
            tokens,
            output: output as u32,
            route: self.route.address(),
        };
        let kernel = kernel(gpu, |kernels| &mut kernels.wide, wide, "linear_wide", || wide.source())?;
        let map =
            gpu.check("describe x to the copy engine", TensorMap::rows(x, inputs, tokens, wide.share()))?;
        let launch = Launch { overlaps: true, ..wide.launch_all(gpu) };
        // SAFETY: the arguments of `linear_wide`; all memory is as large as it must be.
        let started = unsafe { launch.start_allowed(on, &kernel, &(view, map)) };
        gpu.check("start a grouped layer", started)
    }
}

impl Combine<'_> {
    /// Enqueues the kernel. Neither blocks nor allocates.
    ///
    /// # Errors
    /// [`Error::Shape`] for memory that does not fit, or what the driver says.
    pub fn start(&self, gpu: &Gpu, on: &CudaStream) -> Result<(), Error> {
        gpu.alive()?;
        let weight = if self.narrow_weights { 2 } else { 4 };
        let assignments = self.weights.check(weight, weight, "aligned weights")?.bytes() / weight;
        let top = u64::from(self.top);
        if top == 0 || !assignments.is_multiple_of(top) {
            return Err(shape(self.weights, "as many weights for each token"));
        }
        if assignments == 0 {
            return Ok(());
        }
        let need = "whole rows of a multiple of 8 bf16 values, aligned to 16 bytes";
        let rows = self.rows.check(16 * assignments, 16, need)?;
        let (chunks, tokens) = (rows.bytes() / 16 / assignments, assignments / top);
        if self.y.bytes() * top != rows.bytes() || !self.y.address().is_multiple_of(16) {
            return Err(shape(self.y, "a row for each token"));
        }
        let Some(first_position) = (self.route.bytes() / 4).checked_sub(assignments) else {
            return Err(shape(self.route, "the route of these weights"));
        };
        let view = CombiningView {
            rows: rows.address(),
            route: self.route.address(),
            weights: self.weights.address(),
            y: self.y.address(),
            top: self.top,
            chunks: chunks as u32,
            first_position: first_position as u32,
            narrow: u32::from(self.narrow_weights),
        };
        // The grid's second dimension is limited to 65535.
        let columns = (chunks as u32).div_ceil(COMBINE_THREADS);
        let tokens = u32::try_from(tokens).map_err(|_| shape(self.weights, "fewer than 2^32 tokens"))?;
        let launch = Launch::new((tokens, columns), COMBINE_THREADS, 0);
        start(gpu, on, "experts_combine", launch, view)
    }
}

impl Wide {
    /// Returns a launch that fills the GPU; the amount of work is known there only.
    fn launch_all(&self, gpu: &Gpu) -> Launch {
        let clusters = gpu.multiprocessors() / self.cluster;
        Launch::new((self.cluster * clusters, 1), 128 * (self.warpgroups + 1), self.shared())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::plan::MOST_SHARED;

    #[test]
    fn every_tile_has_a_kernel_for_any_columns() {
        for tile in [8, 16, 32, 64, 128, 256] {
            for inputs in [64, 2880, 2048, 768] {
                let wide = GroupedLinear::shape(tile, inputs).unwrap();
                assert!(wide.tokens == tile && wide.shared() <= MOST_SHARED);
                assert!(wide.split_k == 1 || inputs % (64 * wide.entries) == 0);
            }
        }
        assert!(GroupedLinear::shape(24, 64).is_err());
    }

    #[test]
    fn a_route_has_room_for_its_groups_whatever_they_are() {
        for (assignments, experts) in [(0u32, 1u32), (8, 128), (300, 7), (1000, 64)] {
            // The most groups: every expert but one has one token.
            let single = (experts - 1).min(assignments);
            let most = single + (assignments - single).div_ceil(8);
            assert!(Route::groups(assignments, experts) >= u64::from(most));
        }
    }
}
