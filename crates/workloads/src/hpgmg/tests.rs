use super::*;

fn finished(boxes: usize, dim: usize) -> Hpgmg {
    let mut hpgmg = Hpgmg::new(Shape { boxes, dim });
    for _ in 0..CYCLES {
        hpgmg.step();
    }
    hpgmg
}

#[test]
fn residuals_converge_at_the_textbook_rate_and_errors_are_second_order() {
    for (boxes, dim) in [(2, 8), (3, 8), (2, 32)] {
        let checks = finished(boxes, dim).check();
        assert!(checks.iter().all(Check::passed), "{boxes} boxes of {dim}: {checks:#?}");
    }
}

#[test]
fn the_answer_is_independent_of_the_box_decomposition() {
    let (whole, parts) = (finished(2, 16), finished(4, 8));
    assert!((whole.error() - parts.error()).abs() < 1e-6);
}

#[test]
fn every_footprint_is_met_by_a_shape() {
    for bytes in (0..40).map(|power| 1_000_000.0 * 1.22_f64.powi(power)) {
        let share = footprint(shape_for(bytes as u64)) as f64 / bytes;
        assert!((0.5..=1.1).contains(&share), "{share} of {bytes}");
    }
}

#[test]
fn the_footprint_equals_the_bytes_of_the_arrays() {
    let shape = Shape { boxes: 2, dim: 8 };
    let held: usize = Hpgmg::new(shape).allocations().iter().map(|allocation| allocation.bytes.len()).sum();
    assert_eq!(held as u64, footprint(shape));
    let paper = footprint(shape_for(INFO.paper_bytes)) as f64 / INFO.paper_bytes as f64;
    assert!((0.5..=1.1).contains(&paper), "{paper}");
}
