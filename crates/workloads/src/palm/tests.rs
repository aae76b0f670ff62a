use super::*;

/// Returns the heat that the resolved wind carries from the lowest level to the next, per cell.
fn rising_heat(palm: &Palm) -> f64 {
    let (grid, [.., w, pt, _]) = (palm.grid, &palm.state[palm.current]);
    let mean = grid.level_means(pt)[0];
    let cells: Vec<usize> = grid.level().map(|at| at + grid.plane()).collect();
    let carried = |at: &usize| w[at + grid.plane()] * (pt[*at] - mean);
    cells.iter().map(carried).sum::<f64>() / cells.len() as f64
}

#[test]
fn mass_and_heat_are_conserved_and_warm_air_rises() {
    let mut palm = Palm::new(grid_for(2_000_000), 1);
    assert!(rising_heat(&palm).abs() < 1e-12);
    for _ in 0..palm.steps() {
        palm.step();
    }
    let checks = palm.check();
    assert!(checks.iter().all(Check::passed), "{checks:#?}");
    assert!(rising_heat(&palm) > 1e-4, "{}", rising_heat(&palm));
}

#[test]
fn lost_heat_fails_the_check() {
    let mut palm = Palm::new(grid_for(1_000_000), 1);
    palm.step();
    let at = palm.grid.plane() + palm.grid.rows().next().unwrap();
    palm.state[palm.current][PT][at] += 1e-3;
    assert!(!palm.check()[2].passed());
}

#[test]
fn grids_fit_their_footprint() {
    for bytes in [1_000_000, 16_000_000, INFO.paper_bytes / 4, INFO.paper_bytes] {
        let share = footprint(grid_for(bytes)) as f64 / bytes as f64;
        assert!((0.9..=1.0).contains(&share), "{share} of {bytes}");
    }
    let palm = Palm::new(grid_for(1_000_000), 1);
    let held: usize = palm.allocations().iter().map(|allocation| allocation.bytes.len()).sum();
    assert_eq!(held as u64, footprint(palm.grid));
}
