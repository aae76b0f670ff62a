//! GGUF, the format of llama.cpp: key and value pairs, a table of tensors, then their bytes,
//! aligned.
//!
//! Quantised tensors are blocks of mixed fields; they are read as plain bytes.

use std::sync::Arc;

use buddy_core::Dtype;

use crate::{
    Array, Error,
    array::{refuse_duplicates, refuse_overlaps},
    source::Source,
};

/// Earlier versions, before 2023, had shorter numbers.
const VERSIONS: [u32; 2] = [2, 3];

/// More dimensions than ggml allows.
const MOST_DIMENSIONS: u32 = 8;

/// Depth of nested arrays among the values; known files have at most 1.
const MOST_DEPTH: u32 = 4;

/// Blocks of ggml's types: number, elements, bytes. From ggml-common.h of llama.cpp.
const BLOCKS: [(u32, u64, u64); 24] = [
    (2, 32, 18),
    (3, 32, 20),
    (6, 32, 22),
    (7, 32, 24),
    (8, 32, 34),
    (9, 32, 36),
    (10, 256, 84),
    (11, 256, 110),
    (12, 256, 144),
    (13, 256, 176),
    (14, 256, 210),
    (15, 256, 292),
    (16, 256, 66),
    (17, 256, 74),
    (18, 256, 98),
    (19, 256, 50),
    (20, 32, 18),
    (21, 256, 110),
    (22, 256, 82),
    (23, 256, 136),
    (29, 256, 56),
    (34, 256, 54),
    (35, 256, 66),
    (39, 32, 17),
];

/// A tensor's row of the table.
struct Info {
    name: String,
    shape: Vec<u64>,
    kind: u32,
    offset: u64,
}

/// Reads every tensor.
pub(crate) fn read(source: &Arc<Source>) -> Result<Vec<Array>, Error> {
    let file = source.bytes();
    let mut at = Reader { rest: file };
    at.take(4)?;
    let version = at.u32()?;
    if !VERSIONS.contains(&version) {
        return Err(bad(format!("version {version} is none of 2 and 3")));
    }
    let (tensors, pairs) = (at.u64()?, at.u64()?);
    let mut alignment = 32;
    for _ in 0..pairs {
        let key = at.text()?.to_owned();
        let kind = at.u32()?;
        let value = at.value(kind, 0)?;
        if key == "general.alignment" {
            alignment = value
                .filter(|n| n.is_power_of_two())
                .ok_or_else(|| bad("its alignment is no power of two"))?;
        }
    }
    let infos = (0..tensors).map(|_| at.info()).collect::<Result<Vec<_>, _>>()?;
    let header = (file.len() - at.rest.len()) as u64;
    let data = header.next_multiple_of(alignment);
    let array = |info: &Info| array(info, source, data).map_err(|error| error.at(&info.name));
    let arrays = infos.iter().map(array).collect::<Result<Vec<_>, _>>()?;
    refuse_duplicates(&arrays)?;
    refuse_overlaps("GGUF", arrays.iter().map(|array| (array.range(), array.name.clone())).collect())?;
    Ok(arrays)
}

/// Returns a tensor; offsets count from `data`.
fn array(info: &Info, source: &Arc<Source>, data: u64) -> Result<Array, Error> {
    let elements = info
        .shape
        .iter()
        .try_fold(1u64, |all, &n| all.checked_mul(n))
        .ok_or_else(|| bad("its shape is absurd"))?;
    let (dtype, shape) = match plain(info.kind) {
        Some(dtype) => (dtype, info.shape.iter().rev().copied().collect()),
        None => (Dtype::U8, vec![block_bytes(info.kind, elements)?]),
    };
    let bytes = shape.iter().try_fold(dtype.bytes() as u64, |all: u64, &n| all.checked_mul(n));
    let start = data.checked_add(info.offset);
    let end = start.zip(bytes).and_then(|(start, bytes)| start.checked_add(bytes));
    match (start, end) {
        (Some(start), Some(end)) if end <= source.bytes().len() as u64 => {
            Array::new(info.name.clone(), dtype, shape, source, start as usize..end as usize)
        }
        _ => Err(bad("its bytes go past the end of the file")),
    }
}

fn plain(kind: u32) -> Option<Dtype> {
    Some(match kind {
        0 => Dtype::F32,
        1 => Dtype::F16,
        24 => Dtype::I8,
        25 => Dtype::I16,
        26 => Dtype::I32,
        27 => Dtype::I64,
        28 => Dtype::F64,
        30 => Dtype::Bf16,
        _ => return None,
    })
}

fn block_bytes(kind: u32, elements: u64) -> Result<u64, Error> {
    let &(_, block, bytes) = BLOCKS
        .iter()
        .find(|&&(known, ..)| known == kind)
        .ok_or_else(|| bad(format!("type {kind} is not known")))?;
    if !elements.is_multiple_of(block) {
        return Err(bad(format!("{elements} elements are not whole blocks of {block}")));
    }
    (elements / block).checked_mul(bytes).ok_or_else(|| bad("its shape is absurd"))
}

fn bad(why: impl Into<String>) -> Error {
    Error::format("GGUF", why)
}

/// The rest of the header.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: u64) -> Result<&'a [u8], Error> {
        let split = usize::try_from(bytes).ok().and_then(|bytes| self.rest.split_at_checked(bytes));
        let (taken, rest) = split.ok_or_else(|| bad("it ends within its header"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().unwrap_or_default()))
    }

    fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().unwrap_or_default()))
    }

    fn text(&mut self) -> Result<&'a str, Error> {
        let length = self.u64()?;
        std::str::from_utf8(self.take(length)?).map_err(|_| bad("a name is no text"))
    }

    /// Skips a value; returns it if it is an integer of 32 or 64 bits.
    fn value(&mut self, kind: u32, depth: u32) -> Result<Option<u64>, Error> {
        match kind {
            0 | 1 | 7 => self.take(1).map(|_| None),
            2 | 3 => self.take(2).map(|_| None),
            4 => self.u32().map(|n| Some(u64::from(n))),
            5 | 6 => self.take(4).map(|_| None),
            8 => self.text().map(|_| None),
            9 => self.array(depth).map(|()| None),
            10 => self.u64().map(Some),
            11 | 12 => self.take(8).map(|_| None),
            _ => Err(bad(format!("a value has the unknown type {kind}"))),
        }
    }

    fn array(&mut self, depth: u32) -> Result<(), Error> {
        if depth == MOST_DEPTH {
            return Err(bad("its values are arrays in arrays in arrays"));
        }
        let (kind, length) = (self.u32()?, self.u64()?);
        for _ in 0..length {
            self.value(kind, depth + 1)?;
        }
        Ok(())
    }

    fn info(&mut self) -> Result<Info, Error> {
        let name = self.text()?.to_owned();
        let dimensions = self.u32()?;
        if dimensions > MOST_DIMENSIONS {
            return Err(bad(format!("{dimensions} dimensions are more than {MOST_DIMENSIONS}")).at(name));
        }
        let shape = (0..dimensions).map(|_| self.u64()).collect::<Result<_, _>>()?;
        Ok(Info { name, shape, kind: self.u32()?, offset: self.u64()? })
    }
}
