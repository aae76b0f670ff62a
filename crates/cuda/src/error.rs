//! Errors of this crate.

use buddy_codec::CodecKind;
use cudarc::driver::{DriverError, sys::CUresult};

/// An error of a GPU operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The driver's library is missing.
    #[error(
        "no CUDA driver: libcuda is not on this machine; install NVIDIA's driver, or use a machine that has one"
    )]
    NoDriver,
    /// A library with the driver's name that is no driver.
    #[error("the libcuda on this machine is no CUDA driver: it has no {function}")]
    BadDriver {
        /// The missing function, which every driver has.
        function: &'static str,
    },
    /// The driver is too old.
    #[error(
        "the driver is for CUDA {}.{}; this needs one for CUDA {}.{} or later, which is driver {driver} or later",
        found / 1000, found % 1000 / 10, least / 1000, least % 1000 / 10
    )]
    OldDriver {
        /// Its CUDA version, such as 12040.
        found: i32,
        /// The lowest version that works.
        least: i32,
        /// The first driver with that version.
        driver: &'static str,
    },
    /// There is no GPU of this number.
    #[error("no GPU {ordinal}: the driver sees {count}")]
    NoGpu {
        /// The requested GPU.
        ordinal: usize,
        /// The number of GPUs.
        count: usize,
    },
    /// No context is current on the calling thread.
    #[error("no CUDA context is current on this thread: make one first, as cudaSetDevice or cuCtxCreate do")]
    NoContext,
    /// The compiler's library is missing, and the kernels are not cached.
    #[error(
        "no NVRTC: libnvrtc is needed to compile {program} for this GPU (it comes with the CUDA toolkit)"
    )]
    NoCompiler {
        /// The program to compile.
        program: String,
    },
    /// The program is for newer GPUs.
    #[error("{program} needs a GPU of sm_{needs} or later; this one is sm_{has}")]
    TooOld {
        /// The program to compile.
        program: String,
        /// Its lowest architecture.
        needs: u32,
        /// The GPU's architecture.
        has: u32,
    },
    /// A CTA of the program needs more shared memory than the GPU can give it.
    #[error(
        "{program} needs {needs} bytes of shared memory for a CTA; a CTA of this GPU, sm_{gpu}, has at most {has}"
    )]
    SharedMemory {
        /// The program.
        program: String,
        /// Its bytes.
        needs: u32,
        /// The GPU's bytes.
        has: u32,
        /// The GPU's architecture.
        gpu: u32,
    },
    /// A kernel fails to compile.
    #[error("{program} does not compile: {log}")]
    Compile {
        /// The program to compile.
        program: String,
        /// The compiler's log.
        log: String,
    },
    /// The codec has no kernels.
    #[error("codec '{codec}' has no GPU kernels; those that have are {list}", list = names())]
    NoKernels {
        /// The codec.
        codec: CodecKind,
    },
    /// An inconsistent table of targets.
    #[error("not a table of targets: {0}")]
    Targets(String),
    /// The driver rejected a call.
    #[error("the driver could not {what}: {reason}")]
    Driver {
        /// The attempted operation, to follow "could not".
        what: &'static str,
        /// The driver's description and name of the error.
        reason: String,
    },
    /// An error that ends the context: nothing works on it any more. Returned once.
    #[error("the GPU's context is lost, found when trying to {what}: {reason}; start the process again")]
    Lost {
        /// The attempted operation.
        what: &'static str,
        /// The driver's description and name of the error.
        reason: String,
    },
    /// The context was lost before.
    #[error("refused: the GPU's context was lost earlier ({reason})")]
    Refused {
        /// The driver's description of the first error.
        reason: String,
    },
    /// Not enough device memory.
    #[error("cannot take {asked} bytes of device memory: {free} are free")]
    DeviceMemory {
        /// Requested bytes.
        asked: u64,
        /// Free bytes according to the driver.
        free: u64,
    },
    /// The host memory cannot be pinned.
    #[error(
        "cannot pin {asked} bytes of host memory: {available} bytes are available, the limit of locked memory is {limit}"
    )]
    Pinned {
        /// Requested bytes.
        asked: u64,
        /// Bytes available on the host.
        available: u64,
        /// The process's limit of locked memory, as the kernel prints it.
        limit: String,
    },
    /// The weights do not suit a linear layer.
    #[error("not the weights of a linear layer: {what}")]
    Weights {
        /// The reason.
        what: &'static str,
    },
    /// An error of cuBLASLt.
    #[error("cuBLASLt refused: {0}")]
    Vendor(String),
    /// The pool has no room for another buffer.
    #[error("the pool's {region} memory is too full: {asked} bytes asked for, {left} left")]
    Full {
        /// The pool's memory that is full: `device` or `buddy`.
        region: &'static str,
        /// Requested bytes.
        asked: u64,
        /// Free bytes.
        left: u64,
    },
    /// The pool cannot be cleared yet.
    #[error("the pool has buffers in use")]
    InUse,
    /// Entries past the end of a buffer.
    #[error("entries {first} to {end} are out of range: the buffer has {entries}")]
    Range {
        /// First requested entry.
        first: u64,
        /// One past the last.
        end: u64,
        /// Entries of the buffer.
        entries: u64,
    },
    /// A byte range that an allocation does not accept.
    #[error(
        "bytes {offset} to {end} are out of range: the allocation has {length}, and takes multiples of 128 or its end",
        end = offset.saturating_add(*bytes)
    )]
    Bytes {
        /// First byte of the range.
        offset: u64,
        /// Length of the range.
        bytes: u64,
        /// Length of the allocation.
        length: u64,
    },
    /// An entry failed to decode and read as zeros.
    #[error("entry {entry} did not decode: {what}")]
    Fault {
        /// The lowest such entry.
        entry: u64,
        /// The reason.
        what: &'static str,
    },
    /// An invalid KV cache, or an invalid use of one.
    #[error("keys and values: {0}")]
    Kv(String),
    /// Memory that an operation does not accept.
    #[error("{bytes} bytes at {address:#x} do not fit: {need}")]
    Shape {
        /// Length of the memory.
        bytes: u64,
        /// GPU address of the memory.
        address: u64,
        /// The requirement.
        need: &'static str,
    },
}

fn names() -> String {
    crate::codecs().map(CodecKind::name).collect::<Vec<_>>().join(", ")
}

/// Returns true for errors after which every further call in the context fails.
pub(crate) fn is_sticky(error: CUresult) -> bool {
    matches!(
        error,
        CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
    )
}

/// Returns the driver's name and description of an error.
pub(crate) fn reason(error: DriverError) -> String {
    let words =
        error.error_string().map_or_else(|_| "unknown".into(), |words| words.to_string_lossy().into_owned());
    format!("{words} ({:?})", error.0)
}
