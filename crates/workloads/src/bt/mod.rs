//! `bt`: the NAS BT application. The implicit sweeps of the flow problem couple all five equations,
//! so each line is a block-tridiagonal system of 5 by 5 blocks.

mod block;
mod classes;
mod jacobian;
mod trace;

use buddy_trace::Application;
use rayon::prelude::*;

use crate::flow::{Field, Flow, Norms, Order, Plane, Planes, Problem, SMOOTHING, Sweep};
use crate::workload::{Allocation, Check, Info, Workload};
use block::{Block, System};
use jacobian::{flux, friction};

/// Entry of `buddy workload list`. NAS prescribes the whole problem, so the seed has no effect. The
/// paper's table prints 1.21MB, which the arrays of NAS class B in GB explain.
pub(crate) const INFO: Info = Info {
    name: "bt",
    paper_name: "370.bt",
    method: "NAS BT: block tridiagonal flow solver, 5 by 5 blocks",
    paper_bytes: 1_210_000_000,
    seconds_per_mb: 0.11,
    simulated_seconds_per_mb: 0.28,
    has_host_memory: false,
    footprint: |bytes| (problem(bytes).n.pow(3) * DOUBLES * 8) as u64,
    build: |bytes, _seed| Box::new(Bt::new(problem(bytes))),
};

/// Doubles per cell: the flow's, two Jacobians, and three blocks of the system.
const DOUBLES: usize = Flow::DOUBLES + 5 * 25;

/// Steps of a run that is not a NAS class.
const STEPS: u64 = 40;

fn problem(bytes: u64) -> Problem {
    Problem::sized(Problem::side(bytes, DOUBLES), STEPS, &classes::CLASSES, &classes::STEP_LENGTHS)
}

struct Bt {
    problem: Problem,
    flow: Flow,
    /// Jacobians of flux and viscosity.
    fjac: Field,
    njac: Field,
    /// Blocks below, on and above the diagonal.
    lhs: Field,
    start: Norms,
}

impl Bt {
    fn new(problem: Problem) -> Self {
        let flow = Flow::new(problem.n, problem.dt, Order::Fortran);
        let blocks = |count: usize| Field::zeros(problem.n, 25 * count, Order::Fortran);
        let start = Norms::of(&flow);
        Self { problem, flow, fjac: blocks(1), njac: blocks(1), lhs: blocks(3), start }
    }

    /// Solves the lines of one direction in place of `rhs`.
    fn sweep(&mut self, sweep: Sweep) {
        let Self { flow, fjac, njac, lhs, .. } = self;
        let n = flow.n;
        let system = System::new(n, flow.dt, SMOOTHING[sweep.axis()]);
        let mut rhs = flow.take_rhs();
        let planes = (
            rhs.planes_mut(sweep.planes()),
            fjac.planes_mut(Planes::K),
            njac.planes_mut(Planes::K),
            lhs.planes_mut(Planes::K),
        );
        let planes = planes.into_par_iter().enumerate().skip(1).take(n - 2);
        planes.for_each(|(plane, (mut rhs, mut fjac, mut njac, mut lhs))| {
            for line in 1..n - 1 {
                let gas = (0..n).map(|position| flow.gas(sweep.cell(n, plane, position, line)));
                let jacobians: Vec<[Block; 2]> =
                    gas.map(|gas| [flux(&gas, sweep.axis()), friction(&gas, sweep.axis())]).collect();
                for (position, [flux, friction]) in jacobians.iter().enumerate() {
                    fjac.put(position, line, 0, flux.as_flattened());
                    njac.put(position, line, 0, friction.as_flattened());
                }
                solve_line(sweep, line, system.blocks(&jacobians), &mut rhs, &mut lhs);
            }
        });
        flow.rhs = rhs;
    }
}

fn solve_line(sweep: Sweep, line: usize, mut blocks: Vec<[Block; 3]>, rhs: &mut Plane, lhs: &mut Plane) {
    let place = |position| sweep.row_column(position, line);
    let mut right: Vec<[f64; 5]> =
        (0..blocks.len()).map(place).map(|(row, column)| rhs.get(row, column)).collect();
    block::eliminate(&mut blocks, &mut right);
    for (position, (blocks, right)) in blocks.iter().zip(right).enumerate() {
        let (row, column) = place(position);
        rhs.put(row, column, 0, &right);
        lhs.put(position, line, 0, blocks.as_flattened().as_flattened());
    }
}

impl Workload for Bt {
    fn steps(&self) -> u64 {
        self.problem.steps
    }

    fn step(&mut self) {
        self.flow.compute_rhs();
        Sweep::ALL.into_iter().for_each(|sweep| self.sweep(sweep));
        self.flow.add();
    }

    fn allocations(&self) -> Vec<Allocation<'_>> {
        let mut all = self.flow.allocations("bt.c: main");
        let work = [("fjac", &self.fjac), ("njac", &self.njac), ("lhs", &self.lhs)];
        all.extend(work.map(|(name, field)| field.allocation(name, "adi.c: adi")));
        all
    }

    fn application(&self) -> Application {
        trace::application(self)
    }

    fn check(&self) -> Vec<Check> {
        Norms::of(&self.flow).check(&self.start, self.problem.reference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::tests::{assert_footprint, finish};

    fn class(index: usize) -> Bt {
        let n = classes::CLASSES[index].n;
        Bt::new(Problem::sized(n, STEPS, &classes::CLASSES, &classes::STEP_LENGTHS))
    }

    #[test]
    fn class_s_has_the_published_norms() {
        let checks = finish(&mut class(0));
        assert_eq!(checks.len(), 10);
        assert_eq!(checks[0].expected, classes::CLASSES[0].residual[0]);
    }

    #[test]
    fn class_w_has_the_published_norms() {
        let checks = finish(&mut class(1));
        assert_eq!(checks[9].expected, classes::CLASSES[1].error[4]);
    }

    #[test]
    fn a_size_between_classes_approaches_the_steady_state() {
        finish(&mut Bt::new(problem(6_000_000)));
    }

    #[test]
    fn sizes_fit_any_request() {
        assert_footprint(INFO.paper_bytes, |bytes| (problem(bytes).n.pow(3) * DOUBLES * 8) as u64);
    }
}
