//! Kernels of linear layers compiled ahead, many at a time, so that capturing a model's graphs
//! compiles none.

use std::{
    collections::HashSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{Linear, Narrow, Plan, Sizes, Wide, kernel, portable, unpack};
use crate::{Error, Gpu};

/// A kernel of one shape.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kernel {
    Narrow(Narrow),
    Wide(Wide),
    Unpack,
    /// By eights of tokens.
    Portable(u32),
}

impl Kernel {
    fn load(self, gpu: &Gpu) -> Result<(), Error> {
        let loaded = match self {
            Self::Narrow(it) => {
                kernel(gpu, |kernels| &mut kernels.narrow, it, "linear_narrow", || it.source())
            }
            Self::Wide(it) => kernel(gpu, |kernels| &mut kernels.wide, it, "linear_wide", || it.source()),
            Self::Portable(eights) => portable::kernel(gpu, eights),
            Self::Unpack => kernel(gpu, |kernels| &mut kernels.unpack, (), "linear_unpack", unpack::source),
        };
        loaded.map(|_| ())
    }
}

impl Linear<'_> {
    /// Compiles and loads the kernels of layers (outputs, inputs, whether gated) for each number of
    /// tokens, and returns the most bytes of counters that any of them needs.
    ///
    /// # Errors
    /// What compiler or driver say.
    pub fn load(gpu: &Gpu, layers: &[(u32, u32, bool)], tokens: &[u32]) -> Result<u64, Error> {
        let (mut kernels, mut counts) = (HashSet::new(), 0);
        for &(outputs, inputs, gated) in layers {
            for &tokens in tokens {
                let sizes = Sizes { outputs, inputs, tokens };
                let plan = Plan::of(gpu, sizes);
                counts = plan.count_bytes(gpu, sizes).max(counts);
                match plan {
                    Plan::Narrow(narrow) => {
                        kernels.extend([narrow, narrow.alone()].map(Kernel::Narrow));
                    }
                    Plan::Wide(wide) => {
                        kernels.insert(Kernel::Wide(if gated { wide.gated() } else { wide }));
                    }
                    Plan::Portable(eights) => {
                        kernels.insert(Kernel::Portable(eights));
                    }
                    Plan::Plain(_) if gpu.is_hopper() => {
                        kernels.insert(Kernel::Unpack);
                    }
                    Plan::Plain(_) => {}
                }
            }
        }
        load_all(gpu, &kernels.into_iter().collect::<Vec<_>>()).map(|()| counts)
    }
}

fn load_all(gpu: &Gpu, kernels: &[Kernel]) -> Result<(), Error> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let threads = thread::available_parallelism().map_or(1, usize::from).min(kernels.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(kernel) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = kernel.load(gpu) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
