//! `bt` on a GPU: time steps. A thread solves one line of 5 by 5 blocks, stored by component, so
//! that neighbouring lines are contiguous.
//!
//! Instructions counted in a sweep: 80 for the two Jacobians of a cell; 150 for its three blocks;
//! 150 for the products of a row with the one before and 250 to divide by its block, five pivots
//! with a division (10) each; 25 to substitute back.

use buddy_trace::{
    Application, Op,
    pattern::{Body, Nest},
};

use super::Bt;
use crate::{
    flow::{Cells, Order, STATE, Sweep, add, change},
    layout::{Layout, repeated},
};

/// Time steps: a billion warp instructions at the paper's footprint.
const STEPS: usize = 7;

pub(super) fn application(bt: &Bt) -> Application {
    let layout = Layout::of(bt);
    let cells = Cells { n: bt.problem.n, order: Order::Fortran };
    let mut step = change(cells, &layout, None);
    step.extend(Sweep::ALL.map(|sweep| solve(cells, &layout, sweep)));
    step.push(add(cells, &layout));
    layout.application("bt", repeated(STEPS, &step))
}

/// Solves the lines of one direction: Jacobians, blocks, elimination, back substitution.
fn solve(cells: Cells, layout: &Layout, sweep: Sweep) -> Nest {
    let lines = cells.n - 2;
    Nest::new(["solve x", "solve y", "solve z"][sweep.axis()], [lines, lines, 1, 1], 255)
        .phase(cells.n, &jacobians(cells, layout, sweep))
        .phase(cells.n - 2, &blocks(cells, layout))
        .phase(cells.n - 1, &eliminate(cells, layout, sweep))
        .phase(cells.n - 1, &substitute(cells, layout, sweep))
}

/// Returns the components of one of `lhs`'s three blocks: below, on and above the diagonal.
fn block(which: usize) -> [usize; 25] {
    std::array::from_fn(|number| 25 * which + number)
}

fn jacobians(cells: Cells, layout: &Layout, sweep: Sweep) -> Body {
    let [u, fjac, njac] = layout.arrays(["u", "fjac", "njac"]);
    let (cell, work) = (cells.line(sweep, 0), cells.work_line(0));
    let body = cells.load(Body::default(), u, cell, 5, &STATE);
    let derived = layout.arrays(["us", "vs", "ws", "rho_i", "square", "qs"]);
    let body = derived.iter().fold(body, |body, array| body.load(*array, cell)).work(Op::Fp64, 80, 8);
    cells.store(cells.store(body, fjac, work, 25, &block(0)), njac, work, 25, &block(0))
}

/// Assembles the blocks of a row from the Jacobians before, at and after it.
fn blocks(cells: Cells, layout: &Layout) -> Body {
    let [fjac, njac, lhs] = layout.arrays(["fjac", "njac", "lhs"]);
    let at = |position| cells.work_line(position);
    let sources = [(fjac, at(0)), (njac, at(0)), (njac, at(1)), (fjac, at(2)), (njac, at(2))];
    let body = sources
        .iter()
        .fold(Body::default(), |body, (array, place)| cells.load(body, *array, *place, 25, &block(0)));
    let all: [usize; 75] = std::array::from_fn(|number| number);
    cells.store(body.work(Op::Fp64, 150, 15), lhs, at(1), 75, &all)
}

/// Eliminates a row with the one before it, and divides by its block.
fn eliminate(cells: Cells, layout: &Layout, sweep: Sweep) -> Body {
    let [lhs, rhs] = layout.arrays(["lhs", "rhs"]);
    let (cell, before) = (cells.line(sweep, 1), cells.line(sweep, 0));
    let body = cells.load(Body::default(), lhs, cells.work_line(0), 75, &block(2));
    let body = (0..3).fold(body, |body, which| cells.load(body, lhs, cells.work_line(1), 75, &block(which)));
    let body = cells.load(cells.load(body, rhs, before, 5, &STATE), rhs, cell, 5, &STATE);
    let body = body.work(Op::Fp64, 400, 5);
    let body = [1, 2]
        .iter()
        .fold(body, |body, &which| cells.store(body, lhs, cells.work_line(1), 75, &block(which)));
    cells.store(body, rhs, cell, 5, &STATE)
}

fn substitute(cells: Cells, layout: &Layout, sweep: Sweep) -> Body {
    let [lhs, rhs] = layout.arrays(["lhs", "rhs"]);
    let last = cells.n - 2;
    let [cell, work] =
        [cells.line(sweep, last), cells.work_line(last)].map(|place| place.stepping(-place.step));
    let body = cells.load(Body::default(), lhs, work, 75, &block(2));
    let body = cells.load(body, rhs, cell, 5, &STATE).work(Op::Fp64, 25, 5);
    cells.store(body, rhs, cell, 5, &STATE)
}
