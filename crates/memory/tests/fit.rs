//! Runs the example as a test.

#[allow(dead_code)]
#[path = "../examples/fit_24_in_12.rs"]
mod example;

#[test]
fn twenty_four_mib_fit_in_twelve() {
    let mut lines = Vec::new();
    let report = example::fit(&mut |line| lines.push(line)).unwrap();
    let total = &report.total;
    assert_eq!(total.bytes, 24 << 20);
    assert!(total.device_bytes <= 12 << 20 && total.ratio.unwrap() >= 2.0);
    assert_eq!(report.allocations.len(), 3);
    assert!(total.entries_overflowing > 0 && total.traffic.buddy_sectors() > 0);
    assert!(lines.last().unwrap().starts_with("in all: 24.00 MiB of data on"), "{lines:?}");
}
