//! What every workload promises: a footprint near the request, fixed named arrays, the same bytes on any number
//! of threads, and a run that passes its own checks.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use buddy_workloads::{ALL, Check, Info, Workload};

const MEGABYTE: u64 = 1_000_000;

fn bytes(workload: &dyn Workload) -> u64 {
    workload.allocations().iter().map(|allocation| allocation.bytes.len() as u64).sum()
}

fn shape(workload: &dyn Workload) -> Vec<(String, usize)> {
    let allocations = workload.allocations();
    allocations.into_iter().map(|allocation| (allocation.name, allocation.bytes.len())).collect()
}

/// A whole run at 1 MB on some threads, and a hash of its memory after each tenth of it.
fn run(info: &Info, threads: usize) -> (Box<dyn Workload>, Vec<u64>) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let mut workload = (info.build)(MEGABYTE, 1);
        let steps = workload.steps();
        let mut hashes = Vec::new();
        for step in 1..=steps {
            workload.step();
            if step * 10 / steps > (step - 1) * 10 / steps {
                let mut hasher = DefaultHasher::new();
                workload.allocations().iter().for_each(|allocation| allocation.bytes.hash(&mut hasher));
                hashes.push(hasher.finish());
            }
        }
        (workload, hashes)
    })
}

#[test]
fn runs_pass_their_checks_and_do_not_depend_on_threads() {
    for info in ALL {
        let (one, first) = run(info, 1);
        assert!(one.steps() >= 10, "{}", info.name);
        assert_eq!(first.len(), 10, "{}", info.name);
        assert_eq!(first, run(info, 2).1, "{} on two threads", info.name);
        assert_eq!(first, run(info, 1).1, "{} a second time", info.name);
        let checks = one.check();
        assert!(!checks.is_empty() && checks.iter().all(Check::passed), "{}: {checks:#?}", info.name);
    }
}

#[test]
fn footprints_come_near_the_request() {
    for info in ALL {
        for request in [MEGABYTE, 16 * MEGABYTE] {
            let share = bytes((info.build)(request, 1).as_ref()) as f64 / request as f64;
            assert!((0.5..=1.1).contains(&share), "{} takes {share} of {request}", info.name);
        }
    }
}

#[test]
fn arrays_have_names_of_their_own_and_keep_their_lengths() {
    for info in ALL {
        let mut workload = (info.build)(MEGABYTE, 1);
        let before = shape(workload.as_ref());
        let names: HashSet<_> = before.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), before.len(), "{}", info.name);
        assert!(workload.allocations().iter().all(|allocation| !allocation.call_site.is_empty()));
        assert!(before.iter().all(|(_, length)| *length > 0), "{}: {before:?}", info.name);
        for _ in 0..3 {
            workload.step();
        }
        assert_eq!(before, shape(workload.as_ref()), "{}", info.name);
    }
}
