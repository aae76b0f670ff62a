//! PyTorch's `.pt`, `.pth` and `.bin`: a zip with a pickle that names tensors, and a member for each storage.
//!
//! A storage is what lies in memory, so there is one array for each, whatever tensors are views of it. It has the name
//! of the first tensor over it, and that tensor's shape where the tensor is all of it.

use std::{borrow::Cow, collections::HashSet, io::Cursor, ops::Range, sync::Arc};

use buddy_core::Dtype;
use zip::{CompressionMethod, ZipArchive};

use crate::{
    Array, Error, npz,
    pickle::{self, Id, Pickle, Value},
    source::Source,
};

/// The most bytes of a pickle; that of a model with 100 000 tensors has 20 MB.
const MOST_PICKLE_BYTES: u64 = 1 << 28;

/// Reads every storage; a zip without a pickle is taken for an `.npz`.
pub(crate) fn read(source: &Arc<Source>, dtype: Option<Dtype>) -> Result<Vec<Array>, Error> {
    let mut zip = ZipArchive::new(Cursor::new(source.bytes())).map_err(bad)?;
    let pickle = zip.file_names().flatten().find(|name| name.ends_with("/data.pkl")).map(Cow::into_owned);
    let Some(name) = pickle else {
        return npz::read(source, dtype);
    };
    let folder = name.trim_end_matches("data.pkl").to_owned();
    let order = stored(&mut zip, source, &format!("{folder}byteorder"));
    if order.is_ok_and(|bytes| bytes.as_ref() == b"big") {
        return Err(bad("its numbers are big-endian; save it on a little-endian machine"));
    }
    let text = stored(&mut zip, source, &name)?;
    let tensors = Tensors::find(&pickle::read(&text)?);
    let array = |tensor: Tensor| {
        let member = format!("{folder}data/{}", tensor.storage);
        let range = place(&mut zip, &member).map_err(|error| error.at(&tensor.name))?;
        let elements = (range.len() / tensor.dtype.bytes()) as u64;
        let whole = tensor.shape.iter().try_fold(1u64, |all, &n| all.checked_mul(n)) == Some(elements);
        let shape = if whole { tensor.shape } else { vec![elements] };
        Array::new(tensor.name, tensor.dtype, shape, source, range)
    };
    let arrays = tensors.into_iter().map(array).collect::<Result<Vec<_>, _>>()?;
    let bytes: u64 = arrays.iter().map(|array| array.bytes().len() as u64).sum();
    if bytes > source.bytes().len() as u64 {
        return Err(bad("its storages lie over one another"));
    }
    Ok(arrays)
}

fn bad(error: impl std::fmt::Display) -> Error {
    Error::format("PyTorch", error.to_string())
}

type Zip<'a> = ZipArchive<Cursor<&'a [u8]>>;

/// Where a member lies in the file; PyTorch compresses none.
fn place(zip: &mut Zip<'_>, name: &str) -> Result<Range<usize>, Error> {
    let member = zip.by_name(name).map_err(|_| bad(format!("{name} is missing")))?;
    if member.compression() != CompressionMethod::Stored {
        return Err(bad(format!("{name} is compressed, which PyTorch never does")));
    }
    let start = member.data_start().ok_or_else(|| bad("a member has no data"))?;
    let end = start.checked_add(member.size()).ok_or_else(|| bad("a member ends past 2^64"))?;
    Ok(start as usize..end as usize)
}

fn stored<'a>(zip: &mut Zip<'_>, source: &'a Arc<Source>, name: &str) -> Result<Cow<'a, [u8]>, Error> {
    let range = place(zip, name)?;
    if range.len() as u64 > MOST_PICKLE_BYTES {
        return Err(bad(format!("{name} has {} bytes; the most is {MOST_PICKLE_BYTES}", range.len())));
    }
    source
        .bytes()
        .get(range)
        .map(Into::into)
        .ok_or_else(|| bad(format!("{name} goes past the end of the file")))
}

/// A tensor of the pickle, the first over its storage.
struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    storage: String,
}

/// Walks over a pickle's objects.
struct Tensors<'a> {
    pickle: &'a Pickle,
    found: Vec<Tensor>,
    storages: HashSet<String>,
}

impl<'a> Tensors<'a> {
    /// Every tensor whose storage was not met before, in the order of the pickle.
    fn find(pickle: &'a Pickle) -> Vec<Tensor> {
        let mut tensors = Self { pickle, found: Vec::new(), storages: HashSet::new() };
        let mut seen = HashSet::new();
        let mut left = vec![(String::new(), pickle.root)];
        while let Some((name, id)) = left.pop() {
            if !seen.insert(id) || tensors.take(&name, id) {
                continue;
            }
            let from = left.len();
            tensors.children(&name, id, &mut left);
            left[from..].reverse();
        }
        tensors.found
    }

    /// Whether the object is a tensor, or holds just one (a parameter); it is kept if its storage is new.
    fn take(&mut self, name: &str, id: Id) -> bool {
        let tensor = self.tensor(name, id);
        let is = tensor.is_some();
        let new = tensor.filter(|tensor| self.storages.insert(tensor.storage.clone()));
        self.found.extend(new);
        is
    }

    /// `_rebuild_tensor_v2(storage, offset, shape, stride, ...)`, or a parameter over one.
    fn tensor(&self, name: &str, id: Id) -> Option<Tensor> {
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
                Some(Tensor { name: name.to_owned(), dtype, shape, storage })
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

    /// The objects in an object, by their names.
    fn children(&self, name: &str, id: Id, into: &mut Vec<(String, Id)>) {
        let below = |key: String| if name.is_empty() { key } else { format!("{name}.{key}") };
        match &self.pickle.values[id] {
            Value::Items(items) => {
                into.extend(items.iter().enumerate().map(|(index, &id)| (below(index.to_string()), id)));
            }
            Value::Pairs(pairs) => into.extend(pairs.iter().map(|&(key, id)| (below(self.key(key)), id))),
            Value::Call { arguments, state, pairs, .. } => {
                into.extend(pairs.iter().map(|&(key, id)| (below(self.key(key)), id)));
                into.push((name.to_owned(), *arguments));
                into.extend(state.iter().map(|&id| (name.to_owned(), id)));
            }
            _ => {}
        }
    }

    fn key(&self, id: Id) -> String {
        match &self.pickle.values[id] {
            Value::Text(text) => text.clone(),
            Value::Int(n) => n.to_string(),
            _ => "?".to_owned(),
        }
    }
}

/// The element type of a storage's class; bytes for one that is not known.
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
