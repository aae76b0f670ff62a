//! Arrays, and the files that hold them.

use std::{ops::Range, path::Path, sync::Arc};

use buddy_core::Dtype;
use buddy_record::Skipped;

use crate::{Error, gguf, hdf5, magic, netcdf, npy, npz, safetensors, source::Source, torch, zarr};

/// An array: its header, and a view of its bytes.
#[derive(Debug, Clone)]
pub struct Array {
    /// The tensor's name, or the file's if it holds one array.
    pub name: String,
    /// Element type; `u8` for a raw file of unknown type.
    pub dtype: Dtype,
    /// Dimensions as in the header, in row or column order.
    pub shape: Vec<u64>,
    source: Arc<Source>,
    range: Range<usize>,
}

impl Array {
    /// Creates an array over `range` of `source`, whose length must match shape and type.
    pub(crate) fn new(
        name: String,
        dtype: Dtype,
        shape: Vec<u64>,
        source: &Arc<Source>,
        range: Range<usize>,
    ) -> Result<Self, Error> {
        let found = range.len() as u64;
        let needed = checked_bytes(&shape, dtype)?;
        if needed != found || source.bytes().get(range.clone()).is_none() {
            return Err(Error::Shape { shape, dtype, needed, found });
        }
        Ok(Self { name, dtype, shape, source: Arc::clone(source), range })
    }

    /// Creates an array of bytes in memory.
    ///
    /// # Errors
    /// [`Error::Length`] if the bytes are not a whole number of elements.
    pub fn from_memory(name: &str, dtype: Dtype, bytes: Vec<u8>) -> Result<Self, Error> {
        raw(name, &Arc::new(Source::Memory(bytes)), dtype)
    }

    /// Returns the bytes, a view of the mapping.
    pub fn bytes(&self) -> &[u8] {
        &self.source.bytes()[self.range.clone()]
    }

    /// Returns where its bytes lie in its file.
    pub(crate) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Releases the memory behind bytes that will not be needed soon. They stay readable.
    ///
    /// # Panics
    /// If the range goes past the end of the array.
    pub fn release(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.range.len(), "released past the end");
        self.source.release(self.range.start + range.start..self.range.start + range.end);
    }
}

/// The arrays of a file, and a list of what was skipped.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    /// Arrays that were read.
    pub arrays: Vec<Array>,
    /// Datasets and fields that were skipped.
    pub skipped: Vec<Skipped>,
}

/// Refuses two arrays of one name.
pub(crate) fn refuse_duplicates(arrays: &[Array]) -> Result<(), Error> {
    let mut names: Vec<&str> = arrays.iter().map(|array| array.name.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    twice.map_or(Ok(()), |pair| Err(Error::Duplicate(pair[0].to_owned())))
}

/// Refuses arrays that share bytes of a file: memory would hold them apart.
pub(crate) fn refuse_overlaps(
    format: &'static str,
    mut ranges: Vec<(Range<usize>, String)>,
) -> Result<(), Error> {
    ranges.retain(|(range, _)| !range.is_empty());
    ranges.sort_by_key(|(range, _)| (range.start, range.end));
    match ranges.windows(2).find(|pair| pair[1].0.start < pair[0].0.end) {
        Some([(_, first), (_, second)]) => {
            Err(Error::Overlap { format, first: first.clone(), second: second.clone() })
        }
        _ => Ok(()),
    }
}

/// Returns the bytes of an array of this shape.
fn checked_bytes(shape: &[u64], dtype: Dtype) -> Result<u64, Error> {
    let bytes = shape.iter().try_fold(dtype.bytes() as u64, |bytes, &n| bytes.checked_mul(n));
    bytes.ok_or_else(|| Error::Absurd { shape: shape.to_vec(), dtype })
}

/// File formats of arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The bytes of one array alone.
    Raw,
    /// NumPy's array file, versions 1 to 3.
    Npy,
    /// A zip of NumPy array files.
    Npz,
    /// A JSON header and the bytes of many tensors.
    Safetensors,
    /// HDF5, and so NetCDF-4.
    Hdf5,
    /// NetCDF before version 4: CDF-1, CDF-2 and CDF-5.
    NetCdf,
    /// The model format of llama.cpp.
    Gguf,
    /// A zip written by `torch.save`.
    Torch,
}

impl Format {
    /// Returns the name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw bytes",
            Self::Npy => ".npy",
            Self::Npz => ".npz",
            Self::Safetensors => "safetensors",
            Self::Hdf5 => "HDF5",
            Self::NetCdf => "NetCDF",
            Self::Gguf => "GGUF",
            Self::Torch => "PyTorch",
        }
    }

    /// Detects the format of a file as [`Format::of`] does.
    ///
    /// # Errors
    /// If the file cannot be mapped, or has a known format that is not readable.
    pub fn of_file(path: &Path) -> Result<Self, Error> {
        Self::of(path, Source::open(path)?.bytes())
    }

    /// Detects the format of a file by its extension, else by its first bytes, else raw.
    ///
    /// # Errors
    /// [`Error::Container`] if the file has a known format that is not readable.
    pub fn of(path: &Path, bytes: &[u8]) -> Result<Self, Error> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match path.extension().unwrap_or_default().to_string_lossy().to_lowercase().as_str() {
            "npy" => Ok(Self::Npy),
            "npz" => Ok(Self::Npz),
            "safetensors" => Ok(Self::Safetensors),
            _ => magic::detect(&name, bytes),
        }
    }
}

