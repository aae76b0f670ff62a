//! `seismic` on a GPU: time steps of two kernels, one thread per cell.
//!
//! As in the original, every cell reads and writes its memory variables, though they are zero
//! outside the layers. Instructions counted: a derivative is a difference, a product, two
//! multiply-adds for its memory variable and two to apply it; a stress takes four more, a velocity
//! three.

use buddy_trace::{
    Application, Op,
    pattern::{Affine, Array, Body, Nest},
};

use super::{
    FIELDS, Seismic,
    update::{SLOPES, Slope},
};
use crate::layout::{Layout, repeated};

/// Time steps: a billion warp instructions at the paper's footprint.
const STEPS: usize = 6;

pub(super) fn application(seismic: &Seismic) -> Application {
    let layout = Layout::of(seismic);
    let fields = layout.arrays(FIELDS);
    let memory = seismic.memory_names().map(|name| layout.array(&name));
    let kernel = |name, slopes: usize, updated: &[Array], work: u32| {
        let body = slopes_of(seismic, &layout, &fields, &SLOPES[slopes]);
        let body = remember(body, &memory[9 * slopes..9 * slopes + 9], seismic.side);
        let body = update(body, updated, seismic.side, work);
        let inner = seismic.side - 2;
        Nest::new(name, [inner, inner, inner, 1], 64).phase(1, &body)
    };
    let stresses = kernel("stresses", 0, &fields[3..], 4);
    let velocities = kernel("velocities", 1, &fields[..3], 3);
    layout.application("seismic", repeated(STEPS, &[stresses, velocities]))
}

/// Indexes the computed cells: all but one at each side.
fn cells(side: usize) -> Affine {
    let side = side as i64;
    Affine::along([1, side, side * side, 0]).plus(1 + side + side * side)
}

/// Loads the cells that the derivatives need, each once, and the damping along each axis.
fn slopes_of(seismic: &Seismic, layout: &Layout, fields: &[Array], slopes: &[Slope; 9]) -> Body {
    let side = seismic.side as i64;
    let mut wanted: Vec<(usize, i64)> = Vec::new();
    for slope in slopes {
        let stride = [1, side, side * side][slope.axis];
        for offset in [0, if slope.ahead { stride } else { -stride }] {
            if !wanted.contains(&(slope.field, offset)) {
                wanted.push((slope.field, offset));
            }
        }
    }
    // In memory order, as a compiler arranges them.
    wanted.sort_unstable();
    let body = wanted.iter().fold(Body::default(), |body, &(field, offset)| {
        body.load(fields[field], cells(seismic.side).plus(offset))
    });
    let damping = layout.arrays(["a", "b", "a_half", "b_half"]);
    let axes = (0..3).map(|axis| {
        let mut along = [0; 4];
        along[axis] = 1;
        Affine::along(along).plus(1)
    });
    let all = axes.flat_map(|place| damping.map(|array| (array, place)));
    all.fold(body, |body, (array, place)| body.load(array, place))
}

/// Updates the memory variables and applies them.
fn remember(body: Body, memory: &[Array], side: usize) -> Body {
    let body = memory.iter().fold(body, |body, array| body.load(*array, cells(side)));
    let body = body.work(Op::Fp32, 9 * 6, 9);
    memory.iter().fold(body, |body, array| body.store(*array, cells(side)))
}

fn update(body: Body, fields: &[Array], side: usize, work: u32) -> Body {
    let body = fields.iter().fold(body, |body, array| body.load(*array, cells(side)));
    let body = body.work(Op::Fp32, work * fields.len() as u32, fields.len() as u8);
    fields.iter().fold(body, |body, array| body.store(*array, cells(side)))
}
