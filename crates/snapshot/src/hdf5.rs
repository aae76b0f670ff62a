//! HDF5, and with it NetCDF-4: every numeric dataset, in all groups.
//!
//! The crate `hdf5-reader` finds and decodes the chunks. Their values are written to an unnamed
//! temporary file, in row order as in a program's memory, which is then mapped, like inflated
//! members of `.npz`.

use std::{collections::HashSet, sync::Arc};

use buddy_core::Dtype;
use hdf5_reader::{Dataset, Datatype, Hdf5File, OpenOptions, group::Group};

use crate::{Array, Error, scratch::Scratch, source::Source};

/// The most nested groups.
const MOST_DEPTH: usize = 32;

/// Reads every numeric dataset; texts, references and compounds are skipped.
pub(crate) fn read(source: &Arc<Source>) -> Result<Vec<Array>, Error> {
    let mut scratch = Scratch::new(source.bytes().len() as u64);
    let options = OpenOptions::default().with_max_read_bytes(scratch.limit() as usize);
    let file = Hdf5File::from_owner(Bytes(Arc::clone(source)), options).map_err(bad)?;
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    walk(&file.root_group().map_err(bad)?, "", 0, &mut seen, &mut |name, dataset| {
        if let Some(dtype) = numbers(dataset.dtype()) {
            let bytes = dataset.raw_byte_len().map_err(bad)? as u64;
            scratch.reserve(bytes)?;
            let values = dataset.read_native_bytes().map_err(bad)?;
            let (range, _) = scratch.add(&mut &values[..], values.len() as u64)?;
            found.push((name, dtype, dataset.shape().to_vec(), range));
        }
        Ok(())
    })?;
    let values = scratch.finish()?;
    let array = |(name, dtype, shape, range)| Array::new(name, dtype, shape, &values, range);
    found.into_iter().map(array).collect()
}

/// Gives the library the bytes without copying them.
struct Bytes(Arc<Source>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Calls `each` with every dataset below `group` and its path. A group with several links, or a
/// cycle, is visited once.
fn walk(
    group: &Group,
    path: &str,
    depth: usize,
    seen: &mut HashSet<u64>,
    each: &mut dyn FnMut(String, &Dataset) -> Result<(), Error>,
) -> Result<(), Error> {
    if !seen.insert(group.address()) {
        return Ok(());
    }
    if depth == MOST_DEPTH {
        return Err(bad(format!("groups lie more than {MOST_DEPTH} deep")));
    }
    let (groups, datasets) = group.members().map_err(bad)?;
    let below = |name: &str| {
        let name = name.rsplit('/').next().unwrap_or(name);
        if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
    };
    for dataset in &datasets {
        let name = below(dataset.name());
        each(name.clone(), dataset).map_err(|error| error.at(name))?;
    }
    groups.iter().try_for_each(|group| walk(group, &below(group.name()), depth + 1, seen, each))
}

/// Returns the element type of a dataset of plain numbers.
fn numbers(datatype: &Datatype) -> Option<Dtype> {
    Some(match datatype {
        Datatype::FixedPoint { size, signed, .. } => match (size, signed) {
            (1, true) => Dtype::I8,
            (1, false) => Dtype::U8,
            (2, true) => Dtype::I16,
            (2, false) => Dtype::U16,
            (4, true) => Dtype::I32,
            (4, false) => Dtype::U32,
            (8, true) => Dtype::I64,
            (8, false) => Dtype::U64,
            _ => return None,
        },
        Datatype::FloatingPoint { size: 2, .. } => Dtype::F16,
        Datatype::FloatingPoint { size: 4, .. } => Dtype::F32,
        Datatype::FloatingPoint { size: 8, .. } => Dtype::F64,
        _ => return None,
    })
}

fn bad(error: impl std::fmt::Display) -> Error {
    Error::format("HDF5", error.to_string())
}
