//! The metadata of an array: `.zarray` in version 2, `zarr.json` in version 3.

use std::{fs, path::Path};

use buddy_core::Dtype;
use serde_json::Value;

use super::{MOST_CHUNK, MOST_META, bad, codecs::Codec};
use crate::{Error, npy::numpy_dtype};

/// The kind of a folder in a store.
pub(super) enum Found {
    Array(Box<Meta>),
    /// An array that is not read, and why.
    Skipped(String),
    Group,
}

/// An array whose type, grid and codecs are read.
pub(super) struct Meta {
    pub(super) dtype: Dtype,
    /// True if its numbers are big-endian.
    pub(super) swapped: bool,
    pub(super) shape: Vec<u64>,
    pub(super) chunk: Vec<u64>,
    /// Dimensions of a chunk as it is stored, slowest first.
    pub(super) order: Vec<usize>,
    /// Bytes of an element that no chunk has; `None` if the value is not read.
    pub(super) fill: Option<Vec<u8>>,
    /// True if the keys of chunks begin with `c`.
    pub(super) prefix: bool,
    /// Between the indices in a chunk's key.
    pub(super) separator: char,
    /// Decoders in the order in which they apply.
    pub(super) codecs: Vec<Codec>,
    bytes: u64,
    chunk_bytes: usize,
}

impl Meta {
    /// Returns the bytes of the array.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of a decoded chunk.
    pub(super) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Returns the number of chunks in each dimension.
    pub(super) fn counts(&self) -> impl Iterator<Item = u64> {
        self.shape.iter().zip(&self.chunk).map(|(&length, &chunk)| length.div_ceil(chunk))
    }

    /// Returns the number of chunks of the whole array.
    pub(super) fn chunk_count(&self) -> u64 {
        self.counts().fold(1, u64::saturating_mul)
    }
}

/// Why an array is not read: it is damaged, or of a kind that is skipped.
enum Not {
    Valid(Error),
    Read(String),
}

impl From<Error> for Not {
    fn from(error: Error) -> Self {
        Self::Valid(error)
    }
}

fn unread(why: impl Into<String>) -> Not {
    Not::Read(why.into())
}

/// Reads the metadata of a folder.
pub(super) fn of_folder(dir: &Path) -> Result<Found, Error> {
    let parsed = if let Some(text) = text(&dir.join("zarr.json"))? {
        third(&json(&text)?)
    } else if let Some(text) = text(&dir.join(".zarray"))? {
        second(&json(&text)?).map(Some)
    } else {
        return Ok(Found::Group);
    };
    match parsed {
        Ok(Some(meta)) => Ok(Found::Array(Box::new(meta))),
        Ok(None) => Ok(Found::Group),
        Err(Not::Read(why)) => Ok(Found::Skipped(why)),
        Err(Not::Valid(error)) => Err(error),
    }
}

/// Returns the text of a file of metadata; `None` if there is none.
fn text(path: &Path) -> Result<Option<String>, Error> {
    match fs::metadata(path) {
        Ok(about) if about.is_file() && about.len() <= MOST_META => Ok(Some(buddy_core::read_text(path)?)),
        Ok(_) => Err(bad(format!("{} is no file of metadata", path.display()))),
        Err(_) => Ok(None),
    }
}

fn json(text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|error| bad(error.to_string()))
}

fn string<'a>(value: &'a Value, key: &str) -> Result<&'a str, Error> {
    value[key].as_str().ok_or_else(|| bad(format!("{key:?} is no string")))
}

fn lengths(value: &Value, key: &str) -> Result<Vec<u64>, Error> {
    let all = value.as_array().map(|all| all.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>());
    all.flatten().ok_or_else(|| bad(format!("{key:?} is no list of lengths")))
}

/// Reads version 2.
fn second(value: &Value) -> Result<Meta, Not> {
    if value["zarr_format"] != 2 {
        return Err(bad(format!("zarr_format is {}, not 2", value["zarr_format"])).into());
    }
    let Some(name) = value["dtype"].as_str() else {
        return Err(unread("its elements are records"));
    };
    let (dtype, swapped) = numpy(name)?;
    if value["filters"].as_array().is_some_and(|filters| !filters.is_empty()) {
        let name = value["filters"][0]["id"].as_str().unwrap_or("unknown");
        return Err(unread(format!("its chunks have the filter {name}")));
    }
    let codecs = match &value["compressor"] {
        Value::Null => Vec::new(),
        compressor => vec![codec(string(compressor, "id")?)?],
    };
    let shape = lengths(&value["shape"], "shape")?;
    let chunk = lengths(&value["chunks"], "chunks")?;
    let rows = 0..shape.len();
    let order = match value["order"].as_str() {
        Some("C") | None => rows.collect(),
        Some("F") => rows.rev().collect(),
        Some(other) => return Err(bad(format!("order is {other:?}")).into()),
    };
    let separator = separator(&value["dimension_separator"], '.')?;
    let fill = fill(dtype, &value["fill_value"]);
    Ok(Meta { swapped, order, fill, prefix: false, separator, codecs, ..sized(dtype, shape, chunk)? })
}

