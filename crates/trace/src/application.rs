//! A whole GPU program: its allocations, copies and kernels.

use buddy_record::AllocationInfo;

use crate::Kernel;

/// A program whose kernels access its own allocations, so every access has an entry.
///
/// It can run repeatedly and on several threads at once: each run creates new kernels.
pub struct Application {
    /// Name of the program in records.
    pub name: String,
    /// Allocations sorted by address; they do not overlap and are aligned to entries.
    pub allocations: Vec<AllocationInfo>,
    /// Names of the allocations in host memory.
    pub host: Vec<String>,
    /// Copies and kernels in execution order; they do not overlap in time.
    pub steps: Vec<Step>,
}

/// One step of a program.
pub enum Step {
    /// Copies bytes from the host to device memory.
    Copy {
        /// Bytes copied.
        bytes: u64,
    },
    /// Runs the kernel that this creates.
    Kernel(MakeKernel),
}

/// Creates a kernel at its first block.
pub type MakeKernel = Box<dyn Fn() -> Box<dyn Kernel> + Send + Sync>;

impl Step {
    /// Creates a step that runs a copy of this kernel.
    pub fn of(kernel: impl Kernel + Clone + Sync + 'static) -> Self {
        Self::Kernel(Box::new(move || Box::new(kernel.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, pattern::Arithmetic};

    #[test]
    fn a_step_creates_a_new_kernel_each_run() {
        let step = Step::of(Arithmetic::new(3, 64, Op::Fp32, 1, 1));
        let Step::Kernel(make) = step else { panic!("a kernel") };
        assert_eq!(make().launch().blocks(), 3);
        assert_eq!(make().launch(), make().launch());
    }
}
