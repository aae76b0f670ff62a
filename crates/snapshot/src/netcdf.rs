//! Classic NetCDF (CDF-1, CDF-2, CDF-5): a header of dimensions, attributes and variables, then
//! big-endian values.
//!
//! Variables along the unlimited dimension are interleaved record by record; each becomes one
//! contiguous little-endian array. Specification: the NetCDF User's Guide, appendix "File Format
//! Specifications".

use std::{ops::Range, sync::Arc};

use buddy_core::Dtype;

use crate::{Array, Error, scratch::Scratch, source::Source};

/// Tags of the header's three kinds of lists.
const DIMENSIONS: u32 = 10;
const VARIABLES: u32 = 11;
const ATTRIBUTES: u32 = 12;

/// A variable as the header describes it.
struct Variable {
    name: String,
    dtype: Dtype,
    /// Length of each dimension; that of the unlimited one is the number of records.
    shape: Vec<u64>,
    /// True if the first dimension is the unlimited one.
    by_record: bool,
    begin: u64,
}

impl Variable {
    /// Returns the bytes of one record, or of the whole variable if it has no records.
    fn slab_bytes(&self) -> Option<u64> {
        let inner = &self.shape[usize::from(self.by_record)..];
        inner.iter().try_fold(self.dtype.bytes() as u64, |bytes, &n| bytes.checked_mul(n))
    }
}

/// Reads every variable.
pub(crate) fn read(source: &Arc<Source>) -> Result<Vec<Array>, Error> {
    let file = source.bytes();
    let (variables, record_bytes) = header(file)?;
    let mut scratch = Scratch::new(file.len() as u64);
    let mut total = 0u64;
    let mut places = Vec::new();
    for variable in &variables {
        let slabs = variable.slabs(record_bytes, file).map_err(|error| error.at(&variable.name))?;
        total += slabs.iter().map(|slab| slab.len() as u64).sum::<u64>();
        if total > file.len() as u64 {
            return Err(bad("its variables overlap"));
        }
        places.push(copy(file, &slabs, variable.dtype.bytes(), &mut scratch)?);
    }
    let copied = scratch.finish()?;
    let array = |(variable, range): (Variable, Range<usize>)| {
        let name = variable.name.clone();
        Array::new(variable.name, variable.dtype, variable.shape, &copied, range)
            .map_err(|error| error.at(name))
    };
    variables.into_iter().zip(places).map(array).collect()
}

impl Variable {
    /// Returns where its bytes are in the file: one range, or one for each record.
    fn slabs(&self, record_bytes: u64, file: &[u8]) -> Result<Vec<Range<usize>>, Error> {
        let bytes = self.slab_bytes().filter(|&bytes| bytes <= file.len() as u64);
        let bytes = bytes.ok_or_else(|| bad("it is larger than the file"))?;
        let records = if self.by_record { self.shape[0] } else { 1 };
        if bytes == 0 || records == 0 {
            return Ok(Vec::new());
        }
        // Each record takes at least a byte of the file, so the vector stays below its length.
        let last = (records - 1).checked_mul(record_bytes).and_then(|skip| self.begin.checked_add(skip));
        match last.and_then(|last| last.checked_add(bytes)) {
            Some(end) if end <= file.len() as u64 => {}
            _ => return Err(bad("its values go past the end of the file")),
        }
        let slab = |record| {
            let start = (self.begin + record * record_bytes) as usize;
            start..start + bytes as usize
        };
        Ok((0..records).map(slab).collect())
    }
}

/// Appends the slabs to the scratch file as little-endian numbers.
fn copy(
    file: &[u8],
    slabs: &[Range<usize>],
    number: usize,
    scratch: &mut Scratch,
) -> Result<Range<usize>, Error> {
    let bytes = slabs.iter().map(|slab| slab.len() as u64).sum();
    scratch.reserve(bytes)?;
    let mut swapped = Slabs { file, slabs, number, buffer: Vec::new(), read: 0 };
    Ok(scratch.add(&mut swapped, bytes)?.0)
}

/// Reads slabs of a file with the bytes of each number reversed.
struct Slabs<'a> {
    file: &'a [u8],
    slabs: &'a [Range<usize>],
    number: usize,
    buffer: Vec<u8>,
    read: usize,
}

/// The most bytes that are swapped at a time; every number's size divides it.
const PIECE: usize = 1 << 16;

