//! Errors of checks and measurements.

/// Error of a check or a measurement.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// An error of the runtime, the driver or the compiler.
    #[error(transparent)]
    Gpu(#[from] buddy_cuda::Error),
    /// A shape that the kernels cannot have.
    #[error("there is no such {of}: {why}")]
    Cut {
        /// The kernel, as its users call it.
        of: &'static str,
        /// The shapes that are valid.
        why: &'static str,
    },
    /// A page of the wave without memory.
    #[error(
        "the wave needs more memory than {device_gb:.1} GB on the GPU and {host_gb:.1} GB of the host; give it more with --host", device_gb = *device as f64 / 1e9, host_gb = *host as f64 / 1e9
    )]
    NoRoom {
        /// Bytes for fields on the device.
        device: u64,
        /// Bytes for fields in host memory.
        host: u64,
    },
    /// Host memory that cannot be pinned.
    #[error("cannot pin {gb:.1} GB of host memory: {why}; ask for less with --host, or for fewer cells", gb = *bytes as f64 / 1e9)]
    HostMemory {
        /// Bytes requested.
        bytes: u64,
        /// The cause.
        why: String,
    },
    /// A GPU without compressible memory.
    #[error(
        "{gpu} gives no compressible memory: it needs an NVIDIA data-centre GPU from A100 on, and a driver that allows it"
    )]
    Compressible {
        /// The vendor's name for the GPU.
        gpu: String,
    },
    /// An error of cuBLASLt.
    #[error("cuBLASLt refused: {0}")]
    Vendor(String),
    /// nvCOMP lacks a function, or one failed.
    #[error("nvCOMP {0}")]
    Nvcomp(String),
    /// The machine code of the small kernels cannot be read.
    #[error(
        "nvdisasm, which comes with the CUDA toolkit, is needed to trace the small kernels; put it on the path or set CUDA_HOME: {why}"
    )]
    Disassembler {
        /// The cause.
        why: String,
    },
    /// A small kernel that cannot be traced.
    #[error("the small kernel {case} cannot be traced: {why}")]
    Trace {
        /// The case.
        case: String,
        /// The cause.
        why: String,
    },
    /// A file that cannot be written.
    #[error("cannot write {path}: {why}")]
    File {
        /// Path of the file.
        path: String,
        /// The cause.
        why: String,
    },
    /// A solver that did not converge.
    #[error(
        "after {iterations} iterations the residual is {residual:.1e}, the true one {true_residual:.1e}, and not {tolerance:.1e}; allow more \
         iterations or a larger residual"
    )]
    Diverges {
        /// Iterations.
        iterations: u32,
        /// The solver's residual, as a share of the right-hand side.
        residual: f64,
        /// The true residual.
        true_residual: f64,
        /// The residual requested.
        tolerance: f64,
    },
    /// A result of the GPU that differs from the CPU's.
    #[error("the GPU differs from the CPU: {0}")]
    Differs(String),
}
