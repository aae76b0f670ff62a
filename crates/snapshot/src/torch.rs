//! PyTorch's `.pt`, `.pth` and `.bin`: a zip with a pickle that names tensors, and a member for
//! each storage.
//!
//! Each storage is one array, whatever tensors view it, since storages are what occupies memory. It
//! has the name of the first tensor over it, and that tensor's shape if the tensor covers it.

use std::{collections::HashSet, io::Cursor, ops::Range, sync::Arc};

use buddy_core::Dtype;
use zip::{CompressionMethod, ZipArchive};

use crate::{
    Array, Error, npz,
    pickle::{self, Id, Pickle, Value},
    source::Source,
};

/// The most bytes of a pickle; a model with 100 000 tensors has 20 MB.
const MOST_PICKLE_BYTES: u64 = 1 << 28;

/// The most bytes of a tensor's name, which grows with the nesting of hostile objects.
const MOST_NAME_BYTES: usize = 4096;

/// Reads every storage; a zip without a pickle is read as an `.npz`.
pub(crate) fn read(source: &Arc<Source>, dtype: Option<Dtype>) -> Result<Vec<Array>, Error> {
    let mut zip = ZipArchive::new(Cursor::new(source.bytes())).map_err(bad)?;
    let pickle =
        zip.file_names().flatten().find(|name| name.ends_with("/data.pkl")).map(std::borrow::Cow::into_owned);
    let Some(name) = pickle else {
        return npz::read(source, dtype);
    };
    let folder = name.trim_end_matches("data.pkl").to_owned();
    let order = stored(&mut zip, source, &format!("{folder}byteorder"));
    if order.is_ok_and(|bytes| bytes == b"big") {
        return Err(bad("its numbers are big-endian; save it on a little-endian machine"));
    }
    let pickle = pickle::read(stored(&mut zip, source, &name)?)?;
    let array = |tensor: Tensor| {
        let member = format!("{folder}data/{}", tensor.storage);
        let (range, sum) = place(&mut zip, &member).map_err(|error| error.at(&tensor.name))?;
        let elements = (range.len() / tensor.dtype.bytes()) as u64;
        let whole = tensor.shape.iter().try_fold(1u64, |all, &n| all.checked_mul(n)) == Some(elements);
        let shape = if whole { tensor.shape } else { vec![elements] };
        let array = Array::new(tensor.name, tensor.dtype, shape, source, range)?;
        Ok((array, sum))
    };
    let found = Tensors::find(&pickle)?.into_iter().map(array).collect::<Result<Vec<_>, Error>>()?;
    let bytes: u64 = found.iter().map(|(array, _)| array.bytes().len() as u64).sum();
    if bytes > source.bytes().len() as u64 {
        return Err(bad("its storages lie over one another"));
    }
    for (array, sum) in &found {
        compare(array.bytes(), *sum).map_err(|error| error.at(&array.name))?;
        array.release(0..array.bytes().len());
    }
    Ok(found.into_iter().map(|(array, _)| array).collect())
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

/// A tensor of the pickle, the first one over its storage.
struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    storage: String,
}

/// Walks over a pickle's objects.
struct Tensors<'a> {
    pickle: &'a Pickle,
    /// The path to each object: the preceding step, and the object's key in its container.
    steps: Vec<(usize, Option<Key>)>,
    storages: HashSet<String>,
}

/// An object's key in its container.
#[derive(Clone, Copy)]
enum Key {
    Place(usize),
    Object(Id),
}

impl<'a> Tensors<'a> {
    /// Finds every tensor over a new storage, in the order of the pickle.
    fn find(pickle: &'a Pickle) -> Result<Vec<Tensor>, Error> {
        let mut tensors = Self { pickle, steps: vec![(0, None)], storages: HashSet::new() };
        let (mut found, mut seen, mut left) = (Vec::new(), HashSet::new(), vec![(0, pickle.root)]);
        while let Some((step, id)) = left.pop() {
            if !seen.insert(id) {
                continue;
            }
            let Some(tensor) = tensors.tensor(id) else {
                let from = left.len();
                tensors.children(step, id, &mut left);
                left[from..].reverse();
                continue;
            };
            if tensors.storages.insert(tensor.storage.clone()) {
                found.push(Tensor { name: tensors.name(step)?, ..tensor });
            }
        }
        Ok(found)
    }

