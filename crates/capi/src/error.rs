//! Codes for C, and the message of the last failure on each thread.

use std::{
    any::Any,
    cell::RefCell,
    ffi::{CStr, CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

use buddy_cuda::Error;

use crate::types::Code;

/// The description of every code, in the order of `buddy.h`.
const CODES: [&CStr; 14] = [
    c"success",
    c"an argument has a value that it cannot have",
    c"this is no allocation, or it was freed",
    c"no CUDA driver on this machine",
    c"no CUDA context is current on this thread",
    c"the allocation belongs to another context than the current one",
    c"not enough device memory",
    c"not enough host memory that can be pinned",
    c"unknown codec, or one without GPU kernels",
    c"the kernels cannot be compiled: no NVRTC, or it refused",
    c"the CUDA driver refused a call",
    c"the CUDA context is lost: an earlier error ended it",
    c"a defect of this library",
    c"data did not decode: it was damaged, or never written",
];

/// Error of a call.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Failure {
    #[error("{0}")]
    Value(String),
    #[error("{0}")]
    Codec(String),
    #[error("{0} is no allocation, or it was freed")]
    Handle(u64),
    #[error("{0} is no sparse matrix, or it was freed")]
    Matrix(u64),
    #[error("the allocation belongs to another context than the current one")]
    Context,
    #[error("the context of this allocation was destroyed, and its memory with it; free the handle")]
    Destroyed,
    #[error(transparent)]
    Cuda(#[from] Error),
    #[error("a defect of this library: {0}")]
    Panic(String),
}

impl Failure {
    fn code(&self) -> Code {
        match self {
            Self::Value(_) => 1,
            Self::Handle(_) | Self::Matrix(_) => 2,
            Self::Context => 5,
            Self::Destroyed => 11,
            Self::Codec(_) => 8,
            Self::Panic(_) => 12,
            Self::Cuda(error) => match error {
                Error::NoDriver | Error::BadDriver { .. } | Error::OldDriver { .. } | Error::NoGpu { .. } => {
                    3
                }
                Error::NoContext => 4,
                Error::DeviceMemory { .. } | Error::Full { .. } => 6,
                Error::Pinned { .. } => 7,
                Error::NoKernels { .. } => 8,
                Error::NoCompiler { .. }
                | Error::Compile { .. }
                | Error::TooOld { .. }
                | Error::SharedMemory { .. } => 9,
                Error::Driver { .. } | Error::Vendor(_) => 10,
                Error::Lost { .. } | Error::Refused { .. } => 11,
                Error::Range { .. }
                | Error::Bytes { .. }
                | Error::Shape { .. }
                | Error::Targets(_)
                | Error::Weights { .. }
                | Error::Kv(_) => 1,
                Error::InUse => 12,
                Error::Fault { .. } => 13,
            },
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a call for C: a failure or a panic becomes a code, and its message is kept for this thread.
pub fn guard(call: impl FnOnce() -> Result<(), Failure>) -> Code {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    let failure = match outcome {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::Panic(words(&*panic)),
    };
    let message = CString::new(failure.to_string().replace('\0', " ")).unwrap_or_default();
    // A thread that is ending cannot keep a message.
    let _ = LAST.try_with(|last| last.replace(message));
    failure.code()
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.map(str::to_owned).or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Returns the message of this thread's last failure, empty if there was none; valid until the next
/// failure.
pub(crate) fn last_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the static description of an error code.
pub(crate) fn meaning(code: Code) -> *const c_char {
    let known = usize::try_from(code).ok().and_then(|code| CODES.get(code));
    known.copied().unwrap_or(c"unknown code").as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pointer: *const c_char) -> String {
        // SAFETY: both functions return strings that end in NUL.
        unsafe { CStr::from_ptr(pointer) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_a_code_with_a_message() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let code = guard(|| panic!("index {} of 3", 7));
        std::panic::set_hook(hook);
        assert_eq!(code, 12);
        assert_eq!(text(last_message()), "a defect of this library: index 7 of 3");
    }

    #[test]
    fn codes_are_those_of_the_header() {
        let header = include_str!("../include/buddy.h");
        let values: Vec<usize> = header
            .lines()
            .filter_map(|line| line.trim().strip_prefix("BUDDY_ERROR_")?.split_once("= "))
            .map(|(_, rest)| rest.split([',', ' ']).next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(values, (1..CODES.len()).collect::<Vec<_>>());
        assert_eq!(text(meaning(0)), "success");
        assert_eq!(text(meaning(-1)), "unknown code");
        assert_eq!(text(meaning(14)), "unknown code");
    }
}