/// Reads version 3; `None` for a group.
fn third(value: &Value) -> Result<Option<Meta>, Not> {
    if value["zarr_format"] != 3 {
        return Err(bad(format!("zarr_format is {}, not 3", value["zarr_format"])).into());
    }
    match string(value, "node_type")? {
        "group" => return Ok(None),
        "array" => {}
        other => return Err(bad(format!("node_type is {other:?}")).into()),
    }
    let Some(dtype) = value["data_type"].as_str() else {
        return Err(unread("its elements have a type of an extension"));
    };
    let dtype = numbers(dtype).ok_or_else(|| unread(format!("its elements are {dtype}")))?;
    let (grid, keys) = (&value["chunk_grid"], &value["chunk_key_encoding"]);
    if string(grid, "name")? != "regular" {
        return Err(unread(format!("its chunks form a grid {:?}", string(grid, "name")?)));
    }
    if value["storage_transformers"].as_array().is_some_and(|all| !all.is_empty()) {
        return Err(unread("its chunks have a storage transformer"));
    }
    let (prefix, usual) = match string(keys, "name")? {
        "default" => (true, '/'),
        "v2" => (false, '.'),
        other => return Err(unread(format!("the keys of its chunks are {other:?}"))),
    };
    let shape = lengths(&value["shape"], "shape")?;
    let chunk = lengths(&grid["configuration"]["chunk_shape"], "chunk_shape")?;
    let chain = value["codecs"].as_array().ok_or_else(|| bad("\"codecs\" is no list"))?;
    let mut order: Vec<usize> = (0..shape.len()).collect();
    let (mut swapped, mut are_bytes, mut codecs) = (false, false, Vec::new());
    for one in chain {
        let settings = &one["configuration"];
        match string(one, "name")? {
            "transpose" if !are_bytes => {
                let by = lengths(&settings["order"], "order")?;
                let mut sorted = by.clone();
                sorted.sort_unstable();
                if !sorted.into_iter().eq(0..order.len() as u64) {
                    return Err(bad("a transposition is no order of the dimensions").into());
                }
                order = by.iter().map(|&at| order[at as usize]).collect();
            }
            "bytes" if !are_bytes => {
                are_bytes = true;
                swapped = settings["endian"] == "big" && dtype.scalar_bytes() > 1;
            }
            "sharding_indexed" => return Err(unread("its chunks lie in shards")),
            name if are_bytes => codecs.insert(0, codec(name)?),
            name => return Err(unread(format!("its chunks have the codec {name}"))),
        }
    }
    if !are_bytes {
        return Err(bad("no codec makes bytes of the elements").into());
    }
    let separator = separator(&keys["configuration"]["separator"], usual)?;
    let fill = fill(dtype, &value["fill_value"]);
    Ok(Some(Meta { swapped, order, fill, prefix, separator, codecs, ..sized(dtype, shape, chunk)? }))
}

fn codec(name: &str) -> Result<Codec, Not> {
    Codec::named(name).ok_or_else(|| unread(format!("its chunks are packed with {name}")))
}

fn separator(value: &Value, usual: char) -> Result<char, Error> {
    match value.as_str() {
        None if value.is_null() => Ok(usual),
        Some(".") => Ok('.'),
        Some("/") => Ok('/'),
        _ => Err(bad(format!("the separator of keys is {value}"))),
    }
}

/// Returns metadata with checked sizes, and the rest as it usually is.
fn sized(dtype: Dtype, shape: Vec<u64>, chunk: Vec<u64>) -> Result<Meta, Not> {
    if shape.len() != chunk.len() || chunk.contains(&0) {
        return Err(bad(format!("chunks of {chunk:?} in an array of {shape:?}")).into());
    }
    let bytes = |lengths: &[u64]| {
        lengths.iter().try_fold(dtype.bytes() as u64, |bytes, &length| bytes.checked_mul(length))
    };
    let Some(all) = bytes(&shape) else {
        return Err(Error::Absurd { shape, dtype }.into());
    };
    let of_chunk = bytes(&chunk).and_then(|bytes| usize::try_from(bytes).ok());
    let Some(chunk_bytes) = of_chunk.filter(|&bytes| bytes <= MOST_CHUNK) else {
        return Err(unread(format!("its chunks have more than {} MiB", MOST_CHUNK >> 20)));
    };
    let order = (0..shape.len()).collect();
    let (fill, codecs) = (None, Vec::new());
    let bytes = all;
    Ok(Meta {
        dtype,
        swapped: false,
        shape,
        chunk,
        order,
        fill,
        prefix: false,
        separator: '.',
        codecs,
        bytes,
        chunk_bytes,
    })
}

