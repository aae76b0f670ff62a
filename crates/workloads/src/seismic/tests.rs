use super::*;

fn finished(bytes: u64) -> Seismic {
    let mut seismic = Seismic::new(side_for(bytes));
    for _ in 0..seismic.steps() {
        seismic.step();
    }
    seismic
}

#[test]
fn waves_arrive_on_time_and_leave() {
    for bytes in [1_000_000, 8_000_000] {
        let checks = finished(bytes).check();
        println!("{checks:#?}");
        assert!(checks.iter().all(Check::passed), "{checks:#?}");
    }
}
