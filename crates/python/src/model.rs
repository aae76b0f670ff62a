//! Packing of models in safetensors files.

use std::path::PathBuf;

use buddy_model::{Checked, Job, Report};
use pyo3::prelude::*;

use crate::{error, threads::detach};

/// Plain bytes, packed bytes, files processed, files already present.
type Summary = (u64, u64, usize, usize);

fn summary(report: Result<Report, buddy_model::Error>) -> PyResult<Summary> {
    let report = report.map_err(error::value)?;
    Ok((report.sizes.plain, report.sizes.packed, report.files, report.resumed))
}

/// Files that match their checksums, their bytes, packed files without checksums.
type Verified = (usize, u64, usize);

fn verified(checked: Result<Checked, buddy_model::Error>) -> PyResult<Verified> {
    let checked = checked.map_err(error::value)?;
    Ok((checked.files, checked.bytes, checked.unchecked))
}

/// Packs a safetensors file or a folder of them.
#[pyfunction]
pub(crate) fn pack_model(py: Python<'_>, from: PathBuf, to: PathBuf, verify: bool) -> PyResult<Summary> {
    detach(py, || summary(buddy_model::pack(&Job { from: &from, to: &to, verify }, &|_| ())))
}

/// Restores the original files.
#[pyfunction]
pub(crate) fn unpack_model(py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<Summary> {
    detach(py, || summary(buddy_model::unpack(&Job { from: &from, to: &to, verify: false }, &|_| ())))
}

/// Checks a packed file or folder against its checksums.
#[pyfunction]
pub(crate) fn verify_model(py: Python<'_>, path: PathBuf) -> PyResult<Verified> {
    detach(py, || verified(buddy_model::verify(&path, &|_| ())))
}

/// Checks the packed files that a loader reads, and whether their folder is complete.
#[pyfunction]
pub(crate) fn verify_shards(py: Python<'_>, files: Vec<PathBuf>) -> PyResult<Verified> {
    detach(py, || verified(buddy_model::verify_shards(&files, &|_| ())))
}
