use super::*;

fn finished(bytes: u64) -> Seismic {
    let mut seismic = Seismic::new(side_for(bytes));
    for _ in 0..seismic.steps() {
        seismic.step();
    }
    seismic
}

#[test]
fn waves_arrive_on_time_and_are_absorbed() {
    for bytes in [1_000_000, 2_000_000, 8_000_000] {
        let checks = finished(bytes).check();
        assert!(checks.iter().all(Check::passed), "{checks:#?}");
    }
}

#[test]
fn the_ground_is_at_rest_until_the_wave_arrives() {
    let mut seismic = Seismic::new(side_for(8_000_000));
    let zeros = |seismic: &Seismic| {
        let all = seismic.fields.iter().flatten();
        all.clone().filter(|value| **value == 0.0).count() as f64 / all.count() as f64
    };
    assert_eq!(zeros(&seismic), 1.0);
    let mut last = 1.0;
    for _ in 0..4 {
        for _ in 0..8 {
            seismic.step();
        }
        assert!(zeros(&seismic) < last);
        last = zeros(&seismic);
    }
    assert!(last > 0.2, "only {last} still zero");
}

#[test]
fn grids_fit_their_footprint() {
    for bytes in [1_000_000, 16_000_000, INFO.paper_bytes / 4, INFO.paper_bytes] {
        let share = footprint(side_for(bytes)) as f64 / bytes as f64;
        assert!((0.85..=1.0).contains(&share), "{share} of {bytes}");
    }
    let seismic = Seismic::new(16);
    let held: usize = seismic.allocations().iter().map(|allocation| allocation.bytes.len()).sum();
    assert_eq!(held as u64, footprint(16));
}
