//! Conversion of library errors to Python exceptions.

use std::fmt::Display;

use buddy_cuda::Error;
use pyo3::{
    PyErr,
    exceptions::{PyMemoryError, PyRuntimeError, PyValueError},
};

/// Converts an invalid argument to `ValueError`.
pub(crate) fn value(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Converts an error of the GPU runtime to `ValueError`, `MemoryError` or `RuntimeError`.
pub(crate) fn gpu(error: Error) -> PyErr {
    match error {
        Error::Shape { .. } | Error::Range { .. } | Error::Weights { .. } | Error::NoKernels { .. } => {
            value(error)
        }
        Error::DeviceMemory { .. } | Error::Pinned { .. } => PyMemoryError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}