/// Returns the type of NumPy's name, and whether it is big-endian.
fn numpy(name: &str) -> Result<(Dtype, bool), Not> {
    let (end, kind) = name.split_at_checked(1).ok_or_else(|| unread("its elements have no type"))?;
    let dtype = numpy_dtype(kind).ok_or_else(|| unread(format!("its elements are {name}")))?;
    match end {
        "<" | "|" => Ok((dtype, false)),
        ">" => Ok((dtype, dtype.scalar_bytes() > 1)),
        _ => Err(unread(format!("its elements are {name}"))),
    }
}

/// Returns the type of a name in version 3.
fn numbers(name: &str) -> Option<Dtype> {
    Some(match name {
        "bool" => Dtype::Bool,
        "int8" => Dtype::I8,
        "uint8" => Dtype::U8,
        "int16" => Dtype::I16,
        "uint16" => Dtype::U16,
        "int32" => Dtype::I32,
        "uint32" => Dtype::U32,
        "int64" => Dtype::I64,
        "uint64" => Dtype::U64,
        "float16" => Dtype::F16,
        "bfloat16" => Dtype::Bf16,
        "float32" => Dtype::F32,
        "float64" => Dtype::F64,
        "complex64" => Dtype::C64,
        "complex128" => Dtype::C128,
        _ => return None,
    })
}

/// Returns the bytes of an element with the fill value. Null, for which version 2 states none, is
/// zero, as Zarr itself reads it.
fn fill(dtype: Dtype, value: &Value) -> Option<Vec<u8>> {
    let scalar = |value: &Value| scalar(dtype, value);
    match value {
        Value::Array(parts) if dtype.bytes() == 2 * dtype.scalar_bytes() && parts.len() == 2 => {
            Some([scalar(&parts[0])?, scalar(&parts[1])?].concat())
        }
        value if dtype.bytes() == dtype.scalar_bytes() => scalar(value),
        value => scalar(value).map(|real| [real, vec![0; dtype.scalar_bytes()]].concat()),
    }
}

/// Returns the bytes of a number.
fn scalar(dtype: Dtype, value: &Value) -> Option<Vec<u8>> {
    let size = dtype.scalar_bytes();
    if value.is_null() || value.as_f64() == Some(0.0) || *value == false {
        return Some(vec![0; size]);
    }
    let hex = value.as_str().and_then(|text| text.strip_prefix("0x"));
    if let Some(bits) = hex {
        let bits = u64::from_str_radix(bits, 16).ok().filter(|_| bits.len() == 2 * size)?;
        return Some(bits.to_le_bytes()[..size].to_vec());
    }
    let float = match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        Some(_) => None,
        None => value.as_f64(),
    };
    match dtype {
        Dtype::F32 | Dtype::C64 => Some((float? as f32).to_le_bytes().to_vec()),
        Dtype::F64 | Dtype::C128 => Some(float?.to_le_bytes().to_vec()),
        Dtype::Bool => (*value == true).then(|| vec![1]),
        Dtype::Bf16 | Dtype::F16 | Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::F8E8M0 => None,
        _ => {
            let bits = value.as_i64().map(|number| number as u64).or_else(|| value.as_u64())?;
            let bytes = bits.to_le_bytes();
            // Bytes that are left out repeat the sign.
            let sign = if value.as_i64().is_some_and(|number| number < 0) { 0xff } else { 0 };
            bytes[size..].iter().all(|&byte| byte == sign).then(|| bytes[..size].to_vec())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fill_values_have_the_bytes_of_their_type() {
        let of = |dtype, value: Value| fill(dtype, &value);
        assert_eq!(of(Dtype::I16, json!(-2)), Some(vec![0xfe, 0xff]));
        assert_eq!(of(Dtype::U64, json!(u64::MAX)), Some(vec![0xff; 8]));
        assert_eq!(of(Dtype::U8, json!(300)), None);
        assert_eq!(of(Dtype::F32, json!(1.5)), Some(1.5f32.to_le_bytes().to_vec()));
        assert_eq!(of(Dtype::F64, json!("-Infinity")), Some(f64::NEG_INFINITY.to_le_bytes().to_vec()));
        assert_eq!(of(Dtype::F32, json!("0x7fc00001")), Some(vec![1, 0, 0xc0, 0x7f]));
        assert_eq!(of(Dtype::F16, json!("0x3c00")), Some(vec![0, 0x3c]));
        assert_eq!((of(Dtype::F16, json!(0)), of(Dtype::F16, json!(1))), (Some(vec![0; 2]), None));
        assert_eq!(of(Dtype::Bool, json!(true)), Some(vec![1]));
        let one = [1f32.to_le_bytes(), (-1f32).to_le_bytes()].concat();
        assert_eq!(of(Dtype::C64, json!([1.0, -1.0])), Some(one));
        assert_eq!((of(Dtype::C64, json!(null)), of(Dtype::I32, json!("x"))), (Some(vec![0; 8]), None));
    }
}
