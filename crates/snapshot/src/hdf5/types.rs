//! Element types of HDF5, read from the bytes of the datatype message: `hdf5-reader` drops the
//! precision of integers and the layout of floats.
//!
//! Layout: the HDF5 File Format Specification 3.0, section IV.A.2.d.

use buddy_core::Dtype;

use crate::columns::{Bits, Column};

/// The most records within records, and arrays within arrays.
const MOST_DEPTH: u32 = 16;

/// The columns of an element, and the fields that are no numbers.
#[derive(Default)]
pub(super) struct Element {
    /// Bytes of an element in the file.
    pub(super) bytes: usize,
    /// Numbers at fixed places; the name is empty where the element is no record.
    pub(super) columns: Vec<Column>,
    /// Names of fields, and why they are skipped.
    pub(super) skipped: Vec<(String, String)>,
}

/// Reads a datatype message; the error says why the type is none that is read.
pub(super) fn parse(message: &[u8]) -> Result<Element, String> {
    let mut reader = Reader { rest: message };
    let mut element = Element::default();
    let read = reader.head().and_then(|head| {
        element.bytes = head.size;
        reader.number_or_record(&head, &Place::default(), &mut element)
    });
    match read {
        Ok(()) if element.columns.is_empty() && element.skipped.is_empty() => {
            Err("its records have no fields".to_owned())
        }
        Ok(()) => Ok(element),
        Err(Unread::Skipped(why) | Unread::Lost(why)) => Err(why),
    }
}

/// Why a type gives no column.
enum Unread {
    /// It is no number; its properties were passed over.
    Skipped(String),
    /// It ends nowhere that is known, so that nothing after it can be read.
    Lost(String),
}

fn skipped<T>(why: impl Into<String>) -> Result<T, Unread> {
    Err(Unread::Skipped(why.into()))
}

fn lost<T>(why: impl Into<String>) -> Result<T, Unread> {
    Err(Unread::Lost(why.into()))
}

fn cut() -> Unread {
    Unread::Lost("its type ends too early".to_owned())
}

/// Where a type lies in an element.
#[derive(Default, Clone)]
struct Place {
    name: String,
    offset: usize,
    shape: Vec<u64>,
    depth: u32,
}

/// The first eight bytes of a type.
struct Head {
    class: u8,
    version: u8,
    flags: u32,
    size: usize,
}

