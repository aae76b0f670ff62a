//! Looking at memory: files, arrays, tensors where they lie, and the command itself.

use std::{ffi::OsString, path::PathBuf};

use buddy_codec::{Codec, CodecKind};
use buddy_core::{Analysis, Dtype, ENTRY_BYTES, Histogram, Record};
use buddy_cuda::Surveyed;
use buddy_snapshot::{Array, array_files, open};
use pyo3::prelude::*;

use crate::{
    failure,
    place::{Place, Span, bytes, gpu, on_gpu},
};

/// Runs the command `buddy` with these arguments, its name first; returns the exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| buddy_cli::run(arguments))
}

/// Analyses the arrays of files; returns the record as JSON.
#[pyfunction]
pub(crate) fn analyze_files(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    dtype: Option<&str>,
    threshold: f64,
) -> PyResult<String> {
    let dtype = dtype.map(str::parse::<Dtype>).transpose().map_err(failure::value)?;
    py.detach(|| {
        let mut arrays = Vec::new();
        for path in &paths {
            for file in array_files(path).map_err(failure::value)? {
                let name = file.display().to_string();
                let found = open(&file, dtype).map_err(failure::value)?;
                arrays.extend(found.into_iter().map(|array| (name.clone(), array)));
            }
        }
        Ok(analyze(&arrays, threshold))
    })
}

/// Analyses arrays in memory, given as name, type, shape and span; returns the record as JSON.
#[pyfunction]
pub(crate) fn analyze_memory(
    py: Python<'_>,
    arrays: Vec<(String, String, Vec<u64>, Span)>,
    threshold: f64,
) -> PyResult<String> {
    let array = |(name, dtype, shape, span): (String, String, Vec<u64>, Span)| {
        let dtype: Dtype = dtype.parse().map_err(failure::value)?;
        let mut array = Array::from_memory(&name, dtype, bytes(span)?.to_vec()).map_err(failure::value)?;
        array.shape = shape;
        Ok(("memory".to_owned(), array))
    };
    let arrays = arrays.into_iter().map(array).collect::<PyResult<Vec<_>>>()?;
    Ok(py.detach(|| analyze(&arrays, threshold)))
}

fn analyze(arrays: &[(String, Array)], threshold: f64) -> String {
    let mut record = Record::new(buddy_profile::analyze(arrays, threshold, &|_| ()));
    record.spec = serde_json::json!({ "threshold": threshold });
    record.to_json()
}

/// The page of an analysis.
#[pyfunction]
pub(crate) fn analysis_html(record: &str) -> PyResult<String> {
    Ok(buddy_report::analysis_page(&Record::<Analysis>::from_json(record).map_err(failure::value)?))
}

/// The tables of an analysis as text, as wide as the terminal is.
#[pyfunction]
pub(crate) fn analysis_text(record: &str) -> PyResult<String> {
    let record = Record::<Analysis>::from_json(record).map_err(failure::value)?;
    let view = buddy_report::View { width: buddy_cli::width(), ..Default::default() };
    Ok(buddy_report::analysis_text(&record.data, &view))
}

/// A span, its codec, and the address where each entry's size class goes, a byte for each, or 0.
type Asked = (Span, String, u64);

/// Of each span with its codec: how many entries have which size (six counts in the order zero, b8, s1, s2, s3, raw), and the bytes
/// at the best of the paper's eight sizes. On a GPU this waits for the stream once; only there classes are written.
#[pyfunction]
pub(crate) fn survey(py: Python<'_>, place: Place, spans: Vec<Asked>) -> PyResult<Vec<([u64; 6], u64)>> {
    let codecs = spans.iter().map(|(_, codec, _)| codec.parse::<Codec>().map_err(failure::value));
    let codecs = codecs.collect::<PyResult<Vec<Codec>>>()?;
    let found: Vec<Histogram> = match gpu(place)? {
        Some((gpu, stream)) => {
            let surveyed = spans.iter().zip(codecs).map(|(&(span, _, classes), codec)| Surveyed {
                span: on_gpu(span),
                codec,
                classes: (classes != 0).then(|| on_gpu((classes, span.1.div_ceil(ENTRY_BYTES as u64)))),
            });
            let surveyed: Vec<Surveyed<'_>> = surveyed.collect();
            py.detach(|| gpu.survey(&stream, &surveyed)).map_err(failure::gpu)?
        }
        None if spans.iter().any(|&(.., classes)| classes != 0) => {
            return Err(failure::value("size classes by entry are written on a GPU only"));
        }
        None => {
            let memory = spans.iter().map(|(span, ..)| bytes(*span)).collect::<PyResult<Vec<&[u8]>>>()?;
            let look = |(memory, codec): (&&[u8], &Codec)| buddy_profile::histogram(memory, codec);
            py.detach(|| memory.iter().zip(&codecs).map(look).collect())
        }
    };
    Ok(found.iter().map(|found| (found.classes, found.optimistic_bytes)).collect())
}

/// The codec of a name, such as `bf16`, trained on a span: its name with what it learned. On a GPU this waits for the stream if the
/// codec learns.
#[pyfunction]
pub(crate) fn train(place: Place, codec: &str, span: Span) -> PyResult<String> {
    let kind: CodecKind = codec.parse().map_err(failure::value)?;
    let trained = match gpu(place)? {
        Some((gpu, stream)) => gpu.train(&stream, kind, on_gpu(span)).map_err(failure::gpu)?,
        None => kind.train(&buddy_profile::sample(&bytes(span)?)),
    };
    Ok(trained.to_string())
}
