//! The header of a packed file: which tensors of the original are frozen, their places, the
//! original header, and the checksums.

use std::{collections::BTreeMap, path::Path};

use buddy_codec::{CodecKind, FrozenHeader};
use buddy_core::{Dtype, ENTRY_BYTES, Target};
use buddy_snapshot::Array;
use serde_json::{Map, Value, json};

use crate::{
    Error,
    checksum::{self, UNSEALED},
};

/// Metadata keys of a packed file: the original header, the checksums of the tensors, and that of
/// the header itself.
const ORIGINAL: &str = "buddy.original";
const CHECKSUMS: &str = "buddy.checksums";
const CHECKSUM: &str = "buddy.checksum";
/// Precedes the digits of the header's checksum.
const MARK: &str = "\"buddy.checksum\":\"";
/// Metadata key of the original header in version 1, which has no checksums.
const ORIGINAL_V1: &str = "buddy.header";
/// Alignment of the tensors' bytes, and so of frozen buffers.
const ALIGN: usize = 128;
/// Size of a header's length field.
pub(crate) const LENGTH: usize = 8;

/// Treatment of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Freezes a matrix with rows of this many entries.
    Freeze {
        /// Entries of a row.
        row: u32,
    },
    /// Keeps the tensor plain.
    Keep,
}

impl Plan {
    /// Chooses the treatment: a bf16 matrix with rows of whole entries is frozen, if that can make
    /// it smaller; fewer than sixteen rows are padded. A tensor of more dimensions is the matrix of
    /// its rows.
    pub fn of(array: &Array) -> Self {
        let row = array.shape.last().map_or(0, |&columns| columns * 2);
        let whole = row > 0 && row.is_multiple_of(ENTRY_BYTES as u64);
        match u32::try_from(row / ENTRY_BYTES as u64) {
            Ok(row) if whole && array.dtype == Dtype::Bf16 && array.shape.len() > 1 => {
                let (codec, bytes) = (CodecKind::Bf16.train(&[]), array.bytes().len() as u64);
                let header = FrozenHeader { codec, target: Target::X4Over3, bytes, row, sectors: 0 };
                if header.parts().total < bytes { Self::Freeze { row } } else { Self::Keep }
            }
            _ => Self::Keep,
        }
    }
}

/// A plain safetensors file: its header's text, and its tensors in the order of their bytes.
pub(crate) struct Plain {
    /// The header's text.
    pub(crate) text: String,
    /// The tensors.
    pub(crate) arrays: Vec<Array>,
}

impl Plain {
    /// Maps a file.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let arrays = buddy_snapshot::open(path, None)?;
        Ok(Self { text: header_text(path)?, arrays })
    }

    /// Returns the file's metadata.
    pub(crate) fn metadata(&self) -> Result<Map<String, Value>, Error> {
        let mut header = parse(&self.text)?;
        match header.remove("__metadata__") {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(map)) => Ok(map),
            Some(_) => Err(not_packed("its metadata are no map")),
        }
    }

    /// Returns whether the file is packed.
    pub(crate) fn is_packed(&self) -> Result<bool, Error> {
        let metadata = self.metadata()?;
        Ok([ORIGINAL, ORIGINAL_V1].iter().any(|key| metadata.contains_key(*key)))
    }

    /// Returns the original header and the checksums of a packed file.
    pub(crate) fn original(&self) -> Result<Original, Error> {
        let mut metadata = self.metadata()?;
        let mut take = |key: &str| metadata.remove(key).and_then(|text| text.as_str().map(str::to_owned));
        if let Some(text) = take(ORIGINAL) {
            let own = checksum::unseal(self.text.as_bytes(), MARK)?;
            let tensors = take(CHECKSUMS).and_then(|text| serde_json::from_str(&text).ok());
            let tensors = tensors.ok_or_else(|| not_packed("its header has no checksums"))?;
            return Ok(Original { text, checksums: Some(Checksums { own, tensors }) });
        }
        let text = take(ORIGINAL_V1).ok_or_else(|| not_packed("its metadata hold no original header"))?;
        Ok(Original { text, checksums: None })
    }
}

/// The metadata of a packed file.
pub(crate) struct Original {
    /// The text of the original header.
    pub(crate) text: String,
    /// `None` in version 1.
    pub(crate) checksums: Option<Checksums>,
}

/// The checksums of a packed file.
pub(crate) struct Checksums {
    /// That of the header, and so of all others.
    pub(crate) own: String,
    /// Those of the tensors' bytes; a frozen matrix holds its own.
    pub(crate) tensors: BTreeMap<String, String>,
}

