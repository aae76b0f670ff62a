//! An array in a file, and how a file becomes arrays.

use std::{ops::Range, path::Path, sync::Arc};

use buddy_core::Dtype;

use crate::{Error, gguf, hdf5, magic, netcdf, npy, npz, safetensors, source::Source, torch};

/// One array: what its header says, and a view of its bytes.
#[derive(Debug, Clone)]
pub struct Array {
    /// The tensor's name, or the file's where a file holds one array.
    pub name: String,
    /// Type of its elements; `u8` for a raw file of which nothing is known.
    pub dtype: Dtype,
    /// Its dimensions, as the header has them. Row or column order makes no difference to the
    /// bytes.
    pub shape: Vec<u64>,
    source: Arc<Source>,
    range: Range<usize>,
}

impl Array {
    /// An array over `range` of `source`, which must be exactly as long as shape and type say.
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

    /// An array of bytes that are in memory already.
    ///
    /// # Errors
    /// [`Error::Length`] if the bytes are no whole number of elements.
    pub fn from_memory(name: &str, dtype: Dtype, bytes: Vec<u8>) -> Result<Self, Error> {
        raw(name, &Arc::new(Source::Memory(bytes)), dtype)
    }

    /// Its bytes, straight from the mapping.
    pub fn bytes(&self) -> &[u8] {
        &self.source.bytes()[self.range.clone()]
    }

    /// Says that these bytes will not be needed soon, so that the system can have the memory behind
    /// them. They stay readable.
    ///
    /// # Panics
    /// If the range goes past the end of the array.
    pub fn release(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.range.len(), "released past the end");
        self.source.release(self.range.start + range.start..self.range.start + range.end);
    }
}

/// Bytes of an array of this shape.
fn checked_bytes(shape: &[u64], dtype: Dtype) -> Result<u64, Error> {
    let bytes = shape.iter().try_fold(dtype.bytes() as u64, |bytes, &n| bytes.checked_mul(n));
    bytes.ok_or_else(|| Error::Absurd { shape: shape.to_vec(), dtype })
}

/// How arrays lie in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The bytes of one array and nothing else.
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
    /// The models of llama.cpp.
    Gguf,
    /// A zip that `torch.save` wrote.
    Torch,
}

impl Format {
    /// The format of a file: what its extension names, else what its first bytes say, else raw.
    ///
    /// # Errors
    /// [`Error::Container`] if the file is known, but is none that can be read.
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

/// Maps a file and reads where its arrays lie. Extension or first bytes say how ([`Format::of`]).
/// `dtype` is the element type of a raw file, and of `.npy` data that NumPy itself has no name for
/// (it stores bf16 as `V2`); other files say theirs.
///
/// # Errors
/// Any file that is not a whole and honest file of its format gives an [`Error`] that begins with
/// its path.
pub fn open(path: &Path, dtype: Option<Dtype>) -> Result<Vec<Array>, Error> {
    open_as(path, dtype, |bytes| Format::of(path, bytes))
}

/// Maps a file as the bytes of one array, whatever it looks like.
///
/// # Errors
/// If the file cannot be mapped, or is no whole number of elements.
pub fn open_raw(path: &Path, dtype: Option<Dtype>) -> Result<Vec<Array>, Error> {
    open_as(path, dtype, |_| Ok(Format::Raw))
}

fn open_as(
    path: &Path,
    dtype: Option<Dtype>,
    format: impl FnOnce(&[u8]) -> Result<Format, Error>,
) -> Result<Vec<Array>, Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let read = |source: Source| read(format(source.bytes())?, &name, &Arc::new(source), dtype);
    Source::open(path).and_then(read).map_err(|error| error.at(path.display()))
}

/// Reads a file that is in memory already; `name` is that of a single array.
///
/// # Errors
/// As [`open`], without the path.
pub fn read_memory(
    format: Format,
    name: &str,
    bytes: Vec<u8>,
    dtype: Option<Dtype>,
) -> Result<Vec<Array>, Error> {
    read(format, name, &Arc::new(Source::Memory(bytes)), dtype)
}

fn read(format: Format, name: &str, source: &Arc<Source>, dtype: Option<Dtype>) -> Result<Vec<Array>, Error> {
    let arrays = match format {
        Format::Raw => vec![raw(name, source, dtype.unwrap_or(Dtype::U8))?],
        Format::Npy => npy::read(name, source, 0..source.bytes().len(), dtype)?,
        Format::Npz => npz::read(source, dtype)?,
        Format::Safetensors => safetensors::read(source)?,
        Format::Hdf5 => hdf5::read(source)?,
        Format::NetCdf => netcdf::read(source)?,
        Format::Gguf => gguf::read(source)?,
        Format::Torch => torch::read(source, dtype)?,
    };
    if arrays.is_empty() { Err(Error::NoArrays) } else { Ok(arrays) }
}

fn raw(name: &str, source: &Arc<Source>, dtype: Dtype) -> Result<Array, Error> {
    let bytes = source.bytes().len();
    if !bytes.is_multiple_of(dtype.bytes()) {
        return Err(Error::Length { bytes: bytes as u64, dtype });
    }
    let shape = vec![(bytes / dtype.bytes()) as u64];
    Array::new(name.to_owned(), dtype, shape, source, 0..bytes)
}
