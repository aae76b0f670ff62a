//! Models in safetensors files.

use std::path::PathBuf;

use buddy_model::{Job, Report};
use pyo3::prelude::*;

use crate::failure;

/// Plain bytes, packed bytes, files that were worked on, files that were there already.
type Done = (u64, u64, usize, usize);

fn done(report: Result<Report, buddy_model::Error>) -> PyResult<Done> {
    let report = report.map_err(failure::value)?;
    Ok((report.sizes.plain, report.sizes.packed, report.files, report.resumed))
}

/// Packs a safetensors file, or a folder of them.
#[pyfunction]
pub(crate) fn pack_model(py: Python<'_>, from: PathBuf, to: PathBuf, verify: bool) -> PyResult<Done> {
    py.detach(|| done(buddy_model::pack(&Job { from: &from, to: &to, verify }, &|_| ())))
}

/// Gives the original files back.
#[pyfunction]
pub(crate) fn unpack_model(py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<Done> {
    py.detach(|| done(buddy_model::unpack(&Job { from: &from, to: &to, verify: false }, &|_| ())))
}
