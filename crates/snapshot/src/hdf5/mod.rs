//! HDF5, and with it NetCDF-4: every dataset of numbers, in all groups.
//!
//! The crate `hdf5-reader` parses object headers and decodes chunks. Contiguous little-endian
//! datasets are views of the file. Others are decoded chunk by chunk into a temporary file without
//! a name, which is mapped; they lie there in rows, as a program holds them. Datasets that cannot
//! be read are skipped by name; a damaged file is refused.

mod bytes;
mod chunks;
mod index;
mod links;
mod types;

use std::{collections::HashSet, ops::Range, sync::Arc};

use buddy_core::Dtype;
use hdf5_reader::{
    Dataset, Hdf5File, OpenOptions,
    error::Error as Hdf5Error,
    group::Group,
    io::Cursor,
    messages::{
        HdfMessage, dataspace::DataspaceType, fill_value::FillValueMessage, layout::DataLayout,
        link::LinkTarget,
    },
    object_header::ObjectHeader,
};

use self::{bytes::Metered, index::Blocks, types::Element};
use crate::{
    Array, Contents, Error, Skipped, array::refuse_overlaps, columns, scratch::Scratch, source::Source,
};

/// Groups in groups that are followed.
const MOST_DEPTH: usize = 32;

/// Links of a group that are looked up one by one, which takes time that grows with their square.
const MOST_LOOKUPS: usize = 1024;

/// Filters that are decoded: deflate, shuffle, fletcher32, szip, n-bit and scale-offset.
const FILTERS: std::ops::RangeInclusive<u16> = 1..=6;

/// Filters of packages that many use.
const FOREIGN_FILTERS: [(u16, &str); 12] = [
    (307, "bzip2"),
    (32000, "LZF"),
    (32001, "Blosc"),
    (32004, "LZ4"),
    (32008, "bitshuffle"),
    (32013, "ZFP"),
    (32015, "zstd"),
    (32017, "SZ"),
    (32018, "FCIDECOMP"),
    (32019, "JPEG"),
    (32024, "SZ3"),
    (32026, "Blosc2"),
];

/// Reads every dataset of numbers, and lists the others.
pub(crate) fn read(source: &Arc<Source>) -> Result<Contents, Error> {
    let mut reader = Reader::open(source)?;
    let root = reader.file.root_group().map_err(bad)?;
    reader.group(&root, "", 0)?;
    reader.finish()
}

/// An array whose bytes are found.
struct Found {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    place: Place,
}

enum Place {
    /// Bytes of the file itself.
    File(Range<usize>),
    /// Bytes of the scratch file.
    Scratch(Range<usize>),
}

struct Reader {
    source: Arc<Source>,
    file: Hdf5File,
    blocks: Blocks,
    scratch: Scratch,
    /// Bytes of chunks that were decoded and that lie past the end of their dataset.
    excess: u64,
    /// Addresses of the objects that were read: links may lead to one twice.
    seen: HashSet<u64>,
    found: Vec<Found>,
    skipped: Vec<Skipped>,
}

impl Reader {
    fn open(source: &Arc<Source>) -> Result<Self, Error> {
        let scratch = Scratch::new(source.bytes().len() as u64);
        let options = OpenOptions::default()
            .with_max_read_bytes(scratch.limit() as usize)
            .with_max_object_header_bytes(8 << 20)
            .with_chunk_cache_bytes(0);
        let file =
            Hdf5File::from_storage_with_options(Arc::new(Metered::new(source)), options).map_err(bad)?;
        Ok(Self {
            source: Arc::clone(source),
            blocks: Blocks::new(&file),
            file,
            scratch,
            excess: 0,
            seen: HashSet::new(),
            found: Vec::new(),
            skipped: Vec::new(),
        })
    }

    fn finish(self) -> Result<Contents, Error> {
        let values = self.scratch.finish()?;
        let file = &self.source;
        let array = |found: Found| match found.place {
            Place::File(range) => Array::new(found.name, found.dtype, found.shape, file, range),
            Place::Scratch(range) => Array::new(found.name, found.dtype, found.shape, &values, range),
        };
        let views = |found: &Found| match &found.place {
            Place::File(range) => Some((range.clone(), found.name.clone())),
            Place::Scratch(_) => None,
        };
        // Fields of one record lie in one range, so a dataset counts once.
        refuse_overlaps("HDF5", self.found.iter().filter_map(views).collect())?;
        let arrays = self.found.into_iter().map(array).collect::<Result<_, _>>()?;
        Ok(Contents { arrays, skipped: self.skipped })
    }

