//! PyTorch's `.pt`, `.pth` and `.bin`: a zip with a pickle that names tensors, and a member for
//! each storage.
//!
//! Each storage is one array, whatever tensors view it, since storages are what occupies memory. It
//! has the name of the first tensor over it, and that tensor's shape if the tensor covers it.

use std::{collections::HashMap, io::Cursor, ops::Range, sync::Arc};

use buddy_core::Dtype;
use zip::{CompressionMethod, ZipArchive};

use crate::{
    Array, Contents, Error, Skipped,
    array::refuse_overlaps,
    npz,
    pickle::{self, Id, Pickle, Value},
    source::Source,
};

/// The most bytes of a pickle; a model with 100 000 tensors has 20 MB.
const MOST_PICKLE_BYTES: u64 = 1 << 28;

/// The most bytes of a tensor's name, which grows with the nesting of hostile objects.
const MOST_NAME_BYTES: usize = 4096;

/// Reads every storage; a zip without a pickle is taken for an `.npz`.
pub(crate) fn read(source: &Arc<Source>, dtype: Option<Dtype>) -> Result<Contents, Error> {
    let mut zip = ZipArchive::new(Cursor::new(source.bytes())).map_err(bad)?;
    let pickle =
        zip.file_names().flatten().find(|name| name.ends_with("/data.pkl")).map(std::borrow::Cow::into_owned);
    let Some(name) = pickle else {
        return npz::read(source, dtype).map(|arrays| Contents { arrays, skipped: Vec::new() });
    };
    let folder = name.trim_end_matches("data.pkl").to_owned();
    let order = stored(&mut zip, source, &format!("{folder}byteorder"));
    if order.is_ok_and(|bytes| bytes == b"big") {
        return Err(bad("its numbers are big-endian; save it on a little-endian machine"));
    }
    let pickle = pickle::read(stored(&mut zip, source, &name)?)?;
    let array = |tensor: Tensor<'_>| {
        let member = format!("{folder}data/{}", tensor.storage);
        let (range, sum) = place(&mut zip, &member).map_err(|error| error.at(&tensor.name))?;
        let (needed, found) = (tensor.needed, range.len());
        if needed.is_none_or(|needed| needed > found as u64) {
            let needed = needed.map_or_else(|| "more than 2^64".to_owned(), |needed| needed.to_string());
            return Err(bad(format!("its storage has {found} bytes of the {needed} that tensors need"))
                .at(&tensor.name));
        }
        let elements = (range.len() / tensor.dtype.bytes()) as u64;
        let whole = tensor.shape.iter().try_fold(1u64, |all, &n| all.checked_mul(n)) == Some(elements);
        let shape = if whole { tensor.shape } else { vec![elements] };
        let array = Array::new(tensor.name, tensor.dtype, shape, source, range)?;
        Ok((array, sum))
    };
    let (tensors, skipped) = Tensors::find(&pickle, source.bytes().len())?;
    let found = tensors.into_iter().map(array).collect::<Result<Vec<_>, Error>>()?;
    let ranges = found.iter().map(|(array, _)| (array.range(), array.name.clone())).collect();
    refuse_overlaps("PyTorch", ranges)?;
    for (array, sum) in &found {
        compare(array.bytes(), *sum).map_err(|error| error.at(&array.name))?;
        array.release(0..array.bytes().len());
    }
    Ok(Contents { arrays: found.into_iter().map(|(array, _)| array).collect(), skipped })
}

/// Compares bytes with the archive's checksum. PyTorch writes 0 if checksums are disabled.
fn compare(bytes: &[u8], stated: u32) -> Result<(), Error> {
    let found = if stated == 0 { 0 } else { buddy_core::checksum(bytes) };
    if found == stated { Ok(()) } else { Err(Error::Damaged { stated, found }) }
}

fn bad(error: impl std::fmt::Display) -> Error {
    Error::format("PyTorch", error.to_string())
}

type Zip<'a> = ZipArchive<Cursor<&'a [u8]>>;

/// Returns a member's range in the file, and its checksum; PyTorch compresses none.
fn place(zip: &mut Zip<'_>, name: &str) -> Result<(Range<usize>, u32), Error> {
    let member = zip.by_name(name).map_err(|_| bad(format!("{name} is missing")))?;
    if member.compression() != CompressionMethod::Stored {
        return Err(bad(format!("{name} is compressed, which PyTorch never does")));
    }
    let start = member.data_start().ok_or_else(|| bad("a member has no data"))?;
    let end = start.checked_add(member.size()).ok_or_else(|| bad("a member ends past 2^64"))?;
    Ok((start as usize..end as usize, member.crc32()))
}

