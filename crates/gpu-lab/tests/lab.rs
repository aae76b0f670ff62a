//! The lab on a real GPU. Without one these tests report that they were skipped; with
//! `BUDDY_REQUIRE_GPU=1` they fail instead.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use buddy_cuda::{Error as GpuError, Source, Trial};
use buddy_gpu_lab::{
    Error, Example, Grid, Lab, LargeAsk, Shapes, Way, check, check_attention, check_linear,
    check_linear_shapes, check_small_attention, large, on_gpu, sources, tune,
};

/// On all threads. Run before others it fills the cache of compiled kernels.
#[test]
fn every_program_compiles_and_loads() {
    on_gpu(|gpu| {
        let all = [Source::all(), Trial::all_forms(), sources()].concat();
        let next = AtomicUsize::new(0);
        let load = || {
            while let Some(source) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                match gpu.module(source) {
                    Ok(_) | Err(GpuError::TooOld { .. }) => {}
                    Err(error) => panic!("{}: {error}", source.name),
                }
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(load))));
        assert!(next.into_inner() >= all.len());
    });
}

#[test]
fn every_codec_and_target_is_the_cpus() {
    on_gpu(|gpu| {
        let report = check(gpu, 8 << 20, &[], |_| {}).unwrap();
        assert_eq!(report.cases.len(), 5 * buddy_cuda::codecs().count());
    });
}

#[test]
fn fused_kernels_give_what_plain_memory_gives() {
    on_gpu(|gpu| {
        for example in [Example::Stencil, Example::Spmv] {
            match tune(gpu, example, Shapes::default()) {
                Ok(rows) => assert!(!rows.is_empty()),
                // Not on every GPU.
                Err(Error::Gpu(GpuError::TooOld { .. })) => {}
                Err(error) => panic!("{example:?}: {error}"),
            }
        }
    });
}

/// Every plan: few tokens, tiles of tokens, and as many as cuBLASLt multiplies.
#[test]
fn linear_layers_are_right_at_shapes_at_random() {
    on_gpu(|gpu| {
        let lab = Lab::new(gpu).unwrap();
        check_linear(&lab, 200, 8).unwrap();
        check_linear(&lab, 700, 128).unwrap();
        check_linear(&lab, 100, 2000).unwrap();
    });
}

/// Frozen, writable and gated; also under compute-sanitizer.
#[test]
fn every_kernel_of_linear_layers_is_right_on_small_problems() {
    on_gpu(|gpu| check_linear_shapes(&Lab::new(gpu).unwrap()).unwrap());
}

/// Also under compute-sanitizer.
#[test]
fn every_kernel_of_attention_is_right_on_small_problems() {
    on_gpu(|gpu| match check_small_attention(&Lab::new(gpu).unwrap()) {
        Ok(()) => {}
        // Not on every GPU.
        Err(Error::Gpu(reason @ (GpuError::TooOld { .. } | GpuError::SharedMemory { .. }))) => {
            eprintln!("skipped: {reason}")
        }
        Err(error) => panic!("{error}"),
    });
}

#[test]
fn attention_gives_what_plain_memory_gives() {
    on_gpu(|gpu| match check_attention(&Lab::new(gpu).unwrap(), 10) {
        Ok(()) => {}
        // Not on every GPU.
        Err(Error::Gpu(reason @ (GpuError::TooOld { .. } | GpuError::SharedMemory { .. }))) => {
            eprintln!("skipped: {reason}")
        }
        Err(error) => panic!("{error}"),
    });
}

/// All ways, first compared with the CPU at small sizes.
#[test]
fn the_wave_is_the_same_by_every_way() {
    on_gpu(|gpu| {
        let grid = Grid { x: 256, y: 256, z: 128 };
        let ways = Way::ALL.to_vec();
        let ask = LargeAsk {
            grid,
            room: None,
            host: None,
            steps: Some(40),
            seconds: 60.0,
            ways,
            verify: true,
            share: 0.6,
        };
        match large(gpu, &ask, |_| true) {
            Ok((report, picture)) => {
                assert_eq!((report.runs.len(), report.checks.len()), (4, 4));
                assert!(report.runs.iter().all(|run| run.differing.unwrap_or(0) == 0));
                assert!(picture.unwrap().values.iter().any(|&value| value != 0.0));
            }
            // Not on every GPU.
            Err(Error::Gpu(GpuError::TooOld { .. })) => {}
            Err(error) => panic!("{error}"),
        }
    });
}
