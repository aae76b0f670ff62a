//! Reads any text as a TOML file of each kind: GPUs, links, targets by name and by address, sweep
//! plans.

use std::collections::HashSet;

use buddy_record::spec::{Gpu, Link};
use buddy_profile::{read_targets, write_targets};
use buddy_sim::{ClassMap, TargetsFile};
use buddy_sweep::{Plan, Points};

/// Limit on points per plan, since a few bytes may declare millions.
const MOST_POINTS: usize = 200;

pub(crate) fn read(text: &str) {
    let _ = Gpu::parse("fuzz.toml", text);
    let _ = Link::parse("fuzz.toml", text);
    if let Ok(table) = read_targets(text) {
        assert_eq!(read_targets(&write_targets(&table, "", |_| String::new())).unwrap(), table);
    }
    if let Ok(TargetsFile::Addressed(rows)) = TargetsFile::parse("fuzz.toml", text)
        && let Ok(map) = ClassMap::new(rows)
    {
        assert!(map.footprint() <= 1 << 40);
    }
}

pub(crate) fn plan(text: &str) {
    let Ok(plan) = Plan::parse(text) else { return };
    if plan.size() > MOST_POINTS {
        return;
    }
    let cases = plan.cases().count();
    let Ok(points) = Points::of(plan) else { return };
    assert!(points.len() <= cases);
    let digests: HashSet<u128> = (0..points.len()).map(|point| points.digest(point)).collect();
    assert_eq!(digests.len(), points.len(), "duplicate point");
    for point in 0..points.len() {
        assert_eq!(points.key(point).digest(), points.digest(point));
    }
}
