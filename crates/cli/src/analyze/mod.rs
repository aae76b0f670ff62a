//! `buddy analyze`: compressibility of files, array by array.

mod compare;

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use buddy_core::{Dtype, parse_share};
use buddy_profile::{DEFAULT_THRESHOLD, analyze};
use buddy_record::Record;
use buddy_report::{analysis_csv, analysis_page, analysis_text};
use buddy_snapshot::{
    Array, Contents, Format, Skipped, array_files_and_left, open_contents, open_raw, read_contents,
};
use clap::Args;

use crate::{
    display::DisplayOptions,
    output::{self, is_stdout},
    progress::Bar,
};

/// Measure how well the arrays in files compress, and choose a target for each
///
/// Reads raw dumps, .npy, .npz, .safetensors, .gguf, PyTorch .pt and .bin, HDF5 and NetCDF files,
/// Zarr stores, and folders of files. In a folder without any of these, dumps such as .f64 and .dat
/// are read. Files are memory-mapped, so they may be larger than memory (compressed HDF5 and Zarr
/// are decoded into a temporary file). Datasets that cannot be read are listed below the table.
///
/// For each array the table shows the codec that does best on a sample, of those that memory on a
/// GPU can use, and the chosen target: the largest at which the share of 128-byte entries that
/// overflow to buddy memory stays within the threshold. The ratio, overflow and memory saved with
/// that target follow, then the ratio of bpc, the paper's codec. The last columns are the
/// optimistic ratio (the paper's eight sizes, no targets) and the share of entries in each size
/// class (zero, b8, s1, s2, s3, raw: 0, 8, 32, 64, 96 and 128 bytes). A narrow terminal shows fewer
/// columns.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Analyze {
    /// Files to read, a model's folder or its shard index, or - for stdin; a file of unknown format
    /// is read as raw bytes
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Element type of raw files, and of .npy data that NumPy stores as void (bf16); without it, that
    /// of an extension such as .f64
    #[arg(long)]
    dtype: Option<Dtype>,

    /// Read every file as raw bytes, whatever its format
    #[arg(long)]
    raw: bool,

    /// Share of an array's entries that may overflow to buddy memory, 0 to 1 or 0% to 100%
    #[arg(long, value_name = "SHARE", default_value_t = DEFAULT_THRESHOLD, value_parser = parse_threshold)]
    threshold: f64,

    /// Also compress each array with lz4 and zstd (level 3), in independent blocks of 64 KiB, each
    /// after the best of byte shuffles of 1, 2, 4 and 8 bytes
    #[arg(long)]
    compare: bool,

    /// Write the record as JSON to PATH; - writes it to stdout instead of the table
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,

    /// Write one line per array to PATH as comma-separated values; - is stdout
    #[arg(long, value_name = "PATH")]
    csv: Option<PathBuf>,

    /// Write a self-contained HTML page with tables and heat maps to PATH
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,

    #[command(flatten)]
    display: DisplayOptions,
}

const EXAMPLES: &str = "\
Examples:
  A trained model, with an HTML page:
    buddy analyze model.safetensors --html model.html

  All shards of a model, and the fields of a simulation:
    buddy analyze Llama-3.1-8B/
    buddy analyze output.h5

  A raw dump of doubles, with no more than 5% of entries overflowing:
    buddy analyze field.bin --dtype f64 --threshold 5%

  Beside lz4 and zstd:
    buddy analyze fields/ --compare

  The ten layers that save the most, for a spreadsheet; and data from a pipe:
    buddy analyze Llama-3.1-8B/ --filter '*mlp*' --sort saved --top 10 --csv mlp.csv
    zcat field.f32.gz | buddy analyze - --dtype f32 --json - | jq .data.auto.ratio";

fn parse_threshold(text: &str) -> Result<f64, String> {
    let threshold = parse_share(text).ok_or_else(|| "not a number or a percentage".to_owned())?;
    if (0.0..=1.0).contains(&threshold) { Ok(threshold) } else { Err("must be from 0 to 1".to_owned()) }
}

impl Analyze {
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<()> {
        let outputs =
            [("--json", self.json.as_ref()), ("--csv", self.csv.as_ref()), ("--html", self.html.as_ref())];
        output::check(&outputs, &self.paths)?;
        let (mut arrays, mut skipped) = (Vec::new(), Vec::new());
        for path in &self.paths {
            self.open(path, &mut arrays, &mut skipped)?;
        }
        if let Some(filter_error) =
            self.display.filter_error(arrays.iter().map(|(_, array)| array.name.as_str()))
        {
            bail!(filter_error);
        }
        let view = self.display.view();
        arrays.retain(|(_, array)| view.shows(&array.name));
        let bytes = arrays.iter().map(|(_, array)| array.bytes().len() as u64).sum();
        let bar = Bar::new(bytes);
        let mut record = Record::new(analyze(&arrays, self.threshold, &|read| bar.add(read)));
        record.data.skipped = skipped;
        if self.compare {
            for (found, (_, array)) in record.data.arrays.iter_mut().zip(&arrays) {
                found.peers = compare::peers(array);
            }
        }
        bar.finish();
        record.spec = serde_json::json!({ "threshold": self.threshold, "dtype": self.dtype });
        if let Some(path) = &self.json {
            output::write(path, &record.to_json())?;
        }
        if let Some(path) = &self.html {
            output::write(path, &analysis_page(&record))?;
        }
        if let Some(path) = &self.csv {
            output::write(path, &analysis_csv(&record.data, &view))?;
        }
        match outputs.iter().any(|(_, path)| path.is_some_and(|path| is_stdout(path))) {
            true => Ok(()),
            false => output::print(&analysis_text(&record.data, &view)),
        }
    }

    fn read_stdin(&self) -> Result<Contents> {
        let (name, mut bytes) = ("stdin", Vec::new());
        io::stdin().read_to_end(&mut bytes)?;
        let format = if self.raw { Format::Raw } else { Format::of(Path::new(name), &bytes)? };
        Ok(read_contents(format, name, bytes, self.dtype)?)
    }

    /// Opens the arrays of `path`, each with the name of its file, and lists what is skipped.
    fn open(&self, path: &Path, arrays: &mut Vec<(String, Array)>, skipped: &mut Vec<Skipped>) -> Result<()> {
        let mut add = |name: &str, contents: Contents| {
            arrays.extend(contents.arrays.into_iter().map(|array| (name.to_owned(), array)));
            skipped.extend(contents.skipped);
        };
        if is_stdout(path) {
            add("stdin", self.read_stdin().context("stdin")?);
            return Ok(());
        }
        let (files, left) = array_files_and_left(path)?;
        for file in files {
            let contents = match self.raw {
                true => Contents { arrays: open_raw(&file, self.dtype)?, skipped: Vec::new() },
                false => open_contents(&file, self.dtype)?,
            };
            add(&file.display().to_string(), contents);
        }
        skipped.extend(left);
        Ok(())
    }
}
