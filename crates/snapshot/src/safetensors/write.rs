//! Writes the format: the header, then every tensor's bytes.

use std::{
    cmp::Reverse,
    io::{self, Write},
};

use buddy_core::Dtype;
use serde_json::{Map, json};

use super::NAMES;
use crate::Error;

/// A tensor to be written: name, type and bytes.
pub(crate) type Tensor<'a> = (&'a str, Dtype, &'a [u8]);

/// The header of a file, and the order of its tensors.
pub(crate) struct Header {
    json: Vec<u8>,
    order: Vec<usize>,
}

impl Header {
    /// Plans a file. Wide types come first, so that every tensor starts at a multiple of its
    /// element size.
    pub(crate) fn of(tensors: &[Tensor<'_>]) -> Result<Self, Error> {
        let mut order: Vec<usize> = (0..tensors.len()).collect();
        order.sort_by_key(|&i| Reverse(tensors[i].1.bytes()));
        let mut map = Map::new();
        let mut start = 0;
        for &i in &order {
            let (name, dtype, bytes) = tensors[i];
            let known = NAMES.iter().find(|&&(_, known)| known == dtype);
            let &(dtype_name, _) = known.ok_or_else(|| Error::Dtype(dtype.name().to_owned()).at(name))?;
            let end = start + bytes.len();
            let shape = [bytes.len() / dtype.bytes()];
            let info = json!({ "dtype": dtype_name, "shape": shape, "data_offsets": [start, end] });
            if name == "__metadata__" || map.insert(name.to_owned(), info).is_some() {
                return Err(Error::Duplicate(name.to_owned()));
            }
            start = end;
        }
        let mut json = serde_json::to_vec(&map).map_err(|error| super::bad(error.to_string()))?;
        json.resize(json.len().next_multiple_of(8), b' ');
        Ok(Self { json, order })
    }

    /// Writes the header, then the tensors in its order.
    pub(crate) fn write(&self, out: &mut impl Write, tensors: &[Tensor<'_>]) -> io::Result<()> {
        out.write_all(&(self.json.len() as u64).to_le_bytes())?;
        out.write_all(&self.json)?;
        self.order.iter().try_for_each(|&i| out.write_all(tensors[i].2))
    }
}