    fn skip(&mut self, name: String, why: impl Into<String>) {
        self.skipped.push(Skipped::new(name, why));
    }

    /// Reads what the links of a group lead to: its datasets, then its groups. Soft links lead to
    /// objects that have another name in the file.
    fn group(&mut self, group: &Group, path: &str, depth: usize) -> Result<(), Error> {
        if !self.seen.insert(group.address()) {
            return Ok(());
        }
        if depth == MOST_DEPTH {
            return Err(bad(format!("groups lie more than {MOST_DEPTH} deep")));
        }
        let links = links::of(&self.file, group.address()).map_err(bad)?;
        let members = group.members().ok();
        if members.is_none() && links.len() > MOST_LOOKUPS {
            return Err(bad(format!(
                "the group {path:?} has {} links and objects that cannot be read",
                links.len()
            )));
        }
        let mut groups = Vec::new();
        for link in links {
            let name = if path.is_empty() { link.name.clone() } else { format!("{path}/{}", link.name) };
            let address = match link.target {
                LinkTarget::Hard { address } => address,
                LinkTarget::Soft { .. } => continue,
                LinkTarget::External { filename, .. } => {
                    self.skip(name, format!("it is a link to another file, {filename:?}"));
                    continue;
                }
            };
            if self.seen.contains(&address) {
                continue;
            }
            let header = match self.file.get_or_parse_header(address) {
                Ok(header) => header,
                Err(error) => {
                    self.seen.insert(address);
                    let why = unsupported(&error).ok_or_else(|| bad(error).at(&name))?;
                    self.skip(name, why);
                    continue;
                }
            };
            let found = |dataset: &&Dataset| dataset.address() == address;
            let listed = members.as_ref().map(|(_, datasets)| datasets.iter().find(found).cloned());
            let dataset = listed.unwrap_or_else(|| group.dataset(&link.name).ok());
            if let Some(dataset) = dataset {
                self.seen.insert(address);
                self.dataset(&name, &dataset, &header).map_err(|error| error.at(&name))?;
            } else {
                groups.push((name, link.name, address));
            }
        }
        for (name, link, address) in groups {
            let below = match &members {
                Some((groups, _)) => groups.iter().find(|group| group.address() == address).cloned(),
                None => group.group(&link).ok(),
            };
            if let Some(below) = below {
                self.group(&below, &name, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Reads the columns of a dataset, or lists it as skipped.
    fn dataset(&mut self, name: &str, dataset: &Dataset, header: &ObjectHeader) -> Result<(), Error> {
        if let Some(why) = unread(header) {
            self.skip(name.to_owned(), why);
            return Ok(());
        }
        let element = match types::parse(&dataset.raw_datatype().map_err(bad)?) {
            Ok(element) => element,
            Err(why) => {
                self.skip(name.to_owned(), why);
                return Ok(());
            }
        };
        let shape = dataset.shape();
        let most = dataset.max_dims().unwrap_or(shape);
        if most.len() != shape.len() || shape.iter().zip(most).any(|(n, most)| n > most) {
            return Err(bad(format!("its shape {shape:?} is beyond its greatest shape {most:?}")));
        }
        let bytes = shape.iter().try_fold(element.bytes as u64, |bytes, &n| bytes.checked_mul(n));
        let bytes =
            bytes.ok_or_else(|| bad(format!("its shape {shape:?} is larger than any file can be")))?;
        let layout = layout(header).ok_or_else(|| bad("it has no layout"))?;
        let plain = matches!(&element.columns[..], [only] if only.is_plain(element.bytes));
        let read = match layout {
            DataLayout::Contiguous { address, size } if self.is_defined(*address) && bytes > 0 => {
                // Before version 3 the layout has the shape instead of a size.
                if *size < bytes && shape.iter().product::<u64>() != *size {
                    return Err(bad(format!("{size} bytes are stored for the {bytes} of its shape")));
                }
                self.contiguous(name, shape, &element, *address, bytes, plain)
            }
            DataLayout::Compact { data } if bytes > 0 => {
                if data.len() as u64 != bytes {
                    return Err(bad(format!("{} bytes are stored for the {bytes} of its shape", data.len())));
                }
                self.columns(name, shape, &element, data)
            }
            _ if plain => {
                let (range, mut map) = self.scratch.map_zeros(bytes)?;
                let filled = self.fill(dataset, header, element.bytes, &mut map);
                filled.map(|()| {
                    let column = &element.columns[0];
                    self.found.push(found(name, column, shape, Place::Scratch(range)));
                })
            }
            _ => {
                let mut map = self.scratch.apart(bytes)?;
                let filled = self.fill(dataset, header, element.bytes, &mut map);
                filled.and_then(|()| self.columns(name, shape, &element, &map))
            }
        };
        match read {
            Ok(()) => {
                let full = |(field, why): (String, String)| Skipped::new(format!("{name}.{field}"), why);
                self.skipped.extend(element.skipped.into_iter().map(full));
                Ok(())
            }
            Err(Error::Unsupported(why)) => {
                self.skip(name.to_owned(), why);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a dataset that lies in the file in one piece.
    fn contiguous(
        &mut self,
        name: &str,
        shape: &[u64],
        element: &Element,
        address: u64,
        bytes: u64,
        plain: bool,
    ) -> Result<(), Error> {
        let start = address.checked_add(self.file.superblock().base_address);
        let end = start.and_then(|start| start.checked_add(bytes));
        let source = Arc::clone(&self.source);
        let range = match (start, end) {
            (Some(start), Some(end)) if end <= source.bytes().len() as u64 => start as usize..end as usize,
            _ => return Err(bad("its values go past the end of the file")),
        };
        if plain {
            self.found.push(found(name, &element.columns[0], shape, Place::File(range)));
            return Ok(());
        }
        self.columns(name, shape, element, &source.bytes()[range])
    }

    /// Copies the columns of elements into the scratch file.
    fn columns(&mut self, name: &str, shape: &[u64], element: &Element, data: &[u8]) -> Result<(), Error> {
        for column in &element.columns {
            let range = columns::copy(data, column, element.bytes, &mut self.scratch)?;
            self.found.push(found(name, column, shape, Place::Scratch(range)));
        }
        Ok(())
    }

    fn is_defined(&self, address: u64) -> bool {
        !Cursor::is_undefined_offset(address, self.file.superblock().offset_size)
    }
}

/// One column of a dataset.
fn found(name: &str, column: &columns::Column, shape: &[u64], place: Place) -> Found {
    let name = if column.name.is_empty() { name.to_owned() } else { format!("{name}.{}", column.name) };
    Found { name, dtype: column.dtype, shape: [shape, &column.shape].concat(), place }
}

/// Returns why a dataset is skipped before its type is looked at.
fn unread(header: &ObjectHeader) -> Option<String> {
    header.messages.iter().find_map(|message| match message {
        HdfMessage::Dataspace(space) if space.dataspace_type == DataspaceType::Null => {
            Some("it has a null dataspace, so no elements".to_owned())
        }
        HdfMessage::ExternalFiles(_) => Some("its values lie in other files".to_owned()),
        HdfMessage::FilterPipeline(pipeline) => {
            let filter = pipeline.filters.iter().find(|filter| !FILTERS.contains(&filter.id))?;
            let known = FOREIGN_FILTERS.iter().find(|(id, _)| *id == filter.id).map(|&(_, name)| name);
            let name = known.map_or_else(|| format!("the filter {}", filter.id), str::to_owned);
            Some(format!("it is compressed with {name} (h5repack -f GZIP=4 IN.h5 OUT.h5 rewrites it)"))
        }
        _ => None,
    })
}

fn layout(header: &ObjectHeader) -> Option<&DataLayout> {
    header.messages.iter().find_map(|message| match message {
        HdfMessage::DataLayout(message) => Some(&message.layout),
        _ => None,
    })
}

fn fill_value(header: &ObjectHeader) -> Option<&FillValueMessage> {
    header.messages.iter().find_map(|message| match message {
        HdfMessage::FillValue(value) => Some(value),
        _ => None,
    })
}

/// Returns what a valid file has and the reader lacks; nothing for a file that is damaged.
fn unsupported(error: &Hdf5Error) -> Option<String> {
    match error {
        Hdf5Error::Context { source, .. } => unsupported(source),
        Hdf5Error::UnsupportedLayoutClass(3) => {
            Some("it is virtual: its values are those of other datasets (h5repack copies them)".to_owned())
        }
        Hdf5Error::UnsupportedLayoutClass(_)
        | Hdf5Error::UnsupportedLayoutVersion(_)
        | Hdf5Error::UnsupportedDatatypeClass(_)
        | Hdf5Error::UnsupportedFilter(_)
        | Hdf5Error::UnsupportedFilterPipelineVersion(_)
        | Hdf5Error::UnsupportedChunkIndexType(_)
        | Hdf5Error::UnsupportedEncoding(_)
        | Hdf5Error::ResourceLimit(_) => Some(error.to_string()),
        _ => None,
    }
}

fn bad(error: impl std::fmt::Display) -> Error {
    Error::format("HDF5", error.to_string())
}
