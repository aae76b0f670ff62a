//! `sp` and `csp` on a GPU: time steps. A thread solves one line; work arrays keep neighbouring
//! lines contiguous, which along x the right-hand side does not.
//!
//! Instructions counted in a sweep: 24 to assemble a row's bands; three divisions (10 each) and 33
//! to eliminate it, in five chains that each depend on the row before; 10 to substitute back.

use buddy_trace::{
    Application, Op,
    pattern::{Array, Body, Nest},
};

use super::Sp;
use crate::{
    flow::{Cells, Order, STATE, Sweep, add, change, rotate},
    layout::{Layout, repeated},
};

/// Returns the time steps: a billion warp instructions each at the paper's footprints.
fn steps(order: Order) -> usize {
    match order {
        Order::Fortran => 2,
        Order::C => 4,
    }
}

pub(super) fn application(sp: &Sp) -> Application {
    let layout = Layout::of(sp);
    let cells = Cells { n: sp.problem.n, order: sp.order };
    let [rhs, us, vs, ws, qs, rho_i, speed, u] =
        layout.arrays(["rhs", "us", "vs", "ws", "qs", "rho_i", "speed", "u"]);
    let mut step = change(cells, &layout, Some(speed));
    step.push(rotate(cells, "to waves", rhs, &[us, vs, ws, qs, rho_i, speed], 38));
    for (sweep, along) in Sweep::ALL.into_iter().zip([us, vs, ws]) {
        step.push(solve(cells, &layout, sweep, along));
        if sweep != Sweep::Z {
            step.push(rotate(cells, "turn", rhs, &[], 10));
        }
    }
    step.push(from_waves(cells, rhs, u, &[us, vs, ws, qs, speed]));
    step.push(add(cells, &layout));
    let name = if sp.order == Order::C { "csp" } else { "sp" };
    layout.application(name, repeated(steps(sp.order), &step))
}

/// The last change of variables also reads the density.
fn from_waves(cells: Cells, rhs: Array, u: Array, scalars: &[Array]) -> Nest {
    let (inner, size) = cells.grid([1; 3]);
    let body = cells.load(Body::default(), rhs, inner, 5, &STATE).load(u, cells.number(inner, 5, 0));
    let body = scalars.iter().fold(body, |body, array| body.load(*array, inner));
    let body = cells.store(body.work(Op::Fp64, 42, 5), rhs, inner, 5, &STATE);
    Nest::new("from waves", size, 48).phase(1, &body)
}

/// Solves the lines of one direction: bands, elimination, back substitution.
fn solve(cells: Cells, layout: &Layout, sweep: Sweep, along: Array) -> Nest {
    let [rhs, rho_i, speed] = layout.arrays(["rhs", "rho_i", "speed"]);
    let systems = layout.arrays(["lhs", "lhsp", "lhsm"]);
    let (cell, work) = (cells.line(sweep, 0), cells.work_line(0));
    let bands = [along, speed, rho_i].iter().fold(Body::default(), |body, array| body.load(*array, cell));
    let bands = store_each(cells, bands.work(Op::Fp64, 24, 5), &systems, work);
    let down = systems.iter().fold(Body::default(), |body, lhs| cells.load(body, *lhs, work, 5, &STATE));
    let down = cells.load(down, rhs, cell, 5, &STATE).work(Op::Fp64, 63, 5);
    let down = cells.store(store_each(cells, down, &systems, work), rhs, cell, 5, &STATE);
    let last = cells.n - 1;
    let (cell, work) = (backwards(cells.line(sweep, last)), backwards(cells.work_line(last)));
    let up = systems.iter().fold(Body::default(), |body, lhs| cells.load(body, *lhs, work, 5, &[3, 4]));
    let up = cells.load(up, rhs, cell, 5, &STATE).work(Op::Fp64, 10, 5);
    let up = cells.store(up, rhs, cell, 5, &STATE);
    let lines = cells.n - 2;
    Nest::new(["solve x", "solve y", "solve z"][sweep.axis()], [lines, lines, 1, 1], 128)
        .phase(cells.n, &bands)
        .phase(cells.n, &down)
        .phase(cells.n, &up)
}

fn store_each(cells: Cells, body: Body, systems: &[Array], work: buddy_trace::pattern::Affine) -> Body {
    systems.iter().fold(body, |body, lhs| cells.store(body, *lhs, work, 5, &STATE))
}

fn backwards(place: buddy_trace::pattern::Affine) -> buddy_trace::pattern::Affine {
    place.stepping(-place.step)
}
