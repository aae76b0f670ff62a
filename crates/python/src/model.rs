//! Packing of models in safetensors files.

use std::path::PathBuf;

use buddy_model::{Job, Report};
use pyo3::prelude::*;

use crate::error;

/// Plain bytes, packed bytes, files processed, files already present.
type Summary = (u64, u64, usize, usize);

fn summary(report: Result<Report, buddy_model::Error>) -> PyResult<Summary> {
    let report = report.map_err(error::value)?;
    Ok((report.sizes.plain, report.sizes.packed, report.files, report.resumed))
}

/// Packs a safetensors file or a folder of them.
#[pyfunction]
pub(crate) fn pack_model(py: Python<'_>, from: PathBuf, to: PathBuf, verify: bool) -> PyResult<Summary> {
    py.detach(|| summary(buddy_model::pack(&Job { from: &from, to: &to, verify }, &|_| ())))
}

/// Restores the original files.
#[pyfunction]
pub(crate) fn unpack_model(py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<Summary> {
    py.detach(|| summary(buddy_model::unpack(&Job { from: &from, to: &to, verify: false }, &|_| ())))
}