fn stored<'a>(zip: &mut Zip<'_>, source: &'a Source, name: &str) -> Result<&'a [u8], Error> {
    let (range, sum) = place(zip, name)?;
    if range.len() as u64 > MOST_PICKLE_BYTES {
        return Err(bad(format!("{name} has {} bytes; the most is {MOST_PICKLE_BYTES}", range.len())));
    }
    let bytes = source.bytes().get(range);
    let bytes = bytes.ok_or_else(|| bad(format!("{name} goes past the end of the file")))?;
    compare(bytes, sum).map_err(|error| error.at(name))?;
    Ok(bytes)
}

/// A tensor of the pickle, the first over its storage.
struct Tensor<'a> {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    storage: &'a str,
    /// Bytes of the storage that its tensors reach; nothing if they cannot be counted.
    needed: Option<u64>,
}

/// Walks over a pickle's objects, depth first.
struct Tensors<'a> {
    pickle: &'a Pickle<'a>,
    /// The objects that hold the current one, and the index of its holder's next child.
    frames: Vec<(Id, u32)>,
    /// Bytes that names may still take together.
    names: usize,
}

impl<'a> Tensors<'a> {
    /// Returns the first tensor over each storage, in the order of the pickle, and
    /// objects that look like tensors of an unknown kind.
    fn find(pickle: &'a Pickle<'a>, file_bytes: usize) -> Result<(Vec<Tensor<'a>>, Vec<Skipped>), Error> {
        let names = file_bytes.saturating_mul(4).saturating_add(1 << 16);
        let mut tensors = Self { pickle, frames: Vec::new(), names };
        let (mut found, mut skipped) = (Vec::<Tensor<'a>>::new(), Vec::new());
        let mut storages = HashMap::new();
        let mut seen = vec![false; pickle.values.len()];
        let mut next = Some(pickle.root);
        while let Some(id) = next {
            let met = seen.get_mut(id as usize).is_none_or(|seen| std::mem::replace(seen, true));
            if let Some(tensor) = tensors.tensor(id).filter(|_| !met) {
                match storages.get(tensor.storage) {
                    Some(&at) => {
                        let first: &mut Tensor<'a> = &mut found[at];
                        first.needed = first.needed.zip(tensor.needed).map(|(a, b)| a.max(b));
                    }
                    None => {
                        storages.insert(tensor.storage, found.len());
                        found.push(Tensor { name: tensors.name()?, ..tensor });
                    }
                }
            } else if !met {
                if let Some(why) = tensors.unknown(id) {
                    skipped.push(Skipped::new(tensors.name()?, why));
                }
                tensors.frames.push((id, 0));
            }
            next = tensors.advance();
        }
        Ok((found, skipped))
    }

    /// Moves to the next object that may hold tensors.
    fn advance(&mut self) -> Option<Id> {
        while let Some((id, index)) = self.frames.last_mut() {
            match child(self.pickle.get(*id), *index) {
                Some((_, below)) => {
                    *index += 1;
                    if matches!(self.pickle.get(below), Value::Items(_) | Value::Pairs(_) | Value::Call(_)) {
                        return Some(below);
                    }
                }
                None => drop(self.frames.pop()),
            }
        }
        None
    }

    /// Returns the name of the current object: the keys of those that hold it.
    fn name(&mut self) -> Result<String, Error> {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        for &(id, index) in self.frames.iter().rev() {
            let key = child(self.pickle.get(id), index.saturating_sub(1)).and_then(|(key, _)| key);
            let key = key.map(|key| self.key(key));
            bytes += key.as_ref().map_or(1, |key| key.len() + 1);
            if bytes > MOST_NAME_BYTES {
                return Err(bad(format!("the name of a tensor has more than {MOST_NAME_BYTES} bytes")));
            }
            keys.extend(key);
        }
        self.names = self
            .names
            .checked_sub(bytes)
            .ok_or_else(|| bad("the names of its tensors are longer than the file"))?;
        keys.reverse();
        Ok(keys.join("."))
    }

    /// `_rebuild_tensor_v2(storage, offset, shape, stride, ...)`, or a parameter over one.
    fn tensor(&self, id: Id) -> Option<Tensor<'a>> {
        let ("torch._utils", function, arguments) = self.call(id)? else { return None };
        let (stored, storage) = self.storage(*arguments.first()?)?;
        let dtype = match (function, arguments.get(6)) {
            ("_rebuild_tensor" | "_rebuild_tensor_v2", _) => stored,
            ("_rebuild_tensor_v3", Some(&dtype)) => tensor_dtype(self.pickle.global(dtype)?.1)?,
            _ => return None,
        };
        let numbers = |place: usize| self.numbers(*arguments.get(place)?);
        let (shape, strides) = (numbers(2)?, numbers(3)?);
        let Value::Int(offset) = *self.pickle.get(*arguments.get(1)?) else { return None };
        let needed = extent(&shape, &strides, u64::try_from(offset).ok()?);
        let needed = needed.and_then(|elements| elements.checked_mul(dtype.bytes() as u64));
        Some(Tensor { name: String::new(), dtype, shape, storage, needed })
    }

