//! Where a workload's arrays lie: what its kernels walk.

use buddy_core::AllocationInfo;
use buddy_trace::{Application, Kernel, Step, pattern::Array};

use crate::{Workload, run::allocation_infos};

/// The arrays of a workload by name.
pub(crate) struct Layout {
    allocations: Vec<AllocationInfo>,
}

impl Layout {
    /// The arrays as every description of the workload places them.
    pub(crate) fn of(workload: &dyn Workload) -> Self {
        Self { allocations: allocation_infos(workload) }
    }

    /// The array of a name, with its address.
    ///
    /// # Panics
    /// If the workload has none of that name.
    pub(crate) fn array(&self, name: &str) -> Array {
        let found = self.allocations.iter().find(|allocation| allocation.name == name);
        let allocation = found.unwrap_or_else(|| panic!("there is no array {name:?}"));
        Array { base: allocation.base, element_bytes: allocation.dtype.bytes() as u8 }
    }

    /// The arrays of some names, in their order.
    pub(crate) fn arrays<const N: usize>(&self, names: [&str; N]) -> [Array; N] {
        names.map(|name| self.array(name))
    }

    /// The program that does these things with the arrays, all of them in device memory.
    pub(crate) fn application(self, name: &str, steps: Vec<Step>) -> Application {
        Application { name: name.to_owned(), allocations: self.allocations, host: Vec::new(), steps }
    }
}

/// Repeats what `kernels` gives.
pub(crate) fn repeated<K>(times: usize, kernels: &[K]) -> Vec<Step>
where
    K: Kernel + Clone + Send + Sync + 'static,
{
    (0..times).flat_map(|_| kernels.iter().cloned().map(Step::of)).collect()
}