/// Returns type and shape of each tensor of a header: equal for two versions of one model.
pub(crate) fn signature(text: &str) -> Result<BTreeMap<String, (Value, Value)>, Error> {
    let mut header = parse(text)?;
    header.remove("__metadata__");
    Ok(header
        .into_iter()
        .map(|(name, info)| (name, (info["dtype"].clone(), info["shape"].clone())))
        .collect())
}

/// Returns the text of the header; the file was opened as safetensors before.
fn header_text(path: &Path) -> Result<String, Error> {
    use std::io::Read;
    let mut file = std::fs::File::open(path)?;
    let mut length = [0; LENGTH];
    file.read_exact(&mut length)?;
    let mut text = String::new();
    file.take(u64::from_le_bytes(length)).read_to_string(&mut text)?;
    Ok(text)
}

fn parse(text: &str) -> Result<Map<String, Value>, Error> {
    serde_json::from_str(text).map_err(|error| not_packed(format!("its header is wrong: {error}")))
}

/// Returns names and lengths of an original header's tensors, in the order of their bytes.
pub(crate) fn tensors(text: &str) -> Result<Vec<(String, u64)>, Error> {
    let mut found = Vec::new();
    for (name, info) in parse(text)? {
        if name == "__metadata__" {
            continue;
        }
        let offset = |i: usize| info.get("data_offsets").and_then(|offsets| offsets.get(i)?.as_u64());
        let (Some(start), Some(end)) = (offset(0), offset(1)) else {
            return Err(not_packed(format!("the original header has no offsets for {name}")));
        };
        found.push((start, end, name));
    }
    found.sort();
    let mut at = 0;
    for (start, end, name) in &found {
        if *start != at || end < start {
            return Err(not_packed(format!("the original header leaves a hole before {name}")));
        }
        at = *end;
    }
    Ok(found.into_iter().map(|(start, end, name)| (name, end - start)).collect())
}

/// A tensor to write: its name, whether it is frozen, its size and its checksum.
pub(crate) struct Written<'a> {
    pub(crate) array: &'a Array,
    pub(crate) frozen: bool,
    pub(crate) bytes: u64,
    pub(crate) checksum: String,
}

/// Returns an upper bound of the header's bytes in a packed file, the length field included, for
/// any treatment of the tensors.
pub(crate) fn room(plain: &Plain) -> Result<usize, Error> {
    let total = plain.arrays.iter().map(|array| array.bytes().len() as u64).sum();
    let most = |array| Written { array, frozen: false, bytes: 0, checksum: UNSEALED.to_owned() };
    let most: Vec<_> = plain.arrays.iter().map(most).collect();
    Ok((LENGTH + text(plain, &most, total)?.len()).next_multiple_of(ALIGN))
}

/// Encodes the header of a packed file, padded with blanks to [`room`] bytes. Returns its checksum
/// too.
pub(crate) fn encode(
    plain: &Plain,
    tensors: &[Written<'_>],
    room: usize,
) -> Result<(Vec<u8>, String), Error> {
    let mut text = text(plain, tensors, 0)?;
    debug_assert!(LENGTH + text.len() <= room, "a frozen tensor's line is no longer than the plain one's");
    text.resize(text.len().max(room - LENGTH), b' ');
    let own = checksum::seal(&mut text, MARK)?;
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text);
    Ok((out, own))
}

/// Returns the header's text for tensors that follow one another from an offset on.
fn text(plain: &Plain, tensors: &[Written<'_>], mut at: u64) -> Result<Vec<u8>, Error> {
    let mut metadata = plain.metadata()?;
    let sums: BTreeMap<_, _> = tensors.iter().map(|one| (&one.array.name, &one.checksum)).collect();
    let sums = serde_json::to_string(&sums).map_err(|error| not_packed(error.to_string()))?;
    let ours = [(ORIGINAL, plain.text.clone()), (CHECKSUMS, sums), (CHECKSUM, UNSEALED.to_owned())];
    metadata.extend(ours.map(|(key, text)| (key.to_owned(), Value::String(text))));
    let mut map = Map::new();
    map.insert("__metadata__".to_owned(), Value::Object(metadata));
    let original = parse(&plain.text)?;
    for tensor in tensors {
        let (start, end) = (at, at + tensor.bytes);
        let name = &tensor.array.name;
        let shape = if tensor.frozen { json!([tensor.bytes]) } else { json!(tensor.array.shape) };
        let dtype = if tensor.frozen { json!("U8") } else { original[name]["dtype"].clone() };
        map.insert(name.clone(), json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] }));
        at = end;
    }
    serde_json::to_vec(&map).map_err(|error| not_packed(error.to_string()))
}

pub(crate) fn not_packed(why: impl Into<String>) -> Error {
    Error::NotPacked { why: why.into() }
}
