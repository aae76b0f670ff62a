//! `ep` on a GPU: one thread per batch, as in the accelerator version.
//!
//! A thread first draws the numbers of its batch into its column of `xx`, then processes them in
//! pairs. Instructions counted: a draw is 11 multiply-adds and six conversions (three truncations
//! of a double). An accepted pair needs a logarithm (about 30 multiply-adds), a division (10), a
//! root (10) and 10 more. Every pair counts as accepted, since one lane of 32 nearly always is, and
//! falls in the first annulus, as most do.

use buddy_trace::{
    Application, Op,
    pattern::{Affine, Body, Nest},
};

use super::Ep;
use crate::layout::{Layout, repeated};

/// Launches over all batches, each with the next numbers in the same arrays, as in the original: a
/// billion warp instructions at the paper's footprint.
const LAUNCHES: usize = 2;

pub(super) fn application(ep: &Ep) -> Application {
    let layout = Layout::of(ep);
    let [xx, qq, sx, sy] = layout.arrays(["xx", "qq", "sx", "sy"]);
    let (batches, numbers) = (ep.shape.batches, ep.shape.numbers());
    let number = Affine::LINE.stepping(batches as i64);
    let pair = Affine::LINE.stepping(2 * batches as i64);
    let draw = Body::default().work(Op::Fp64, 11, 1).work(Op::Sfu, 6, 1).store(xx, number);
    let take = Body::default()
        .load_each(xx, pair, &[0, batches as i64])
        .work(Op::Fp64, 30, 2)
        .work(Op::Sfu, 3, 1)
        .work(Op::Fp64, 30, 2)
        .load(qq, Affine::LINE)
        .work(Op::Fp64, 1, 1)
        .store(qq, Affine::LINE);
    let sums = Body::default().store(sx, Affine::LINE).store(sy, Affine::LINE);
    let kernel = Nest::new("gaussian pairs", [batches, 1, 1, 1], 48)
        .phase(numbers, &draw)
        .phase(numbers / 2, &take)
        .phase(1, &sums);
    layout.application("ep", repeated(LAUNCHES, &[kernel]))
}
