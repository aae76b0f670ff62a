//! NumPy's `.npy`: a magic number, a version, a Python literal that describes the array, then its
//! bytes.
//!
//! The literal is always a dictionary of three keys; the reader supports no more of Python.

use std::{ops::Range, sync::Arc};

use buddy_core::Dtype;

use crate::{
    Array, Error,
    columns::{self, Column},
    scratch::Scratch,
    source::Source,
};

/// More dimensions than NumPy allows.
const MOST_DIMENSIONS: usize = 64;

/// Reads the array that fills `range` of `source`, header and all. A structured array gives one
/// array for each field, named `name.field`.
pub(crate) fn read(
    name: &str,
    source: &Arc<Source>,
    range: Range<usize>,
    dtype: Option<Dtype>,
) -> Result<Vec<Array>, Error> {
    let file = source.bytes().get(range.clone()).ok_or_else(|| bad("it goes past the end of its file"))?;
    let (header, data) = split(file)?;
    let Header { descr, shape } = Literal(header).header()?;
    let descr = match descr {
        Descr::Fields(fields) => return read_fields(name, data, &fields, &shape, dtype),
        Descr::Number(descr) => descr,
    };
    let (dtype, swapped) = parse_descr(descr, dtype)?;
    let array = if swapped {
        let field =
            Column { name: name.to_owned(), dtype, swapped, bits: None, offset: 0, shape: Vec::new() };
        let mut scratch = Scratch::new(data.len() as u64);
        let range = columns::copy(data, &field, dtype.bytes(), &mut scratch)?;
        Array::new(name.to_owned(), dtype, shape, &scratch.finish()?, range)
    } else {
        Array::new(name.to_owned(), dtype, shape, source, range.end - data.len()..range.end)
    };
    array.map(|array| vec![array])
}