/// The part of the message not yet read.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn number(&mut self, bytes: usize) -> Result<u32, Unread> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or_else(cut)?;
        self.rest = rest;
        Ok(taken.iter().rev().fold(0, |all, &byte| all << 8 | u32::from(byte)))
    }

    fn head(&mut self) -> Result<Head, Unread> {
        let (class, flags) = (self.number(1)? as u8, self.number(3)?);
        Ok(Head { class: class & 15, version: class >> 4, flags, size: self.number(4)? as usize })
    }

    /// Reads a name that a zero byte ends; before version 3 it is padded to 8 bytes.
    fn name(&mut self, version: u8) -> Result<String, Unread> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or_else(cut)?;
        let name = String::from_utf8_lossy(&self.rest[..end]).into_owned();
        let bytes = if version < 3 { (end + 1).next_multiple_of(8) } else { end + 1 };
        self.rest = self.rest.get(bytes..).ok_or_else(cut)?;
        Ok(name)
    }

    /// Adds the columns of a type; the error says why there are none. The properties are read in
    /// any case, since other fields follow them.
    fn number_or_record(&mut self, head: &Head, place: &Place, into: &mut Element) -> Result<(), Unread> {
        if place.depth == MOST_DEPTH {
            return lost(format!("its types lie more than {MOST_DEPTH} deep"));
        }
        let (dtype, bits) = match head.class {
            0 | 4 => self.integer(head)?,
            1 => (self.float(head)?, None),
            2 => return self.number(2).and(skipped("it is times without a known unit")),
            3 => return skipped("it is text"),
            5 => {
                self.rest = self.rest.get((head.flags & 255) as usize..).ok_or_else(cut)?;
                let shape = [&place.shape[..], &[head.size as u64]].concat();
                into.columns.push(column(&Place { shape, ..place.clone() }, Dtype::U8, false, None));
                return Ok(());
            }
            6 => return self.record(head, place, into),
            7 => return skipped("it is references"),
            8 => return self.enumeration(head, place, into),
            9 => {
                let base = self.head()?;
                let below = Place { depth: place.depth + 1, ..Place::default() };
                self.pass(&base, below)?;
                return skipped(match head.flags & 15 {
                    1 => "it is text",
                    _ => "its elements vary in length",
                });
            }
            10 => return self.array(head, place, into),
            class => return lost(format!("its type has the class {class}, which is not known")),
        };
        into.columns.push(column(place, dtype, head.flags & 1 == 1, bits));
        Ok(())
    }

    /// Passes over a type.
    fn pass(&mut self, head: &Head, place: Place) -> Result<(), Unread> {
        match self.number_or_record(head, &place, &mut Element::default()) {
            Err(Unread::Lost(why)) => lost(why),
            _ => Ok(()),
        }
    }

    fn integer(&mut self, head: &Head) -> Result<(Dtype, Option<Bits>), Unread> {
        let (offset, precision) = (self.number(2)?, self.number(2)?);
        let signed = head.class == 0 && head.flags & 8 != 0;
        let dtype = match (head.size, signed) {
            (1, true) => Dtype::I8,
            (1, false) => Dtype::U8,
            (2, true) => Dtype::I16,
            (2, false) => Dtype::U16,
            (4, true) => Dtype::I32,
            (4, false) => Dtype::U32,
            (8, true) => Dtype::I64,
            (8, false) => Dtype::U64,
            (bytes, _) => return skipped(format!("its integers have {bytes} bytes")),
        };
        let whole = 8 * head.size as u32;
        if precision == 0 || offset + precision > whole {
            return skipped(format!("its integers have {precision} bits at bit {offset} of {whole}"));
        }
        let bits = (precision < whole).then_some(Bits { offset, precision, signed });
        Ok((dtype, bits))
    }

    fn float(&mut self, head: &Head) -> Result<Dtype, Unread> {
        let (offset, precision) = (self.number(2)?, self.number(2)?);
        let [exponent_at, exponent, mantissa_at, mantissa] = [0; 4].map(|_| self.number(1));
        let bias = self.number(4)?;
        let layout = (head.size, exponent_at?, exponent?, mantissa_at?, mantissa?, bias);
        let whole = offset == 0 && precision as usize == 8 * head.size;
        // Bit 6 is VAX order; bits 4 and 5 say that the first bit of the mantissa is implied.
        let plain = head.flags & 0x70 == 0x20 && head.flags >> 8 & 255 == precision.saturating_sub(1);
        match layout {
            (2, 10, 5, 0, 10, 15) if whole && plain => Ok(Dtype::F16),
            (2, 7, 8, 0, 7, 127) if whole && plain => Ok(Dtype::Bf16),
            (4, 23, 8, 0, 23, 127) if whole && plain => Ok(Dtype::F32),
            (8, 52, 11, 0, 52, 1023) if whole && plain => Ok(Dtype::F64),
            (size, _, exponent, _, mantissa, _) => skipped(format!(
                "its floats have {size} bytes with {exponent} bits of exponent and {mantissa} of mantissa"
            )),
        }
    }

    fn record(&mut self, head: &Head, place: &Place, into: &mut Element) -> Result<(), Unread> {
        if !place.shape.is_empty() {
            self.record(head, &Place { depth: place.depth, ..Place::default() }, &mut Element::default())?;
            return skipped("it is an array of records");
        }
        let first = into.columns.len();
        let offset_bytes = (head.size.max(1).ilog2() / 8 + 1) as usize;
        let mut names = Vec::new();
        for _ in 0..head.flags & 0xffff {
            let name = self.name(head.version)?;
            let offset = self.number(if head.version < 3 { 4 } else { offset_bytes })? as usize;
            let mut shape = place.shape.clone();
            if head.version == 1 {
                let dimensions = self.number(1)?.min(4) as usize;
                self.number(3)?;
                self.number(4)?;
                self.number(4)?;
                let sizes = [0; 4].map(|_| self.number(4));
                for size in sizes.into_iter().take(dimensions) {
                    shape.push(u64::from(size?));
                }
            }
            let member = self.head()?;
            if offset.checked_add(member.size).is_none_or(|end| end > head.size) {
                return lost(format!("its field {name:?} passes the end of its records"));
            }
            let full = if place.name.is_empty() { name.clone() } else { format!("{}.{name}", place.name) };
            let offset = place.offset + offset;
            let below = Place { name: full.clone(), offset, shape, depth: place.depth + 1 };
            match self.number_or_record(&member, &below, into) {
                Err(Unread::Skipped(why)) => into.skipped.push((full, why)),
                read => read?,
            }
            names.push(name);
        }
        complex(head, place, &names, first, into);
        Ok(())
    }

    fn enumeration(&mut self, head: &Head, place: &Place, into: &mut Element) -> Result<(), Unread> {
        let base = self.head()?;
        if base.class != 0 || base.size != head.size {
            return lost("it is an enumeration of no integers");
        }
        let (dtype, bits) = self.integer(&base)?;
        let members = head.flags & 0xffff;
        let names: Vec<_> = (0..members).map(|_| self.name(head.version)).collect::<Result<_, _>>()?;
        let bytes = members as usize * base.size;
        let (values, rest) = self.rest.split_at_checked(bytes).ok_or_else(cut)?;
        self.rest = rest;
        let truth = dtype.bytes() == 1 && names == ["FALSE", "TRUE"] && values == [0, 1];
        let dtype = if truth { Dtype::Bool } else { dtype };
        into.columns.push(column(place, dtype, base.flags & 1 == 1, bits));
        Ok(())
    }

    fn array(&mut self, head: &Head, place: &Place, into: &mut Element) -> Result<(), Unread> {
        let dimensions = self.number(1)? as usize;
        if head.version < 3 {
            self.number(3)?;
        }
        let mut shape = place.shape.clone();
        let mut elements = Some(1usize);
        for _ in 0..dimensions {
            let n = self.number(4)?;
            elements = elements.and_then(|all| all.checked_mul(n as usize));
            shape.push(u64::from(n));
        }
        if head.version < 3 {
            (0..dimensions).try_for_each(|_| self.number(4).map(drop))?;
        }
        let base = self.head()?;
        if elements.and_then(|all| all.checked_mul(base.size)) != Some(head.size) {
            return lost("its arrays have another size than their elements");
        }
        self.number_or_record(&base, &Place { shape, depth: place.depth + 1, ..place.clone() }, into)
    }
}

