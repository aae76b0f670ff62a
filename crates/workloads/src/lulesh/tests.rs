use super::*;

fn finished(edge: usize) -> Lulesh {
    let mut lulesh = Lulesh::led(edge, 1);
    for _ in 0..lulesh.steps() {
        lulesh.step();
    }
    lulesh
}

#[test]
fn meets_the_published_energy_at_the_origin() {
    for edge in [5, 10] {
        let lulesh = finished(edge);
        let checks = lulesh.check();
        assert!(checks.iter().all(Check::passed), "{checks:#?}");
        assert_eq!(lulesh.clock.time, 1e-2);
    }
}

#[test]
fn ends_exactly_at_the_published_cycle() {
    let mut lulesh = Lulesh::new(10, 1);
    for _ in 0..230 {
        lulesh.step();
    }
    assert!(lulesh.clock.time < 1e-2);
}

#[test]
fn another_mesh_follows_its_coarse_twin() {
    let lulesh = finished(24);
    let checks = lulesh.check();
    assert!(checks.iter().all(Check::passed), "{checks:#?}");
    let far = (0..lulesh.mesh.edge).rev().find(|&i| lulesh.elems.p[i] > 0.0);
    assert!(far > Some(lulesh.mesh.edge * 3 / 4), "the blast reached only {far:?}");
}