    /// Returns the name of a step's object.
    fn name(&self, mut step: usize) -> Result<String, Error> {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        while step > 0 {
            let (before, key) = self.steps[step];
            let key = key.map(|key| self.key(key));
            bytes += key.as_ref().map_or(1, |key| key.len() + 1);
            if bytes > MOST_NAME_BYTES {
                return Err(bad(format!("the name of a tensor has more than {MOST_NAME_BYTES} bytes")));
            }
            keys.extend(key);
            step = before;
        }
        keys.reverse();
        Ok(keys.join("."))
    }

    /// `_rebuild_tensor_v2(storage, offset, shape, stride, ...)`, or a parameter over one.
    fn tensor(&self, id: Id) -> Option<Tensor> {
        let Value::Call { function, arguments, .. } = &self.pickle.values[id] else { return None };
        let (Value::Global(function), Value::Items(arguments)) =
            (&self.pickle.values[*function], &self.pickle.values[*arguments])
        else {
            return None;
        };
        match function.as_str() {
            "torch._utils _rebuild_tensor_v2" | "torch._utils _rebuild_tensor" => {
                let (dtype, storage) = self.storage(*arguments.first()?)?;
                let shape = self.shape(*arguments.get(2)?)?;
                Some(Tensor { name: String::new(), dtype, shape, storage })
            }
            _ => None,
        }
    }

    /// `('storage', torch.FloatStorage, key, device, elements)`.
    fn storage(&self, id: Id) -> Option<(Dtype, String)> {
        let Value::Persistent(id) = self.pickle.values[id] else { return None };
        let Value::Items(items) = &self.pickle.values[id] else { return None };
        let kind = self.pickle.values.get(*items.get(1)?)?;
        let Value::Text(key) = &self.pickle.values[*items.get(2)?] else { return None };
        let Value::Global(kind) = kind else { return None };
        Some((storage_dtype(kind), key.clone()))
    }

    fn shape(&self, id: Id) -> Option<Vec<u64>> {
        let Value::Items(items) = &self.pickle.values[id] else { return None };
        let number = |&id: &Id| match self.pickle.values[id] {
            Value::Int(n) => u64::try_from(n).ok(),
            _ => None,
        };
        items.iter().map(number).collect()
    }

    /// Lists the objects in an object, each with its step.
    fn children(&mut self, step: usize, id: Id, into: &mut Vec<(usize, Id)>) {
        let pickle = self.pickle;
        let mut add = |key: Option<Key>, id: Id| {
            self.steps.push((step, key));
            into.push((self.steps.len() - 1, id));
        };
        match &pickle.values[id] {
            Value::Items(items) => {
                items.iter().enumerate().for_each(|(place, &id)| add(Some(Key::Place(place)), id));
            }
            Value::Pairs(pairs) => pairs.iter().for_each(|&(key, id)| add(Some(Key::Object(key)), id)),
            Value::Call { arguments, state, pairs, .. } => {
                pairs.iter().for_each(|&(key, id)| add(Some(Key::Object(key)), id));
                add(None, *arguments);
                state.iter().for_each(|&id| add(None, id));
            }
            _ => {}
        }
    }

    fn key(&self, key: Key) -> String {
        let id = match key {
            Key::Place(place) => return place.to_string(),
            Key::Object(id) => id,
        };
        match &self.pickle.values[id] {
            Value::Text(text) => text.clone(),
            Value::Int(n) => n.to_string(),
            _ => "?".to_owned(),
        }
    }
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
