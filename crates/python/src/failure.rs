//! Errors of the libraries as Python's.

use std::fmt::Display;

use buddy_cuda::Error;
use pyo3::{
    PyErr,
    exceptions::{PyMemoryError, PyRuntimeError, PyValueError},
};

/// An argument that cannot be.
pub(crate) fn value(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// What the GPU's runtime says.
pub(crate) fn gpu(error: Error) -> PyErr {
    match error {
        Error::Shape { .. } | Error::Range { .. } | Error::Weights { .. } | Error::NoKernels { .. } => {
            value(error)
        }
        Error::DeviceMemory { .. } | Error::Pinned { .. } => PyMemoryError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}
