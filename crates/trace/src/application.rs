//! A whole program on a GPU: its allocations, and what it does with them, one thing after the other.

use buddy_core::AllocationInfo;

use crate::Kernel;

/// A program whose kernels walk its own allocations, so that every access finds its entry.
///
/// It can be run any number of times, on several threads at once: a step makes its kernel anew each time.
pub struct Application {
    /// Name of the program in records.
    pub name: String,
    /// Its allocations, by address; none overlap and each begins at an entry.
    pub allocations: Vec<AllocationInfo>,
    /// Names of the allocations that lie in host memory.
    pub host: Vec<String>,
    /// Copies and kernels, in the order in which they run; none overlap.
    pub steps: Vec<Step>,
}

/// One thing that a program does.
pub enum Step {
    /// Copies bytes from the host to device memory.
    Copy {
        /// Bytes that cross the link.
        bytes: u64,
    },
    /// Runs the kernel that this makes.
    Kernel(MakeKernel),
}

/// Makes a kernel that begins at its first block.
pub type MakeKernel = Box<dyn Fn() -> Box<dyn Kernel> + Send + Sync>;

impl Step {
    /// A step that runs a copy of this kernel.
    pub fn of(kernel: impl Kernel + Clone + Send + Sync + 'static) -> Self {
        Self::Kernel(Box::new(move || Box::new(kernel.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, pattern::Arithmetic};

    #[test]
    fn a_step_makes_its_kernel_each_time() {
        let step = Step::of(Arithmetic::new(3, 64, Op::Fp32, 1, 1));
        let Step::Kernel(make) = step else { panic!("a kernel") };
        assert_eq!(make().launch().blocks(), 3);
        assert_eq!(make().launch(), make().launch());
    }
}
