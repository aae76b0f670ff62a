//! `buddy analyze`: how compressible files are, array by array.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use buddy_core::{Dtype, Record};
use buddy_profile::{DEFAULT_THRESHOLD, analyze};
use buddy_report::{analysis_page, analysis_text};
use buddy_snapshot::{Array, array_files, open, open_raw};
use clap::Args;

use crate::{output, progress::Bar};

/// Show how compressible files are, and which targets that allows
///
/// Reads raw dumps, .npy, .npz, .safetensors, .gguf, PyTorch's .pt and .bin, HDF5 and NetCDF-4, and folders of them. Files are
/// mapped, so they may be larger than memory (HDF5 is decoded into a temporary file).
/// For every array: the share of its 128-byte entries in each size class (zero, b8, s1, s2, s3, raw: 0, 8, 32,
/// 64, 96 and 128 bytes), the optimistic ratio of the paper's eight sizes, the largest target that leaves no more
/// than the threshold's share of entries to buddy memory, and the ratio and overflow that follow. Once with the
/// paper's codec, bpc, and once with `auto`, the codec that does best on a sample of the array.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Analyze {
    /// Files to read, a model's folder or its index of shards; a file that no format claims is raw bytes
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Element type of raw files, and of .npy data that NumPy stores as void (bf16)
    #[arg(long)]
    dtype: Option<Dtype>,

    /// Take every file as plain bytes, whatever it looks like
    #[arg(long)]
    raw: bool,

    /// Share of an array's entries that may overflow to buddy memory, 0 to 1
    #[arg(long, default_value_t = DEFAULT_THRESHOLD, value_parser = parse_threshold)]
    threshold: f64,

    /// Write the record of the analysis here
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,

    /// Write a page with tables and heat maps here; it is one file and needs no network
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  A trained model, with a page to look at:
    buddy analyze model.safetensors --html model.html

  All shards of a model, and the fields of a simulation:
    buddy analyze Llama-3.1-8B/
    buddy analyze output.h5

  A raw dump of doubles, with no more than 5% of entries overflowing:
    buddy analyze field.bin --dtype f64 --threshold 0.05";

fn parse_threshold(text: &str) -> Result<f64, String> {
    let threshold: f64 = text.parse().map_err(|_| "this is not a number".to_owned())?;
    if (0.0..=1.0).contains(&threshold) { Ok(threshold) } else { Err("it must be from 0 to 1".to_owned()) }
}

impl Analyze {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        output::check(&[("--json", self.json.as_ref()), ("--html", self.html.as_ref())], &self.paths)?;
        let mut arrays: Vec<(String, Array)> = Vec::new();
        for path in &self.paths {
            arrays.extend(self.open(path)?);
        }
        let bytes = arrays.iter().map(|(_, array)| array.bytes().len() as u64).sum();
        let bar = Bar::new(bytes);
        let mut record = Record::new(analyze(&arrays, self.threshold, &|read| bar.add(read)));
        bar.finish();
        record.spec = serde_json::json!({ "threshold": self.threshold, "dtype": self.dtype });
        if let Some(path) = &self.json {
            output::write(path, &record.to_json())?;
        }
        if let Some(path) = &self.html {
            output::write(path, &analysis_page(&record))?;
        }
        io::stdout().write_all(analysis_text(&record.data).as_bytes()).context("cannot write to stdout")
    }

    /// The arrays of a path, each with the name of its file.
    fn open(&self, path: &Path) -> Result<Vec<(String, Array)>> {
        let read = if self.raw { open_raw } else { open };
        let mut arrays = Vec::new();
        for file in array_files(path)? {
            let name = file.display().to_string();
            arrays.extend(read(&file, self.dtype)?.into_iter().map(|array| (name.clone(), array)));
        }
        Ok(arrays)
    }
}
