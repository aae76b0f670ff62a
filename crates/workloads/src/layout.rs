//! Addresses of a workload's arrays.

use buddy_record::AllocationInfo;
use buddy_trace::{Application, Kernel, Step, pattern::Array};

use crate::{Workload, run::allocation_infos};

/// The arrays of a workload, by name.
pub(crate) struct Layout {
    allocations: Vec<AllocationInfo>,
}

impl Layout {
    /// Lays out the arrays as in every description of the workload.
    pub(crate) fn of(workload: &dyn Workload) -> Self {
        Self { allocations: allocation_infos(workload) }
    }

    /// Returns the array of a name.
    ///
    /// # Panics
    /// If there is no array of that name.
    pub(crate) fn array(&self, name: &str) -> Array {
        let found = self.allocations.iter().find(|allocation| allocation.name == name);
        let allocation = found.unwrap_or_else(|| panic!("there is no array {name:?}"));
        Array { base: allocation.base, element_bytes: allocation.dtype.bytes() as u8 }
    }

    /// Returns the arrays of these names, in order.
    pub(crate) fn arrays<const N: usize>(&self, names: [&str; N]) -> [Array; N] {
        names.map(|name| self.array(name))
    }

    /// Returns the program of these steps, with all arrays in device memory.
    pub(crate) fn application(self, name: &str, steps: Vec<Step>) -> Application {
        Application { name: name.to_owned(), allocations: self.allocations, host: Vec::new(), steps }
    }
}

/// Returns `times` repetitions of the kernels as steps.
pub(crate) fn repeated<K>(times: usize, kernels: &[K]) -> Vec<Step>
where
    K: Kernel + Clone + Sync + 'static,
{
    (0..times).flat_map(|_| kernels.iter().cloned().map(Step::of)).collect()
}