/// Reads each field of a structured array as an array of its own.
fn read_fields(
    name: &str,
    data: &[u8],
    fields: &[Field<'_>],
    shape: &[u64],
    dtype: Option<Dtype>,
) -> Result<Vec<Array>, Error> {
    let mut columns = Vec::new();
    let record = flatten(name, fields, 0, dtype, &mut columns)?;
    let records = shape.iter().try_fold(1u64, |records, &n| records.checked_mul(n));
    let needed = records.and_then(|records| records.checked_mul(record as u64));
    if needed != Some(data.len() as u64) {
        let found = data.len();
        return Err(bad(format!(
            "shape {shape:?} of records of {record} bytes does not fit the file's {found}"
        )));
    }
    let mut scratch = Scratch::new(data.len() as u64);
    let mut places = Vec::new();
    for column in &columns {
        places.push(columns::copy(data, column, record, &mut scratch)?);
    }
    let copied = scratch.finish()?;
    let array = |(column, range): (Column, Range<usize>)| {
        let shape = shape.iter().chain(&column.shape).copied().collect();
        Array::new(column.name, column.dtype, shape, &copied, range)
    };
    columns.into_iter().zip(places).map(array).collect()
}

/// Lists the columns of a record that begins at `offset`, and returns the offset of its end.
fn flatten(
    name: &str,
    fields: &[Field<'_>],
    mut offset: usize,
    dtype: Option<Dtype>,
    columns: &mut Vec<Column>,
) -> Result<usize, Error> {
    let absurd = || bad("its records are larger than any file can be");
    for field in fields {
        let name = format!("{name}.{}", field.name);
        match &field.descr {
            Descr::Fields(inner) if field.shape.is_empty() => {
                offset = flatten(&name, inner, offset, dtype, columns)?;
            }
            Descr::Fields(_) => return Err(bad(format!("{name:?} is an array of records within a record"))),
            Descr::Number(descr) => {
                let (dtype, swapped, inner) = parse_field(descr, dtype)?;
                let shape = field.shape.iter().copied().chain(inner).collect();
                let column = Column { name, dtype, swapped, bits: None, offset, shape };
                offset = column.bytes().and_then(|bytes| offset.checked_add(bytes)).ok_or_else(absurd)?;
                // NumPy names the gaps of an aligned record with an empty string.
                if !field.name.is_empty() {
                    columns.push(column);
                }
            }
        }
    }
    Ok(offset)
}

/// The header's text and the bytes after it.
fn split(file: &[u8]) -> Result<(&str, &[u8]), Error> {
    let rest = file.strip_prefix(b"\x93NUMPY").ok_or_else(|| bad("it does not begin with \\x93NUMPY"))?;
    let (length, rest) = match *rest {
        [1, _, a, b, ref rest @ ..] => (usize::from(u16::from_le_bytes([a, b])), rest),
        [2 | 3, _, a, b, c, d, ref rest @ ..] => (u32::from_le_bytes([a, b, c, d]) as usize, rest),
        [version @ (0 | 4..), ..] => return Err(bad(format!("version {version} is none of 1, 2 and 3"))),
        _ => return Err(bad("it ends within the header's length")),
    };
    let (header, data) = rest.split_at_checked(length).ok_or_else(|| {
        bad(format!("the header is {length} bytes long, but the file ends after {} of them", rest.len()))
    })?;
    let header =
        std::str::from_utf8(header).map_err(|error| bad(format!("the header is no text: {error}")))?;
    Ok((header, data))
}

fn bad(why: impl Into<String>) -> Error {
    Error::format(".npy", why)
}

/// Returns the type of a NumPy name without its byte order, such as `f8`.
pub(crate) fn numpy_dtype(kind: &str) -> Option<Dtype> {
    Some(match kind {
        "b1" => Dtype::Bool,
        "i1" => Dtype::I8,
        "u1" => Dtype::U8,
        "i2" => Dtype::I16,
        "u2" => Dtype::U16,
        "i4" => Dtype::I32,
        "u4" => Dtype::U32,
        "i8" => Dtype::I64,
        "u8" => Dtype::U64,
        "f2" => Dtype::F16,
        "f4" => Dtype::F32,
        "f8" => Dtype::F64,
        "c8" => Dtype::C64,
        "c16" => Dtype::C128,
        _ => return None,
    })
}

/// Parses a `descr` such as `<f4`: the type, and true for big-endian. For types of which NumPy
/// knows only the size, returns `given`.
fn parse_descr(descr: &str, given: Option<Dtype>) -> Result<(Dtype, bool), Error> {
    let unknown = || Error::Dtype(descr.to_owned());
    let kind = match descr.as_bytes() {
        [b'<' | b'|' | b'=' | b'>', ..] => &descr[1..],
        _ => return Err(unknown()),
    };
    let dtype = match kind {
        kind if let Some(dtype) = numpy_dtype(kind) => dtype,
        // Times and spans of time, with their unit in brackets.
        time if time.starts_with("M8") || time.starts_with("m8") => Dtype::I64,
        // Types that other packages add to NumPy, such as bf16 and the 8-bit floats.
        void if void.starts_with('V') => {
            let fits = given.filter(|dtype| void == format!("V{}", dtype.bytes()));
            fits.ok_or_else(|| Error::Void(descr.to_owned()))?
        }
        _ => return Err(unknown()),
    };
    Ok((dtype, descr.starts_with('>') && dtype.bytes() > 1))
}

/// The type of a field, whether it is big-endian, and its inner dimension: text and plain bytes are
/// arrays of `u8`.
fn parse_field(descr: &str, given: Option<Dtype>) -> Result<(Dtype, bool, Option<u64>), Error> {
    let kind = descr.get(1..2).unwrap_or_default();
    let length = descr.get(2..).and_then(|length| length.parse::<u64>().ok());
    match (kind, length, parse_descr(descr, given)) {
        (_, _, Ok((dtype, swapped))) => Ok((dtype, swapped, None)),
        ("S" | "V", Some(length), _) => Ok((Dtype::U8, false, Some(length))),
        // UCS-4.
        ("U", Some(length), _) => Ok((Dtype::U32, descr.starts_with('>'), Some(length))),
        (_, _, Err(error)) => Err(error),
    }
}

/// The type of an array's elements.
enum Descr<'a> {
    /// A type such as `<f4`.
    Number(&'a str),
    /// A record.
    Fields(Vec<Field<'a>>),
}

/// A field of a record.
struct Field<'a> {
    name: &'a str,
    descr: Descr<'a>,
    shape: Vec<u64>,
}

/// The most records within records.
const MOST_DEPTH: u32 = 16;

/// The two keys of the literal that matter.
struct Header<'a> {
    descr: Descr<'a>,
    shape: Vec<u64>,
}

/// The rest of a Python literal.
struct Literal<'a>(&'a str);

