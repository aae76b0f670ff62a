use super::*;

fn finished(edge: usize) -> Lulesh {
    let mut lulesh = Lulesh::guided(edge, 1);
    for _ in 0..lulesh.steps() {
        lulesh.step();
    }
    lulesh
}

#[test]
fn the_origin_energy_matches_the_published_one() {
    for edge in [5, 10] {
        let lulesh = finished(edge);
        let checks = lulesh.check();
        assert!(checks.iter().all(Check::passed), "{checks:#?}");
        assert_eq!(lulesh.clock.time, 1e-2);
    }
}

#[test]
fn the_run_ends_at_the_published_cycle() {
    let mut lulesh = Lulesh::new(10, 1);
    for _ in 0..230 {
        lulesh.step();
    }
    assert!(lulesh.clock.time < 1e-2);
}

#[test]
fn an_unpublished_mesh_follows_its_coarse_mesh() {
    // 18 and 19 elements per side fail if their coarse mesh has only 4.
    for edge in [6, 18, 19] {
        let checks = finished(edge).check();
        assert!(checks.iter().all(Check::passed), "{edge} elements a side: {checks:#?}");
    }
    let lulesh = finished(24);
    let checks = lulesh.check();
    assert!(checks.iter().all(Check::passed), "{checks:#?}");
    let far = (0..lulesh.mesh.edge).rev().find(|&i| lulesh.elems.p[i] > 0.0);
    assert!(far > Some(lulesh.mesh.edge * 3 / 4), "the blast reached only {far:?}");
}

#[test]
fn meshes_fit_their_footprint() {
    for bytes in [1_000_000, 16_000_000, INFO.paper_bytes / 4, INFO.paper_bytes] {
        let share = footprint(edge_for(bytes)) as f64 / bytes as f64;
        assert!((0.55..=1.1).contains(&share), "{share} of {bytes}");
    }
    let lulesh = Lulesh::new(7, 1);
    let held: usize = lulesh.allocations().iter().map(|allocation| allocation.bytes.len()).sum();
    assert_eq!(held as u64, footprint(7));
}

#[test]
fn a_guided_mesh_is_independent_of_threads() {
    let energies = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut lulesh = Lulesh::guided(16, 1);
            (0..40).for_each(|_| lulesh.step());
            lulesh.elems.e
        })
    };
    assert_eq!(energies(1), energies(2));
}
