//! Why something could not be done on a GPU.

use buddy_codec::CodecKind;
use cudarc::driver::{DriverError, sys::CUresult};

/// Why something could not be done on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The driver's library is not there.
    #[error(
        "no CUDA driver: libcuda is not on this machine; install NVIDIA's driver, or use a machine that has one"
    )]
    NoDriver,
    /// A library of the driver's name that is not the driver.
    #[error("the libcuda on this machine is no CUDA driver: it has no {function}")]
    BadDriver {
        /// A function that every driver has.
        function: &'static str,
    },
    /// A driver that is too old.
    #[error(
        "the driver is for CUDA {}.{}; this needs one for CUDA {}.{} or later, which is driver {driver} or later",
        found / 1000, found % 1000 / 10, least / 1000, least % 1000 / 10
    )]
    OldDriver {
        /// Its CUDA version, such as 12040.
        found: i32,
        /// The least that works.
        least: i32,
        /// The first driver that has it.
        driver: &'static str,
    },
    /// The driver is there, the GPU is not.
    #[error("no GPU {ordinal}: the driver sees {count}")]
    NoGpu {
        /// The GPU asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// No context is current on the calling thread.
    #[error("no CUDA context is current on this thread: make one first, as cudaSetDevice or cuCtxCreate do")]
    NoContext,
    /// The compiler's library is not there, and the kernels are not in the cache.
    #[error(
        "no NVRTC: libnvrtc is needed to compile {program} for this GPU (it comes with the CUDA toolkit)"
    )]
    NoCompiler {
        /// What was to be compiled.
        program: String,
    },
    /// A program for later GPUs.
    #[error("{program} needs a GPU of sm_{needs} or later; this one is sm_{has}")]
    TooOld {
        /// What was to be compiled.
        program: String,
        /// The least architecture it is for.
        needs: u32,
        /// That of the GPU.
        has: u32,
    },
    /// A kernel does not compile.
    #[error("{program} does not compile: {log}")]
    Compile {
        /// What was to be compiled.
        program: String,
        /// What the compiler said.
        log: String,
    },
    /// There are no kernels for this codec.
    #[error("codec '{codec}' has no GPU kernels; those that have are {list}", list = names())]
    NoKernels {
        /// The codec that only the CPU has.
        codec: CodecKind,
    },
    /// A table of targets that contradicts itself.
    #[error("not a table of targets: {0}")]
    Targets(String),
    /// The driver refused a call.
    #[error("the driver could not {what}: {reason}")]
    Driver {
        /// What was tried, after "could not".
        what: &'static str,
        /// The driver's words and its name for the error.
        reason: String,
    },
    /// An error that ends the context: nothing works on it any more. Said once.
    #[error("the GPU's context is lost, found when trying to {what}: {reason}; start the process again")]
    Lost {
        /// What was tried when it showed.
        what: &'static str,
        /// The driver's words and its name for the error.
        reason: String,
    },
    /// The context was lost earlier.
    #[error("refused: the GPU's context was lost earlier ({reason})")]
    Refused {
        /// The driver's words at that time.
        reason: String,
    },
    /// Not enough device memory.
    #[error("cannot take {asked} bytes of device memory: {free} are free")]
    DeviceMemory {
        /// Bytes that were asked for.
        asked: u64,
        /// Bytes the driver calls free.
        free: u64,
    },
    /// Host memory that cannot be pinned.
    #[error(
        "cannot pin {asked} bytes of host memory: {available} bytes are available, the limit of locked memory is {limit}"
    )]
    Pinned {
        /// Bytes that were asked for.
        asked: u64,
        /// Bytes the host could give.
        available: u64,
        /// The process's limit of locked memory, in the kernel's words.
        limit: String,
    },
    /// Weights that no linear layer takes.
    #[error("not the weights of a linear layer: {what}")]
    Weights {
        /// What is wrong with them.
        what: &'static str,
    },
    /// What the vendor's library of products says.
    #[error("cuBLASLt refused: {0}")]
    Vendor(String),
    /// A pool that is too full for another buffer.
    #[error("the pool's {region} memory is too full: {asked} bytes asked for, {left} left")]
    Full {
        /// Which of the pool's two: `device` or `buddy`.
        region: &'static str,
        /// Bytes that were asked for.
        asked: u64,
        /// Bytes that no buffer has.
        left: u64,
    },
    /// A pool that cannot be emptied yet.
    #[error("the pool has buffers in use")]
    InUse,
    /// Entries past the end of a buffer.
    #[error("entries {first} to {end} are out of range: the buffer has {entries}")]
    Range {
        /// First entry asked for.
        first: u64,
        /// One past the last.
        end: u64,
        /// How many there are.
        entries: u64,
    },
    /// A range of bytes that an allocation does not take.
    #[error(
        "bytes {offset} to {end} are out of range: the allocation has {length}, and takes multiples of 128 or its end",
        end = offset.saturating_add(*bytes)
    )]
    Bytes {
        /// Byte of the allocation that they begin at.
        offset: u64,
        /// How many bytes were given.
        bytes: u64,
        /// Bytes of the allocation.
        length: u64,
    },
    /// Entries that did not decode: their bytes are zeros where they were read to.
    #[error("entry {entry} did not decode: {what}")]
    Fault {
        /// The lowest of them.
        entry: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A cache of keys and values, or a use of one, that cannot be.
    #[error("keys and values: {0}")]
    Kv(String),
    /// Bytes that are not what an operation takes.
    #[error("{bytes} bytes at {address:#x} do not fit: {need}")]
    Shape {
        /// How many bytes were given.
        bytes: u64,
        /// The GPU's address of the first.
        address: u64,
        /// What would be right.
        need: &'static str,
    },
}

fn names() -> String {
    crate::codecs().map(CodecKind::name).collect::<Vec<_>>().join(", ")
}

/// Errors after which every further call in the context fails the same way.
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

/// The driver's name and words for an error.
pub(crate) fn reason(error: DriverError) -> String {
    let words =
        error.error_string().map_or_else(|_| "unknown".into(), |words| words.to_string_lossy().into_owned());
    format!("{words} ({:?})", error.0)
}
