//! `ilbdc` on a GPU: time steps with one thread per fluid cell, following the program's own list.
//!
//! Instructions counted in the collision: 18 additions for the density and 30 for the momentum, a
//! division (10) and 7 for the velocity, 3 for the rest population and 20 for each of the nine
//! pairs of directions. The 19 populations of a cell stay in registers.

use buddy_trace::{
    Application, Op,
    pattern::{Affine, Array, Body, Index, Nest},
};

use super::Ilbdc;
use crate::layout::{Layout, repeated};

/// Pairs of time steps: a billion warp instructions at the paper's footprint.
const PAIRS: usize = 10;

pub(super) fn application(ilbdc: &Ilbdc) -> Application {
    let layout = Layout::of(ilbdc);
    let [even, odd] = layout.arrays(["pdf_even", "pdf_odd"]);
    let steps = [kernel(ilbdc, &layout, even, odd), kernel(ilbdc, &layout, odd, even)];
    layout.application("ilbdc", repeated(PAIRS, &steps))
}

/// Returns the kernel that streams and collides from one array to the other.
fn kernel(ilbdc: &Ilbdc, layout: &Layout, from: Array, to: Array) -> Nest {
    let (cells, array) = (ilbdc.channel.fluid, layout.array("list"));
    let direction = |number: usize| Affine::LINE.plus((number * cells) as i64);
    let mut body = Body::default().load(from, Affine::LINE);
    for number in 0..18 {
        let index = Index { array, list: ilbdc.list.clone(), place: direction(number), rows: None };
        body = body.index(&index).gather(from, &index, 1, 0);
    }
    body = body.work(Op::Fp64, 248, 4);
    body = (0..19).fold(body, |body, number| body.store(to, direction(number)));
    Nest::new("stream and collide", [cells, 1, 1, 1], 96).phase(1, &body)
}
