//! NumPy's `.npz`: a zip of `.npy` members, stored or deflated.
//!
//! A stored member is a view of the mapping; its checksum is compared, and no two may lie over one another, so that
//! a small file cannot hold more arrays than it has bytes. A deflated one is inflated into a temporary file without a name,
//! which is mapped in turn: memory stays bounded, and nothing is left behind. [`inflate_limit`] bounds what a
//! small file may become.

use std::{
    fs::File,
    io::{Cursor, Read},
    ops::Range,
    sync::Arc,
};

use buddy_core::Dtype;
use zip::{CompressionMethod, ZipArchive, read::ZipFile};

use crate::{
    Array, Error, npy,
    source::{Source, free_bytes},
};

/// The most bytes that the deflated members of a file of this length may inflate to, all together: 1 GiB, or 32
/// times the file where that is more. Deflate itself reaches 1032 times; numbers worth studying do not come
/// near 32, but for arrays of zeros, which 1 GiB leaves room for.
pub fn inflate_limit(file_bytes: u64) -> u64 {
    file_bytes.saturating_mul(32).max(1 << 30)
}

/// Where a member's bytes are: in the file itself, or in what was inflated.
enum Place {
    Stored(Range<usize>),
    Inflated(Range<usize>),
}

/// A member's name, its bytes, and the checksum that the archive has of them.
type Member = (String, Place, u32);

/// Reads every member, each as an array.
pub(crate) fn read(source: &Arc<Source>, dtype: Option<Dtype>) -> Result<Vec<Array>, Error> {
    let mut zip = ZipArchive::new(Cursor::new(source.bytes())).map_err(bad)?;
    if zip.has_duplicate_names() {
        return Err(Error::format(".npz", "two members have one name"));
    }
    let mut inflater = Inflater::new(source.bytes().len() as u64);
    let mut members = Vec::new();
    for index in 0..zip.len() {
        let mut member = zip.by_index(index).map_err(bad)?;
        let name = member.name().map_err(bad)?.into_owned();
        let place = locate(&mut member, &mut inflater).map_err(|error| error.at(&name))?;
        members.push((name, place, member.crc32()));
    }
    refuse_overlaps(&members)?;
    for (name, place, sum) in &members {
        compare(source, place, *sum).map_err(|error| error.at(name))?;
    }
    let inflated = inflater.finish()?;
    let array = |(name, place, _): Member| {
        let (source, range) = match place {
            Place::Stored(range) => (source, range),
            Place::Inflated(range) => (&inflated, range),
        };
        let short = name.strip_suffix(".npy").unwrap_or(&name);
        npy::read(short, source, range, dtype).map_err(|error| error.at(&name))
    };
    members.into_iter().map(array).collect()
}

fn bad(error: impl std::fmt::Display) -> Error {
    Error::format(".npz", error.to_string())
}

/// Finds a member's bytes, inflating them if they are not there as they are.
fn locate(member: &mut ZipFile<'_, Cursor<&[u8]>>, inflater: &mut Inflater) -> Result<Place, Error> {
    if member.compression() != CompressionMethod::Stored {
        return inflater.add(member).map(Place::Inflated);
    }
    let start = member.data_start().ok_or_else(|| bad("a member has no data"))?;
    let end = start.checked_add(member.size()).ok_or_else(|| bad("a member ends past 2^64"))?;
    Ok(Place::Stored(start as usize..end as usize))
}

/// Refuses stored members that share bytes of the file.
fn refuse_overlaps(members: &[Member]) -> Result<(), Error> {
    let stored = |(name, place, _): &'_ Member| match place {
        Place::Stored(range) if !range.is_empty() => Some((range.start, range.end, name.clone())),
        _ => None,
    };
    let mut stored: Vec<(usize, usize, String)> = members.iter().filter_map(stored).collect();
    stored.sort();
    match stored.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        Some(pair) => Err(Error::Overlap(pair[0].2.clone(), pair[1].2.clone())),
        None => Ok(()),
    }
}

/// Compares the bytes of a stored member with its checksum; what was inflated was compared as it came out.
fn compare(source: &Source, place: &Place, stated: u32) -> Result<(), Error> {
    let Place::Stored(range) = place else { return Ok(()) };
    let bytes =
        source.bytes().get(range.clone()).ok_or_else(|| bad("a member goes past the end of the file"))?;
    let found = buddy_core::checksum(bytes);
    source.release(range.clone());
    if found == stated { Ok(()) } else { Err(Error::Damaged { stated, found }) }
}

/// Collects inflated members in one temporary file.
struct Inflater {
    file: Option<File>,
    bytes: u64,
    limit: u64,
}

impl Inflater {
    fn new(file_bytes: u64) -> Self {
        Self { file: None, bytes: 0, limit: inflate_limit(file_bytes) }
    }

    /// Appends a member. Its directory entry may lie, so what really comes out is counted too.
    fn add(&mut self, member: &mut ZipFile<'_, Cursor<&[u8]>>) -> Result<Range<usize>, Error> {
        let (start, size) = (self.bytes, member.size());
        self.bytes = start.saturating_add(size);
        if self.bytes > self.limit {
            return Err(Error::Bomb { inflated: self.bytes, limit: self.limit });
        }
        let free = free_bytes(&std::env::temp_dir())?;
        if size > free {
            return Err(Error::NoSpace { needed: size, free });
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        let written = std::io::copy(&mut member.take(size.saturating_add(1)), file).map_err(bad)?;
        if written != size {
            return Err(bad(format!("the directory says {size} bytes, but other than that came out")));
        }
        Ok(start as usize..self.bytes as usize)
    }

    /// All that was inflated.
    fn finish(self) -> Result<Arc<Source>, Error> {
        match self.file {
            Some(file) if self.bytes > 0 => Source::map(&file).map(Arc::new),
            _ => Ok(Arc::new(Source::Memory(Vec::new()))),
        }
    }
}