impl<'a> Literal<'a> {
    fn header(&mut self) -> Result<Header<'a>, Error> {
        let (mut descr, mut order, mut shape) = (None, None, None);
        self.expect('{')?;
        while !self.eat('}') {
            let key = self.string()?;
            self.expect(':')?;
            let again = match key {
                "descr" => descr.replace(self.descr(0)?).is_some(),
                "fortran_order" => order.replace(self.boolean()?).is_some(),
                "shape" => shape.replace(self.tuple()?).is_some(),
                _ => return Err(bad(format!("the header has an unknown key {key:?}"))),
            };
            if again {
                return Err(bad(format!("the header has {key:?} twice")));
            }
            if !self.eat(',') {
                self.expect('}')?;
                break;
            }
        }
        match (descr, order, shape, self.0.trim()) {
            (Some(descr), Some(_), Some(shape), "") => Ok(Header { descr, shape }),
            (_, _, _, "") => Err(bad("the header lacks one of 'descr', 'fortran_order' and 'shape'")),
            _ => Err(bad("the header has more text after its dictionary")),
        }
    }

    /// A type: a string, or a list of fields.
    fn descr(&mut self, depth: u32) -> Result<Descr<'a>, Error> {
        if !self.eat('[') {
            return self.string().map(Descr::Number);
        }
        if depth == MOST_DEPTH {
            return Err(bad(format!("it has more than {MOST_DEPTH} records within records")));
        }
        let mut fields = Vec::new();
        while !self.eat(']') {
            fields.push(self.field(depth)?);
            if !self.eat(',') {
                self.expect(']')?;
                break;
            }
        }
        Ok(Descr::Fields(fields))
    }

    /// `(name, type)` or `(name, type, shape)`; the name may be `(title, name)`.
    fn field(&mut self, depth: u32) -> Result<Field<'a>, Error> {
        self.expect('(')?;
        let titled = self.eat('(');
        let mut name = self.string()?;
        if titled {
            self.expect(',')?;
            name = self.string()?;
            self.expect(')')?;
        }
        self.expect(',')?;
        let descr = self.descr(depth + 1)?;
        let shape = if self.eat(',') { self.tuple()? } else { Vec::new() };
        self.expect(')')?;
        Ok(Field { name, descr, shape })
    }

    fn eat(&mut self, wanted: char) -> bool {
        self.0 = self.0.trim_start();
        let rest = self.0.strip_prefix(wanted);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, wanted: char) -> Result<(), Error> {
        if self.eat(wanted) { Ok(()) } else { Err(self.unexpected(&format!("'{wanted}'"))) }
    }

    fn unexpected(&self, wanted: &str) -> Error {
        let found: String = self.0.chars().take(16).collect();
        bad(format!("the header has {found:?} where {wanted} should be"))
    }

    fn string(&mut self) -> Result<&'a str, Error> {
        let quote = if self.eat('"') { '"' } else { '\'' };
        if quote == '\'' && !self.eat('\'') {
            return Err(self.unexpected("a string"));
        }
        let (text, rest) =
            self.0.split_once(quote).ok_or_else(|| bad("a string in the header has no end"))?;
        self.0 = rest;
        Ok(text)
    }

    fn boolean(&mut self) -> Result<bool, Error> {
        self.0 = self.0.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.0.strip_prefix(word) {
                self.0 = rest;
                return Ok(value);
            }
        }
        Err(self.unexpected("True or False"))
    }

    fn tuple(&mut self) -> Result<Vec<u64>, Error> {
        let mut numbers = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            if numbers.len() == MOST_DIMENSIONS {
                return Err(bad(format!("the shape has more than {MOST_DIMENSIONS} dimensions")));
            }
            numbers.push(self.number()?);
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(numbers)
    }

    fn number(&mut self) -> Result<u64, Error> {
        self.0 = self.0.trim_start();
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let number = self.0[..end].parse().map_err(|_| self.unexpected("a dimension below 2^64"))?;
        self.0 = &self.0[end..];
        Ok(number)
    }
}
