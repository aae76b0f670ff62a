//! The safetensors format: the length of a header in 8 bytes, the header as JSON, then the tensors'
//! bytes.
//!
//! The header is parsed here. The format's own crate adds offsets from the file unchecked, so that
//! sizes near 2^64 wrap around, drops tensors that share a name, and does not name the faulty
//! tensor. Tests compare the two.

use std::{collections::BTreeMap, fmt, ops::Range, sync::Arc};

use buddy_core::Dtype;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

use crate::{Array, Error, array::refuse_duplicates, source::Source};

mod write;

pub(crate) use write::Header;

/// The longest header that the format allows.
const MOST_HEADER_BYTES: u64 = 100_000_000;

/// The format's names of types.
const NAMES: [(&str, Dtype); 17] = [
    ("BOOL", Dtype::Bool),
    ("I8", Dtype::I8),
    ("U8", Dtype::U8),
    ("I16", Dtype::I16),
    ("U16", Dtype::U16),
    ("I32", Dtype::I32),
    ("U32", Dtype::U32),
    ("I64", Dtype::I64),
    ("U64", Dtype::U64),
    ("F8_E4M3", Dtype::F8E4M3),
    ("F8_E5M2", Dtype::F8E5M2),
    ("F8_E8M0", Dtype::F8E8M0),
    ("F16", Dtype::F16),
    ("BF16", Dtype::Bf16),
    ("F32", Dtype::F32),
    ("F64", Dtype::F64),
    ("C64", Dtype::C64),
];

/// Types whose elements are smaller than a byte, and their bits.
const PACKED: [(&str, u64); 4] = [("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6), ("I4", 4)];

/// A tensor's entry in the header.
#[derive(Deserialize)]
struct Info {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The tensors of a header in file order, duplicates included.
struct Tensors(Vec<(String, Info)>);

impl<'de> Deserialize<'de> for Tensors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Tensors;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tensors, A::Error> {
                let mut tensors = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    // The format's map of strings, which is not used.
                    if name == "__metadata__" {
                        map.next_value::<Option<BTreeMap<String, String>>>()?;
                    } else {
                        tensors.push((name, map.next_value()?));
                    }
                }
                Ok(Tensors(tensors))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

/// Reads every tensor, in the order of their bytes.
pub(crate) fn read(source: &Arc<Source>) -> Result<Vec<Array>, Error> {
    let file = source.bytes();
    let (header, data) = split(file)?;
    let Tensors(mut tensors) =
        serde_json::from_slice(header).map_err(|error| bad(format!("its header is wrong: {error}")))?;
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    let mut end = 0;
    let mut arrays = Vec::with_capacity(tensors.len());
    for (name, info) in tensors {
        arrays.push(read_tensor(&name, &info, source, data.len(), end).map_err(|error| error.at(&name))?);
        end = info.data_offsets.1;
    }
    if end != data.len() as u64 {
        return Err(bad(format!("its tensors end at {end}, but it has {} bytes of data", data.len())));
    }
    refuse_duplicates(&arrays)?;
    Ok(arrays)
}

/// Reads a tensor; the preceding one ends at `expected` in the `data` bytes after the header.
fn read_tensor(
    name: &str,
    info: &Info,
    source: &Arc<Source>,
    data: usize,
    expected: u64,
) -> Result<Array, Error> {
    let (start, end) = checked_offsets(info, expected, data as u64)?;
    let base = source.bytes().len() - data;
    let range = base + start as usize..base + end as usize;
    if let Some(&(_, bits)) = PACKED.iter().find(|(name, _)| *name == info.dtype) {
        return packed(name, info, bits, source, range);
    }
    Array::new(name.to_owned(), parse_dtype(&info.dtype)?, info.shape.clone(), source, range)
}

/// Reads a tensor of elements smaller than a byte as plain bytes.
fn packed(
    name: &str,
    info: &Info,
    bits: u64,
    source: &Arc<Source>,
    range: Range<usize>,
) -> Result<Array, Error> {
    let needed = info.shape.iter().try_fold(bits, |all, &n| all.checked_mul(n));
    let bytes = range.len() as u64;
    if needed != bytes.checked_mul(8) {
        return Err(bad(format!(
            "{} elements of shape {:?} do not fill its {bytes} bytes",
            info.dtype, info.shape
        )));
    }
    Array::new(name.to_owned(), Dtype::U8, vec![bytes], source, range)
}

/// Splits a file into the header and the bytes after it.
fn split(file: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let (length, rest) = file.split_first_chunk().ok_or_else(|| bad("it is shorter than 8 bytes"))?;
    let length = u64::from_le_bytes(*length);
    if length > MOST_HEADER_BYTES {
        return Err(bad(format!("its header claims {length} bytes; the most is {MOST_HEADER_BYTES}")));
    }
    rest.split_at_checked(length as usize)
        .ok_or_else(|| bad(format!("its header claims {length} bytes, but only {} follow", rest.len())))
}

fn bad(why: impl Into<String>) -> Error {
    Error::format(".safetensors", why)
}

fn parse_dtype(name: &str) -> Result<Dtype, Error> {
    let known = NAMES.into_iter().find(|&(known, _)| known == name);
    known.map(|(_, dtype)| dtype).ok_or_else(|| Error::Dtype(name.to_owned()))
}

/// Checks that a tensor begins where the preceding one ends and ends within the data: no overlap,
/// no gap.
fn checked_offsets(info: &Info, expected: u64, data: u64) -> Result<(u64, u64), Error> {
    let (start, end) = info.data_offsets;
    let why = match () {
        () if start > end => format!("its offsets {start}..{end} run backwards"),
        () if end > data => format!("its offsets {start}..{end} go past the {data} bytes of data"),
        () if start < expected => {
            format!("its offsets {start}..{end} overlap the tensor that ends at {expected}")
        }
        () if start > expected => format!("its offsets {start}..{end} leave a hole after {expected}"),
        () => return Ok((start, end)),
    };
    Err(bad(why))
}
