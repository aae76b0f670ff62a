//! `sp` and `csp`: the NAS SP application. The implicit sweeps of the flow problem are
//! diagonalised, so each line needs three scalar pentadiagonal systems.
//!
//! Both run the same code, `sp` with arrays in Fortran order and `csp` in C order: see [`Order`].

mod bands;
mod classes;
mod rotate;
mod trace;

use buddy_trace::Application;
use rayon::prelude::*;

use crate::flow::{C1C5, C3C4, Field, Flow, Norms, Order, Plane, Planes, Problem, SMOOTHING, Sweep};
use crate::workload::{Allocation, Check, Info, Workload};
use bands::{Coefficients, eliminate};

/// Entry of `sp` in `buddy workload list`. NAS prescribes the whole problem, so the seed has no
/// effect.
pub(crate) const INFO: Info = Info {
    name: "sp",
    paper_name: "356.sp",
    method: "NAS SP: scalar pentadiagonal flow solver, arrays in Fortran order",
    paper_bytes: 2_830_000_000,
    seconds_per_mb: 0.16,
    simulated_seconds_per_mb: 0.085,
    has_host_memory: false,
    footprint: |bytes| (problem(bytes).n.pow(3) * DOUBLES * 8) as u64,
    build: |bytes, _seed| Box::new(Sp::new(problem(bytes), Order::Fortran)),
};

/// Entry of `csp` in `buddy workload list`. NAS prescribes the whole problem, so the seed has no
/// effect.
pub(crate) const CSP_INFO: Info = Info {
    name: "csp",
    paper_name: "357.csp",
    method: "NAS SP: scalar pentadiagonal flow solver, arrays in C order",
    paper_bytes: 1_440_000_000,
    seconds_per_mb: 0.14,
    simulated_seconds_per_mb: 0.15,
    has_host_memory: false,
    build: |bytes, _seed| Box::new(Sp::new(problem(bytes), Order::C)),
    ..INFO
};

/// Doubles per cell: the flow's, `speed`, and three systems of five bands.
const DOUBLES: usize = Flow::DOUBLES + 1 + 15;

/// Steps of a run that is not a NAS class.
const STEPS: u64 = 40;

fn problem(bytes: u64) -> Problem {
    Problem::sized(Problem::side(bytes, DOUBLES), STEPS, &classes::CLASSES, &classes::STEP_LENGTHS)
}

struct Sp {
    problem: Problem,
    order: Order,
    flow: Flow,
    speed: Vec<f64>,
    /// `lhs`, `lhsp`, `lhsm`: waves that move with the flow, and with sound along and against it.
    systems: [Field; 3],
    start: Norms,
}

impl Sp {
    fn new(problem: Problem, order: Order) -> Self {
        let flow = Flow::new(problem.n, problem.dt, order);
        let bands = || Field::zeros(problem.n, 5, order);
        let start = Norms::of(&flow);
        let speed = vec![0.0; problem.n.pow(3)];
        Self { problem, order, flow, speed, systems: [bands(), bands(), bands()], start }
    }

    fn derive_speed(&mut self) {
        let (plane, flow) = (self.problem.n * self.problem.n, &self.flow);
        self.speed.par_chunks_mut(plane).enumerate().for_each(|(k, speeds)| {
            for (at, speed) in speeds.iter_mut().enumerate() {
                *speed = flow.gas(k * plane + at).sound();
            }
        });
    }

    /// Solves the lines of one direction in place of `rhs`.
    fn sweep(&mut self, sweep: Sweep) {
        let Self { flow, speed, systems: [lhs, lhsp, lhsm], .. } = self;
        let (n, coefficients) = (flow.n, Coefficients::new(flow.n, flow.dt));
        let along = &flow.velocity[sweep.axis()];
        let stiffness = |rho_i: f64| SMOOTHING[sweep.axis()] + C1C5 * C3C4 * rho_i;
        let rhs = flow.rhs.planes_mut(sweep.planes());
        let systems = [lhs, lhsp, lhsm].map(|field| field.planes_mut(Planes::K));
        let [lhs, lhsp, lhsm] = systems;
        let planes = (rhs, lhs, lhsp, lhsm).into_par_iter().enumerate().skip(1).take(n - 2);
        planes.for_each(|(plane, (mut rhs, lhs, lhsp, lhsm))| {
            let mut systems = [lhs, lhsp, lhsm];
            for line in 1..n - 1 {
                let cell = |position| sweep.cell(n, plane, position, line);
                let bands = coefficients.bands(n, |position| {
                    let cell = cell(position);
                    (along[cell], speed[cell], stiffness(flow.rho_i[cell]))
                });
                solve_line(sweep, line, bands, &mut rhs, &mut systems);
            }
        });
    }
}

