//! NumPy's `.npy`: a magic, a version, a Python literal that describes the array, then its bytes.
//!
//! The literal is always a dictionary of three keys, so the reader takes just that much of Python.

use std::{ops::Range, sync::Arc};

use buddy_core::Dtype;

use crate::{Array, Error, scratch::Scratch, source::Source};

/// More dimensions than NumPy can make.
const MOST_DIMENSIONS: usize = 64;

/// Reads the array that fills `range` of `source`, header and all.
pub(crate) fn read(
    name: &str,
    source: &Arc<Source>,
    range: Range<usize>,
    dtype: Option<Dtype>,
) -> Result<Array, Error> {
    let file = source.bytes().get(range.clone()).ok_or_else(|| bad("it goes past the end of its file"))?;
    let (header, data) = split(file)?;
    let Header { descr, shape } = Literal(header).header()?;
    let (dtype, swapped) = parse_descr(descr, dtype)?;
    if swapped {
        return swap(data, dtype)
            .and_then(|(source, range)| Array::new(name.to_owned(), dtype, shape, &source, range));
    }
    Array::new(name.to_owned(), dtype, shape, source, range.end - data.len()..range.end)
}

/// Big-endian numbers as a little-endian machine holds them.
fn swap(data: &[u8], dtype: Dtype) -> Result<(Arc<Source>, Range<usize>), Error> {
    let number = dtype.scalar_bytes();
    let mut scratch = Scratch::new(data.len() as u64);
    scratch.reserve(data.len() as u64)?;
    for piece in data.chunks(number << 16) {
        let swapped: Vec<u8> = piece.chunks(number).flat_map(|bytes| bytes.iter().rev()).copied().collect();
        scratch.add(&mut &swapped[..], swapped.len() as u64)?;
    }
    Ok((scratch.finish()?, 0..data.len()))
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

/// The type that a `descr` such as `<f4` names, and whether its numbers are big-endian. Where NumPy only knows the size,
/// `given` names the type.
fn parse_descr(descr: &str, given: Option<Dtype>) -> Result<(Dtype, bool), Error> {
    let unknown = || Error::Dtype(descr.to_owned());
    let kind = match descr.as_bytes() {
        [b'<' | b'|' | b'=' | b'>', ..] => &descr[1..],
        _ => return Err(unknown()),
    };
    let dtype = match kind {
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
        // How NumPy stores types that other packages add, bf16 and the 8-bit floats among them.
        void if void.starts_with('V') => {
            let fits = given.filter(|dtype| void == format!("V{}", dtype.bytes()));
            fits.ok_or_else(|| Error::Void(descr.to_owned()))?
        }
        _ => return Err(unknown()),
    };
    Ok((dtype, descr.starts_with('>') && dtype.bytes() > 1))
}

/// What the literal says.
struct Header<'a> {
    descr: &'a str,
    shape: Vec<u64>,
}

/// What is left to read of a Python literal.
struct Literal<'a>(&'a str);

impl<'a> Literal<'a> {
    fn header(&mut self) -> Result<Header<'a>, Error> {
        let (mut descr, mut order, mut shape) = (None, None, None);
        self.expect('{')?;
        while !self.eat('}') {
            let key = self.string()?;
            self.expect(':')?;
            let again = match key {
                "descr" => descr.replace(self.string()?).is_some(),
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