/// Maps a file and reads its arrays. Extension or first bytes give the format ([`Format::of`]).
/// `dtype` is the element type of a raw file, and of `.npy` data of a type that NumPy has no name
/// for (it stores bf16 as `V2`); other files state theirs. Without it, the extension of a raw file may
/// name its element type, as in `velocity.f64`.
///
/// # Errors
/// An [`Error`] that begins with the path if the file is not complete and consistent.
pub fn open(path: &Path, dtype: Option<Dtype>) -> Result<Vec<Array>, Error> {
    open_contents(path, dtype).map(|contents| contents.arrays)
}

/// Maps a file as [`open`] does, or decodes a Zarr store, and says what of it was skipped, with the
/// file's name.
///
/// # Errors
/// As [`open`].
pub fn open_contents(path: &Path, dtype: Option<Dtype>) -> Result<Contents, Error> {
    let Contents { arrays, skipped } = match path.is_dir() && zarr::is_store(path) {
        true => zarr::read(path).and_then(Contents::or_nothing).map_err(|error| error.at(path.display()))?,
        false => open_as(path, dtype, |bytes| Format::of(path, bytes))?,
    };
    let file = path.display().to_string();
    Ok(Contents { arrays, skipped: skipped.into_iter().map(|skipped| skipped.of(&file)).collect() })
}

/// Maps a file as the bytes of one array, whatever its content.
///
/// # Errors
/// If the file cannot be mapped, or is not a whole number of elements.
pub fn open_raw(path: &Path, dtype: Option<Dtype>) -> Result<Vec<Array>, Error> {
    open_as(path, dtype, |_| Ok(Format::Raw)).map(|contents| contents.arrays)
}

fn open_as(
    path: &Path,
    dtype: Option<Dtype>,
    format: impl FnOnce(&[u8]) -> Result<Format, Error>,
) -> Result<Contents, Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let dtype = dtype.or_else(|| path.extension()?.to_str()?.to_lowercase().parse().ok());
    let read = |source: Source| read(format(source.bytes())?, &name, &Arc::new(source), dtype);
    Source::open(path).and_then(read).map_err(|error| error.at(path.display()))
}

/// Reads a file in memory; `name` is that of a single array.
///
/// # Errors
/// As for [`open`], without the path.
pub fn read_memory(
    format: Format,
    name: &str,
    bytes: Vec<u8>,
    dtype: Option<Dtype>,
) -> Result<Vec<Array>, Error> {
    read_contents(format, name, bytes, dtype).map(|contents| contents.arrays)
}

/// Reads a file that is in memory already, and says what of it was skipped.
///
/// # Errors
/// As [`read_memory`].
pub fn read_contents(
    format: Format,
    name: &str,
    bytes: Vec<u8>,
    dtype: Option<Dtype>,
) -> Result<Contents, Error> {
    read(format, name, &Arc::new(Source::Memory(bytes)), dtype)
}

fn read(format: Format, name: &str, source: &Arc<Source>, dtype: Option<Dtype>) -> Result<Contents, Error> {
    let arrays = match format {
        Format::Raw => vec![raw(name, source, dtype.unwrap_or(Dtype::U8))?],
        Format::Npy => npy::read(name, source, 0..source.bytes().len(), dtype)?,
        Format::Npz => npz::read(source, dtype)?,
        Format::Safetensors => safetensors::read(source)?,
        Format::Hdf5 => return hdf5::read(source).and_then(Contents::or_nothing),
        Format::NetCdf => netcdf::read(source)?,
        Format::Gguf => gguf::read(source)?,
        Format::Torch => return torch::read(source, dtype).and_then(Contents::or_nothing),
    };
    Contents { arrays, skipped: Vec::new() }.or_nothing()
}

impl Contents {
    /// Refuses a file without arrays, and says what it holds instead.
    fn or_nothing(self) -> Result<Self, Error> {
        match (&self.arrays[..], &self.skipped[..]) {
            ([], []) => Err(Error::NoArrays),
            ([], [first, others @ ..]) => Err(Error::NothingRead {
                name: first.name.clone(),
                why: first.why.clone(),
                others: others.len(),
            }),
            _ => Ok(self),
        }
    }
}

fn raw(name: &str, source: &Arc<Source>, dtype: Dtype) -> Result<Array, Error> {
    let bytes = source.bytes().len();
    if !bytes.is_multiple_of(dtype.bytes()) {
        return Err(Error::Length { bytes: bytes as u64, dtype });
    }
    let shape = vec![(bytes / dtype.bytes()) as u64];
    Array::new(name.to_owned(), dtype, shape, source, 0..bytes)
}