impl std::io::Read for Slabs<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.read == self.buffer.len() {
            self.buffer.clear();
            self.read = 0;
            while let Some((slab, rest)) = self.slabs.split_first()
                && self.buffer.len() + slab.len() <= PIECE.max(slab.len())
            {
                let numbers = self.file[slab.clone()].chunks(self.number);
                self.buffer.extend(numbers.flat_map(|number| number.iter().rev()));
                self.slabs = rest;
            }
        }
        let count = into.len().min(self.buffer.len() - self.read);
        into[..count].copy_from_slice(&self.buffer[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}

/// Reads the header: the variables, and the bytes from one record to the next.
fn header(file: &[u8]) -> Result<(Vec<Variable>, u64), Error> {
    let mut at = Reader::new(file)?;
    let stated_records = at.count()?;
    let streaming = stated_records == if at.version == 5 { u64::MAX } else { u64::from(u32::MAX) };
    let mut dimensions = Vec::new();
    for _ in 0..at.list(DIMENSIONS)? {
        at.name()?;
        dimensions.push(at.count()?);
    }
    at.skip_attributes()?;
    let mut variables = Vec::new();
    for _ in 0..at.list(VARIABLES)? {
        variables.push(at.variable(&dimensions)?);
    }
    let record_bytes = record_bytes(&variables)?;
    let records = if streaming {
        let begin = variables.iter().filter(|variable| variable.by_record).map(|v| v.begin).min();
        let left = begin.map_or(0, |begin| (file.len() as u64).saturating_sub(begin));
        left.checked_div(record_bytes).unwrap_or(0)
    } else {
        stated_records
    };
    for variable in variables.iter_mut().filter(|variable| variable.by_record) {
        variable.shape[0] = records;
    }
    Ok((variables, record_bytes))
}

/// Returns the bytes of one record of all variables: each is padded to 4, except where there is
/// only one.
fn record_bytes(variables: &[Variable]) -> Result<u64, Error> {
    let absurd = || bad("its records are larger than any file can be");
    let slabs = variables.iter().filter(|variable| variable.by_record).map(Variable::slab_bytes);
    let slabs = slabs.collect::<Option<Vec<u64>>>().ok_or_else(absurd)?;
    if let [only] = slabs[..] {
        return Ok(only);
    }
    let padded = |sum: u64, bytes: &u64| sum.checked_add(bytes.checked_next_multiple_of(4)?);
    slabs.iter().try_fold(0, padded).ok_or_else(absurd)
}

fn bad(why: impl Into<String>) -> Error {
    Error::format("classic NetCDF", why)
}

/// The part of the header not yet read.
struct Reader<'a> {
    rest: &'a [u8],
    version: u8,
}

impl<'a> Reader<'a> {
    fn new(file: &'a [u8]) -> Result<Self, Error> {
        match file {
            [b'C', b'D', b'F', version @ (1 | 2 | 5), rest @ ..] => Ok(Self { rest, version: *version }),
            _ => Err(bad("it does not begin with CDF and version 1, 2 or 5")),
        }
    }

    fn take(&mut self, bytes: u64) -> Result<&'a [u8], Error> {
        let split = usize::try_from(bytes).ok().and_then(|bytes| self.rest.split_at_checked(bytes));
        let (taken, rest) = split.ok_or_else(|| bad("it ends within the header"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, Error> {
        self.take(4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// A count or length: 32 bits, in CDF-5 64.
    fn count(&mut self) -> Result<u64, Error> {
        if self.version == 5 { self.u64() } else { self.u32().map(u64::from) }
    }

    /// Takes bytes that are padded to a multiple of 4.
    fn padded(&mut self, bytes: u64) -> Result<&'a [u8], Error> {
        let all = bytes.checked_next_multiple_of(4).ok_or_else(|| bad("it ends within the header"))?;
        self.take(all).map(|taken| &taken[..bytes as usize])
    }

    fn name(&mut self) -> Result<&'a str, Error> {
        let length = self.count()?;
        std::str::from_utf8(self.padded(length)?).map_err(|_| bad("a name is no UTF-8"))
    }

    /// Reads the head of a list and returns its length.
    fn list(&mut self, tag: u32) -> Result<u64, Error> {
        match (self.u32()?, self.count()?) {
            (0, 0) => Ok(0),
            (found, count) if found == tag => Ok(count),
            (found, _) => Err(bad(format!("the header has tag {found} where {tag} should be"))),
        }
    }

    fn skip_attributes(&mut self) -> Result<(), Error> {
        for _ in 0..self.list(ATTRIBUTES)? {
            self.name()?;
            let size = self.dtype()?.bytes() as u64;
            let bytes = self.count()?.checked_mul(size).ok_or_else(|| bad("it ends within the header"))?;
            self.padded(bytes)?;
        }
        Ok(())
    }

    fn dtype(&mut self) -> Result<Dtype, Error> {
        Ok(match self.u32()? {
            1 => Dtype::I8,
            2 | 7 => Dtype::U8,
            3 => Dtype::I16,
            4 => Dtype::I32,
            5 => Dtype::F32,
            6 => Dtype::F64,
            8 => Dtype::U16,
            9 => Dtype::U32,
            10 => Dtype::I64,
            11 => Dtype::U64,
            other => return Err(bad(format!("type {other} is unknown"))),
        })
    }

    fn variable(&mut self, dimensions: &[u64]) -> Result<Variable, Error> {
        let name = self.name()?.to_owned();
        let mut shape = Vec::new();
        for _ in 0..self.count()? {
            let id = self.count()?;
            let length = usize::try_from(id).ok().and_then(|id| dimensions.get(id));
            shape.push(
                *length.ok_or_else(|| bad(format!("{name:?} has a dimension {id} that is not declared")))?,
            );
        }
        self.skip_attributes()?;
        let dtype = self.dtype()?;
        // The stated size is redundant, and wrong by definition for variables of 4 GiB and more.
        self.count()?;
        let begin = if self.version == 1 { u64::from(self.u32()?) } else { self.u64()? };
        let by_record = shape.first() == Some(&0);
        if shape.iter().skip(1).any(|&length| length == 0) {
            return Err(bad(format!("{name:?} has the unlimited dimension behind another")));
        }
        Ok(Variable { name, dtype, shape, by_record, begin })
    }
}