/// Solves one line's three systems; the first serves three equations, the others one each.
fn solve_line(
    sweep: Sweep,
    line: usize,
    bands: [Vec<[f64; 5]>; 3],
    rhs: &mut Plane,
    systems: &mut [Plane; 3],
) {
    let place = |position| sweep.row_column(position, line);
    let [mut flow, mut with_sound, mut against_sound] = bands;
    let right: Vec<[f64; 5]> = (0..flow.len()).map(place).map(|(row, column)| rhs.get(row, column)).collect();
    let mut carried: Vec<[f64; 3]> = right.iter().map(|r| [r[0], r[1], r[2]]).collect();
    let mut with: Vec<[f64; 1]> = right.iter().map(|r| [r[3]]).collect();
    let mut against: Vec<[f64; 1]> = right.iter().map(|r| [r[4]]).collect();
    eliminate(&mut flow, &mut carried);
    eliminate(&mut with_sound, &mut with);
    eliminate(&mut against_sound, &mut against);
    for position in 0..flow.len() {
        let (row, column) = place(position);
        rhs.put(row, column, 0, &carried[position]);
        rhs.put(row, column, 3, &[with[position][0], against[position][0]]);
        for (system, bands) in systems.iter_mut().zip([&flow, &with_sound, &against_sound]) {
            system.put(position, line, 0, &bands[position]);
        }
    }
}

impl Workload for Sp {
    fn steps(&self) -> u64 {
        self.problem.steps
    }

    fn step(&mut self) {
        self.flow.compute_rhs();
        self.derive_speed();
        rotate::to_waves(&mut self.flow, &self.speed);
        self.sweep(Sweep::X);
        rotate::x_to_y(&mut self.flow);
        self.sweep(Sweep::Y);
        rotate::y_to_z(&mut self.flow);
        self.sweep(Sweep::Z);
        rotate::from_waves(&mut self.flow, &self.speed);
        self.flow.add();
    }

    fn allocations(&self) -> Vec<Allocation<'_>> {
        let (main, adi) = match self.order {
            Order::C => ("sp.c: main", "adi.c: adi"),
            Order::Fortran => ("sp.f90: main", "adi.f90: adi"),
        };
        let mut all = self.flow.allocations(main);
        all.push(Allocation::f64("speed", main, &self.speed));
        let names = ["lhs", "lhsp", "lhsm"];
        all.extend(names.into_iter().zip(&self.systems).map(|(name, system)| system.allocation(name, adi)));
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

    fn class(index: usize, order: Order) -> Sp {
        let n = classes::CLASSES[index].n;
        Sp::new(Problem::sized(n, STEPS, &classes::CLASSES, &classes::STEP_LENGTHS), order)
    }

    #[test]
    fn class_s_has_the_published_norms_in_both_orders() {
        for order in [Order::C, Order::Fortran] {
            let checks = finish(&mut class(0, order));
            assert_eq!(checks.len(), 10);
            assert_eq!(checks[0].expected, classes::CLASSES[0].residual[0]);
        }
    }

    #[test]
    #[ignore = "takes 15 s of processor time; run with --ignored"]
    fn class_w_has_the_published_norms() {
        let checks = finish(&mut class(1, Order::Fortran));
        assert_eq!(checks[9].expected, classes::CLASSES[1].error[4]);
    }

    #[test]
    fn a_size_between_classes_approaches_the_steady_state() {
        finish(&mut Sp::new(problem(2_000_000), Order::C));
    }

    #[test]
    fn both_orders_compute_the_same_state() {
        let run = |order| {
            let mut sp = Sp::new(problem(1_000_000), order);
            (0..3).for_each(|_| sp.step());
            sp
        };
        let (c, fortran) = (run(Order::C), run(Order::Fortran));
        for cell in 0..c.problem.n.pow(3) {
            assert_eq!(c.flow.u.get::<5>(cell), fortran.flow.u.get::<5>(cell));
            assert_eq!(c.systems[1].get::<5>(cell), fortran.systems[1].get::<5>(cell));
        }
    }

    #[test]
    fn a_run_without_progress_fails_the_check() {
        let sp = Sp::new(problem(1_000_000), Order::C);
        assert!(sp.check().iter().all(|check| !check.passed()));
    }

    #[test]
    fn a_wrong_forcing_fails_the_check() {
        let mut sp = class(0, Order::C);
        crate::flow::interior(&mut sp.flow.forcing, |_, forcing| forcing.map(|f| f * (1.0 + 1e-6)));
        (0..sp.steps()).for_each(|_| sp.step());
        assert!(sp.check().iter().any(|check| !check.passed()));
    }

    #[test]
    fn sizes_fit_any_request() {
        for info in [INFO, CSP_INFO] {
            assert_footprint(info.paper_bytes, |bytes| (problem(bytes).n.pow(3) * DOUBLES * 8) as u64);
        }
    }
}
