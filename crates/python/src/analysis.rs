//! Analysis of files, arrays and tensors in place, and the command line.

use std::{ffi::OsString, path::PathBuf};

use buddy_codec::{Codec, CodecKind};
use buddy_core::{Dtype, ENTRY_BYTES, Histogram};
use buddy_cuda::Surveyed;
use buddy_record::{Analysis, Record};
use buddy_snapshot::{Array, Skipped, array_files_and_left, open_contents};
use pyo3::prelude::*;

use crate::{
    device::{Device, Range, bytes, gpu, on_gpu},
    error,
    threads::detach,
};

/// Runs the command `buddy` (`arguments[0]` is its name) and returns its exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| buddy_cli::run(arguments))
}

/// Analyses the arrays of files and returns the record as JSON.
#[pyfunction]
pub(crate) fn analyze_files(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    dtype: Option<&str>,
    threshold: f64,
) -> PyResult<String> {
    let dtype = dtype.map(str::parse::<Dtype>).transpose().map_err(error::value)?;
    detach(py, || {
        let (mut arrays, mut skipped) = (Vec::new(), Vec::new());
        for path in &paths {
            let (files, left) = array_files_and_left(path).map_err(error::value)?;
            for file in files {
                let name = file.display().to_string();
                let found = open_contents(&file, dtype).map_err(error::value)?;
                arrays.extend(found.arrays.into_iter().map(|array| (name.clone(), array)));
                skipped.extend(found.skipped);
            }
            skipped.extend(left);
        }
        Ok(analyze(&arrays, skipped, threshold))
    })
}

/// Analyses arrays in memory (name, type, shape, span) and returns the record as JSON.
#[pyfunction]
pub(crate) fn analyze_memory(
    py: Python<'_>,
    arrays: Vec<(String, String, Vec<u64>, Range)>,
    threshold: f64,
) -> PyResult<String> {
    let array = |(name, dtype, shape, span): (String, String, Vec<u64>, Range)| {
        let dtype: Dtype = dtype.parse().map_err(error::value)?;
        let mut array = Array::from_memory(&name, dtype, bytes(span).to_vec()).map_err(error::value)?;
        array.shape = shape;
        Ok(("memory".to_owned(), array))
    };
    let arrays = arrays.into_iter().map(array).collect::<PyResult<Vec<_>>>()?;
    Ok(detach(py, || analyze(&arrays, Vec::new(), threshold)))
}

fn analyze(arrays: &[(String, Array)], skipped: Vec<Skipped>, threshold: f64) -> String {
    let mut record = Record::new(buddy_profile::analyze(arrays, threshold, &|_| ()));
    record.data.skipped = skipped;
    record.spec = serde_json::json!({ "threshold": threshold });
    record.to_json()
}

/// Renders the page of an analysis record.
#[pyfunction]
pub(crate) fn analysis_html(record: &str) -> PyResult<String> {
    Ok(buddy_report::analysis_page(&Record::<Analysis>::from_json(record).map_err(error::value)?))
}

/// Renders the tables of an analysis record as text at the terminal's width.
#[pyfunction]
pub(crate) fn analysis_text(record: &str) -> PyResult<String> {
    let record = Record::<Analysis>::from_json(record).map_err(error::value)?;
    let view = buddy_report::View { width: buddy_cli::width(), ..Default::default() };
    Ok(buddy_report::analysis_text(&record.data, &view))
}

/// Memory, codec, and where to write each entry's size class (one byte each) or `None`.
type Surveyable = (Range, String, Range);

/// Counts entries by size class (zero, b8, s1, s2, s3, raw) for each span and codec, and the bytes
/// at the best of the paper's eight sizes. On a GPU this synchronises the stream once. Size classes
/// per entry are written on a GPU only.
#[pyfunction]
pub(crate) fn survey(
    py: Python<'_>,
    device: Device,
    spans: Vec<Surveyable>,
) -> PyResult<Vec<([u64; 6], u64)>> {
    let codecs = spans.iter().map(|(_, codec, _)| codec.parse::<Codec>().map_err(error::value));
    let codecs = codecs.collect::<PyResult<Vec<Codec>>>()?;
    let entries = |range: &Range| range.bytes.div_ceil(ENTRY_BYTES as u64);
    if spans.iter().any(|(span, _, classes)| classes.bytes > 0 && classes.bytes < entries(span)) {
        return Err(error::value("size classes need one byte per entry"));
    }
    let found: Vec<Histogram> = match gpu(device)? {
        Some((gpu, stream)) => {
            let surveyed = spans.iter().zip(codecs).map(|(&(span, _, classes), codec)| Surveyed {
                span: on_gpu(span),
                codec,
                classes: (classes.bytes > 0).then(|| on_gpu(classes)),
            });
            let surveyed: Vec<Surveyed<'_>> = surveyed.collect();
            py.detach(|| gpu.survey(&stream, &surveyed)).map_err(error::gpu)?
        }
        None if spans.iter().any(|&(.., classes)| classes.bytes > 0) => {
            return Err(error::value("size classes per entry are written on a GPU only"));
        }
        None => {
            let memory: Vec<&[u8]> = spans.iter().map(|&(span, ..)| bytes(span)).collect();
            let count = |(memory, codec): (&&[u8], &Codec)| buddy_profile::histogram(memory, codec);
            detach(py, || memory.iter().zip(&codecs).map(count).collect())
        }
    };
    Ok(found.iter().map(|found| (found.classes, found.optimistic_bytes)).collect())
}

/// Trains a codec such as `bf16` on a span and returns it with its parameters. On a GPU this
/// synchronises the stream if the codec has parameters.
#[pyfunction]
pub(crate) fn train(device: Device, codec: &str, span: Range) -> PyResult<String> {
    let kind: CodecKind = codec.parse().map_err(error::value)?;
    let trained = match gpu(device)? {
        Some((gpu, stream)) => gpu.train(&stream, kind, on_gpu(span)).map_err(error::gpu)?,
        None => kind.train(&buddy_profile::sample(&bytes(span))),
    };
    trained.word().map_err(error::value)
}
