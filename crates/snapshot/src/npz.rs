//! NumPy's `.npz`: a zip of `.npy` members, stored or deflated.
//!
//! A stored member is a view of the mapping. Its checksum is compared, and members may not overlap,
//! so that a small file cannot hold more arrays than bytes. A deflated member is inflated into
//! [`Scratch`].

use std::{io::Cursor, ops::Range, sync::Arc};

use buddy_core::Dtype;
use zip::{CompressionMethod, ZipArchive, read::ZipFile};

use crate::{Array, Error, array, npy, scratch::Scratch, source::Source};

/// Location of a member's bytes: in the file, or in the inflated data.
enum Place {
    Stored(Range<usize>),
    Inflated(Range<usize>),
}

/// A member's name, its bytes, and their checksum in the archive.
type Member = (String, Place, u32);

/// Reads every member, each as an array, or as one array for each field of a structured one.
pub(crate) fn read(source: &Arc<Source>, dtype: Option<Dtype>) -> Result<Vec<Array>, Error> {
    let mut zip = ZipArchive::new(Cursor::new(source.bytes())).map_err(bad)?;
    if zip.has_duplicate_names() {
        return Err(Error::format(".npz", "two members have one name"));
    }
    let mut scratch = Scratch::new(source.bytes().len() as u64);
    let mut members = Vec::new();
    for index in 0..zip.len() {
        let mut member = zip.by_index(index).map_err(bad)?;
        let name = member.name().map_err(bad)?.into_owned();
        let place = locate(&mut member, &mut scratch).map_err(|error| error.at(&name))?;
        members.push((name, place, member.crc32()));
    }
    refuse_overlaps(&members)?;
    for (name, place, sum) in &members {
        compare(source, place, *sum).map_err(|error| error.at(name))?;
    }
    let inflated = scratch.finish()?;
    let array = |(name, place, _): Member| {
        let (source, range) = match place {
            Place::Stored(range) => (source, range),
            Place::Inflated(range) => (&inflated, range),
        };
        let short = name.strip_suffix(".npy").unwrap_or(&name);
        npy::read(short, source, range, dtype).map_err(|error| error.at(&name))
    };
    let arrays = members.into_iter().map(array).collect::<Result<Vec<_>, _>>()?;
    Ok(arrays.into_iter().flatten().collect())
}

fn bad(error: impl std::fmt::Display) -> Error {
    Error::format(".npz", error.to_string())
}

/// Finds a member's bytes and inflates them if needed.
fn locate(member: &mut ZipFile<'_, Cursor<&[u8]>>, scratch: &mut Scratch) -> Result<Place, Error> {
    if member.compression() != CompressionMethod::Stored {
        return inflate(member, scratch).map(Place::Inflated);
    }
    let start = member.data_start().ok_or_else(|| bad("a member has no data"))?;
    let end = start.checked_add(member.size()).ok_or_else(|| bad("a member ends past 2^64"))?;
    Ok(Place::Stored(start as usize..end as usize))
}

/// Rejects stored members that overlap.
fn refuse_overlaps(members: &[Member]) -> Result<(), Error> {
    let stored = |(name, place, _): &Member| match place {
        Place::Stored(range) => Some((range.clone(), name.clone())),
        Place::Inflated(_) => None,
    };
    array::refuse_overlaps(".npz", members.iter().filter_map(stored).collect())
}

/// Compares a stored member's checksum; that of an inflated one was compared during inflation.
fn compare(source: &Source, place: &Place, stated: u32) -> Result<(), Error> {
    let Place::Stored(range) = place else { return Ok(()) };
    let bytes =
        source.bytes().get(range.clone()).ok_or_else(|| bad("a member goes past the end of the file"))?;
    let found = buddy_core::checksum(bytes);
    source.release(range.clone());
    if found == stated { Ok(()) } else { Err(Error::Damaged { stated, found }) }
}

/// Inflates a member. Its directory entry is not trusted: the output is counted, too.
fn inflate(member: &mut ZipFile<'_, Cursor<&[u8]>>, scratch: &mut Scratch) -> Result<Range<usize>, Error> {
    let size = member.size();
    scratch.reserve(size)?;
    let (range, written) = scratch.add(member, size).map_err(bad)?;
    if written == size {
        return Ok(range);
    }
    Err(bad(format!("the directory says {size} bytes, but other than that came out")))
}
