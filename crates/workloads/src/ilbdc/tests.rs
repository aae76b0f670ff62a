use super::*;

#[test]
fn a_porous_run_passes_its_checks_and_flows() {
    let mut porous = Ilbdc::new(Channel::new(size_for(1_000_000), BEADS, 1), PUSH);
    for _ in 0..porous.steps() {
        porous.step();
    }
    let checks = porous.check();
    assert!(checks.iter().all(Check::passed), "{checks:#?}");
    let mean =
        (0..porous.channel.fluid).map(|cell| porous.speed(cell)).sum::<f64>() / porous.channel.fluid as f64;
    assert!(mean > 1e-5 && mean < 0.1, "mean speed {mean}");
}

#[test]
fn the_expected_footprint_matches_the_built_one() {
    for bytes in [1_000_000, 16_000_000] {
        let size = size_for(bytes);
        let channel = Channel::new(size, BEADS, 7);
        let (exact, expected) = (footprint(size, channel.fluid), footprint(size, expected_fluid(size)));
        assert!(exact.abs_diff(expected) * 20 < exact, "{exact} against {expected}");
    }
    let paper = size_for(INFO.paper_bytes);
    let share = footprint(paper, expected_fluid(paper)) as f64 / INFO.paper_bytes as f64;
    assert!((0.95..=1.0).contains(&share), "{share}");
}
