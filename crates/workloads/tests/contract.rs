//! What every workload promises, whatever it computes.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use buddy_workloads::{ALL, Check, Info, Workload};

const MEGABYTE: u64 = 1_000_000;
const SNAPSHOTS: u64 = 10;

/// Runs `test` on a pool of `threads` threads.
fn on_threads<T: Send>(threads: usize, test: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a small pool starts").install(test)
}

/// Name, type and length of each allocation.
fn shape(workload: &dyn Workload) -> Vec<(String, buddy_core::Dtype, usize)> {
    workload.allocations().into_iter().map(|a| (a.name, a.dtype, a.bytes.len())).collect()
}

fn footprint(workload: &dyn Workload) -> u64 {
    workload.allocations().iter().map(|allocation| allocation.bytes.len() as u64).sum()
}

fn hash(workload: &dyn Workload) -> u64 {
    let mut hasher = DefaultHasher::new();
    workload.allocations().iter().for_each(|allocation| allocation.bytes.hash(&mut hasher));
    hasher.finish()
}

/// A whole run at 1 MB: a hash for each of ten evenly spaced snapshots, and the checks at the end.
fn run(info: &Info, seed: u64) -> (Vec<u64>, Vec<Check>) {
    let mut workload = (info.build)(MEGABYTE, seed);
    let steps = workload.steps();
    assert!(steps >= SNAPSHOTS, "{}: {steps} steps", info.name);
    let before = shape(&*workload);
    let mut hashes = vec![];
    for step in 0..steps {
        workload.step();
        if (step + 1) * SNAPSHOTS / steps > step * SNAPSHOTS / steps {
            hashes.push(hash(&*workload));
            assert_eq!(shape(&*workload), before, "{}", info.name);
        }
    }
    (hashes, workload.check())
}

#[test]
fn runs_pass_their_checks() {
    for info in ALL {
        let (_, checks) = run(info, 1);
        assert!(!checks.is_empty(), "{}", info.name);
        for check in checks {
            assert!(check.passed(), "{}: {check:?}", info.name);
        }
    }
}

#[test]
fn runs_are_the_same_on_any_number_of_threads() {
    for info in ALL {
        let (one, checks) = on_threads(1, || run(info, 7));
        assert_eq!(one.len() as u64, SNAPSHOTS, "{}", info.name);
        for _ in 0..2 {
            let (two, again) = on_threads(2, || run(info, 7));
            assert!(one == two && checks == again, "{}", info.name);
        }
    }
}

#[test]
fn values_change_between_snapshots() {
    for info in ALL {
        let (hashes, _) = run(info, 1);
        assert_eq!(hashes.iter().collect::<HashSet<_>>().len() as u64, SNAPSHOTS, "{}", info.name);
    }
}

#[test]
fn footprints_are_near_the_request() {
    for info in ALL {
        for bytes in [MEGABYTE, 16 * MEGABYTE] {
            let share = footprint(&*(info.build)(bytes, 1)) as f64 / bytes as f64;
            assert!((0.5..=1.1).contains(&share), "{}: {share} of {bytes}", info.name);
        }
    }
}

#[test]
fn names_are_unique() {
    let unique = |names: Vec<String>| names.iter().collect::<HashSet<_>>().len() == names.len();
    assert!(unique(ALL.iter().map(|info| info.name.to_owned()).collect()));
    for info in ALL {
        let workload = (info.build)(MEGABYTE, 1);
        assert!(unique(shape(&*workload).into_iter().map(|(name, ..)| name).collect()), "{}", info.name);
        for (name, dtype, length) in shape(&*workload) {
            assert_eq!(length % dtype.bytes(), 0, "{} {name}", info.name);
        }
    }
}