    /// Returns why a call that makes a tensor of a storage is not read.
    fn unknown(&self, id: Id) -> Option<String> {
        let (_, function, arguments) = self.call(id)?;
        let made = function.starts_with("_rebuild") && self.storage(*arguments.first()?).is_some();
        made.then(|| format!("PyTorch's {function:?} is not known"))
    }

    /// Returns the module and the name of a called function, and its arguments.
    fn call(&self, id: Id) -> Option<(&'a str, &'a str, &'a [Id])> {
        let Value::Call(call) = self.pickle.get(id) else { return None };
        let (module, name) = self.pickle.global(call.function)?;
        let Value::Items(arguments) = self.pickle.get(call.arguments) else { return None };
        Some((module, name, arguments))
    }

    /// `('storage', torch.FloatStorage, key, device, elements)`.
    fn storage(&self, id: Id) -> Option<(Dtype, &'a str)> {
        let Value::Persistent(id) = *self.pickle.get(id) else { return None };
        let Value::Items(items) = self.pickle.get(id) else { return None };
        let (_, kind) = self.pickle.global(*items.get(1)?)?;
        let Value::Text(key) = self.pickle.get(*items.get(2)?) else { return None };
        Some((storage_dtype(kind), key))
    }

    fn numbers(&self, id: Id) -> Option<Vec<u64>> {
        let Value::Items(items) = self.pickle.get(id) else { return None };
        let number = |&id: &Id| match *self.pickle.get(id) {
            Value::Int(n) => u64::try_from(n).ok(),
            _ => None,
        };
        items.iter().map(number).collect()
    }

    fn key(&self, key: Key) -> String {
        let id = match key {
            Key::Place(place) => return place.to_string(),
            Key::Object(id) => id,
        };
        match self.pickle.get(id) {
            Value::Text(text) => text.chars().take(MOST_NAME_BYTES + 1).collect(),
            Value::Int(n) => n.to_string(),
            _ => "?".to_owned(),
        }
    }
}

/// The key of an object in its container.
#[derive(Clone, Copy)]
enum Key {
    Place(u32),
    Object(Id),
}

/// Returns an object in an object, and its key there.
fn child(value: &Value<'_>, index: u32) -> Option<(Option<Key>, Id)> {
    let at = index as usize;
    let pair = |pairs: &[Id]| Some((Some(Key::Object(*pairs.get(2 * at)?)), *pairs.get(2 * at + 1)?));
    match value {
        Value::Items(items) => items.get(at).map(|&id| (Some(Key::Place(index)), id)),
        Value::Pairs(pairs) => pair(pairs),
        Value::Call(call) => pair(&call.pairs).or_else(|| {
            let after = at - call.pairs.len() / 2;
            let id = if after == 0 { call.arguments } else { *call.state.get(after - 1)? };
            Some((None, id))
        }),
        _ => None,
    }
}

/// Returns the elements of a storage up to the last one of a tensor.
fn extent(shape: &[u64], strides: &[u64], offset: u64) -> Option<u64> {
    if shape.len() != strides.len() {
        return None;
    }
    if shape.contains(&0) {
        return Some(0);
    }
    let last = shape
        .iter()
        .zip(strides)
        .try_fold(offset, |last, (&n, &stride)| last.checked_add((n - 1).checked_mul(stride)?));
    last?.checked_add(1)
}

/// The element type that `torch.dtype` names; v3 tensors have those that have no storage class.
fn tensor_dtype(name: &str) -> Option<Dtype> {
    Some(match name {
        "uint8" | "bits8" => Dtype::U8,
        "uint16" => Dtype::U16,
        "uint32" => Dtype::U32,
        "uint64" => Dtype::U64,
        "float8_e4m3fn" => Dtype::F8E4M3,
        "float8_e5m2" => Dtype::F8E5M2,
        "float8_e8m0fnu" => Dtype::F8E8M0,
        _ => return None,
    })
}

/// Returns the element type of a storage's class; bytes for unknown ones.
fn storage_dtype(class: &str) -> Dtype {
    match class.rsplit(' ').next().unwrap_or_default() {
        "BoolStorage" => Dtype::Bool,
        "CharStorage" => Dtype::I8,
        "ShortStorage" => Dtype::I16,
        "IntStorage" => Dtype::I32,
        "LongStorage" => Dtype::I64,
        "HalfStorage" => Dtype::F16,
        "BFloat16Storage" => Dtype::Bf16,
        "FloatStorage" => Dtype::F32,
        "DoubleStorage" => Dtype::F64,
        "ComplexFloatStorage" => Dtype::C64,
        "ComplexDoubleStorage" => Dtype::C128,
        _ => Dtype::U8,
    }
}