fn column(place: &Place, dtype: Dtype, swapped: bool, bits: Option<Bits>) -> Column {
    let swapped = swapped && dtype.bytes() > 1;
    Column {
        name: place.name.clone(),
        dtype,
        swapped,
        bits,
        offset: place.offset,
        shape: place.shape.clone(),
    }
}

/// Makes one complex column of two floats, as h5py and NumPy store complex numbers.
fn complex(head: &Head, place: &Place, names: &[String], first: usize, into: &mut Element) {
    let [real, imaginary] = &into.columns[first..] else { return };
    let named = matches!(
        [names[0].as_str(), names.get(1).map_or("", String::as_str)],
        ["r", "i"] | ["re", "im"] | ["real", "imag"]
    );
    let dtype = match real.dtype {
        Dtype::F32 => Dtype::C64,
        Dtype::F64 => Dtype::C128,
        _ => return,
    };
    let beside = real.offset == place.offset && imaginary.offset == place.offset + real.dtype.bytes();
    let alike = real.dtype == imaginary.dtype && real.swapped == imaginary.swapped;
    if named && names.len() == 2 && beside && alike && head.size == dtype.bytes() {
        let swapped = real.swapped;
        into.columns.truncate(first);
        into.columns.push(column(place, dtype, swapped, None));
    }
}
