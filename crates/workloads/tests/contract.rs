//! Contract of every workload: a footprint near the request, fixed named arrays, ten snapshots
//! independent of the number of threads, and passing checks.

use std::{
    collections::HashSet,
    convert::Infallible,
    hash::{DefaultHasher, Hash, Hasher},
};

use buddy_core::Dtype;
use buddy_workloads::{ALL, Check, Info, SNAPSHOTS, Workload, run};

const MEGABYTE: u64 = 1_000_000;

/// Returns name, type and length of each allocation.
fn shape(workload: &dyn Workload) -> Vec<(String, Dtype, usize)> {
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

/// Runs a workload at 1 MB; returns step and memory hash at each snapshot, and the checks.
fn snapshots(info: &Info, threads: usize) -> (Vec<(u64, u64)>, Vec<Check>) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a small pool starts");
    pool.install(|| {
        let mut workload = (info.build)(MEGABYTE, 7);
        let before = shape(workload.as_ref());
        let mut seen = vec![];
        let checks = run(workload.as_mut(), |step, workload| {
            if step.look {
                seen.push((step.done, hash(workload)));
                assert_eq!(shape(workload), before, "{}", info.name);
            }
            Ok::<(), Infallible>(())
        });
        (seen, checks.unwrap())
    })
}

#[test]
fn ten_snapshots_are_evenly_spaced_and_independent_of_threads() {
    for info in ALL {
        let (one, checks) = snapshots(info, 1);
        assert_eq!(one.len() as u64, SNAPSHOTS, "{}", info.name);
        let steps = one[9].0;
        for (k, (step, _)) in (1..).zip(&one) {
            assert_eq!(*step, (k * steps).div_ceil(SNAPSHOTS), "{}", info.name);
        }
        let different: HashSet<u64> = one.iter().map(|&(_, hash)| hash).collect();
        assert_eq!(different.len(), one.len(), "{} does not change", info.name);
        assert_eq!(snapshots(info, 2), (one, checks), "{} on two threads", info.name);
    }
}

#[test]
fn runs_pass_their_checks() {
    for info in ALL {
        let (_, checks) = snapshots(info, 2);
        assert!(!checks.is_empty() && checks.iter().all(Check::passed), "{}: {checks:#?}", info.name);
    }
}

#[test]
fn footprints_are_near_the_request_and_as_predicted() {
    for info in ALL {
        for bytes in [MEGABYTE, 16 * MEGABYTE] {
            let found = footprint((info.build)(bytes, 1).as_ref()) as f64;
            let share = found / bytes as f64;
            assert!((0.5..=1.1).contains(&share), "{}: {share} of {bytes}", info.name);
            let predicted = (info.footprint)(bytes) as f64;
            assert!((found / predicted - 1.0).abs() < 0.03, "{}: {found}, not {predicted}", info.name);
        }
        let share = (info.footprint)(info.paper_bytes) as f64 / info.paper_bytes as f64;
        assert!((0.85..=1.1).contains(&share), "{}: {share} of the paper's", info.name);
    }
}

#[test]
fn the_list_says_which_programs_have_arrays_in_host_memory() {
    for info in ALL {
        let application = (info.build)(MEGABYTE, 1).application();
        assert_eq!(!application.host.is_empty(), info.has_host_memory, "{}", info.name);
    }
}

#[test]
fn names_are_unique_and_lengths_whole() {
    let unique = |names: Vec<String>| names.iter().collect::<HashSet<_>>().len() == names.len();
    assert!(unique(ALL.iter().map(|info| info.name.to_owned()).collect()));
    for info in ALL {
        let workload = (info.build)(MEGABYTE, 1);
        let shape = shape(workload.as_ref());
        assert!(shape.iter().all(|(_, dtype, length)| *length > 0 && length % dtype.bytes() == 0));
        assert!(unique(shape.into_iter().map(|(name, ..)| name).collect()), "{}", info.name);
        assert!(workload.allocations().iter().all(|allocation| !allocation.call_site.is_empty()));
    }
}
