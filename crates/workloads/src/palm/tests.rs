use super::*;

#[test]
fn air_keeps_its_mass_and_its_heat() {
    let mut palm = Palm::new(grid_for(2_000_000), 1);
    let still = palm.fastest();
    for n in 0..palm.steps() {
        palm.step();
        println!("{n} time {} fastest {} w {} kh {} div {}", palm.time, palm.fastest(), palm.grid.largest(|at| palm.state[palm.current][2][at].abs()), palm.grid.largest(|at| palm.kh[at]), palm.largest_divergence());
    }
    let checks = palm.check();
    println!("{:?}", palm.grid);
    assert!(checks.iter().all(Check::passed), "{checks:#?}");
    assert!(still > 0.0);
}
