//! Element types of arrays.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::Error;

/// Element type of an array. Codecs see only bytes; the type serves codec selection and display.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Dtype {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    /// 8-bit float, 4 exponent bits.
    F8E4M3,
    /// 8-bit float, 5 exponent bits.
    F8E5M2,
    /// 8 exponent bits only: the scales of MX formats.
    F8E8M0,
    F16,
    Bf16,
    F32,
    F64,
    /// Complex: two F32, 8 bytes.
    C64,
    /// Complex: two F64, 16 bytes.
    C128,
}

impl Dtype {
    /// Every type, in the order that error messages list them.
    pub const ALL: [Self; 18] = [
        Self::Bool,
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F8E4M3,
        Self::F8E5M2,
        Self::F8E8M0,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
        Self::C64,
        Self::C128,
    ];

    /// Returns the size of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 | Self::F8E4M3 | Self::F8E5M2 | Self::F8E8M0 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::C64 => 8,
            Self::C128 => 16,
        }
    }

    /// Returns the size of one scalar: half of a complex element.
    pub const fn scalar_bytes(self) -> usize {
        match self {
            Self::C64 | Self::C128 => self.bytes() / 2,
            _ => self.bytes(),
        }
    }

    /// Returns the name used in tables, files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I16 => "i16",
            Self::U16 => "u16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F8E4M3 => "f8e4m3",
            Self::F8E5M2 => "f8e5m2",
            Self::F8E8M0 => "f8e8m0",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::C64 => "c64",
            Self::C128 => "c128",
        }
    }

    /// Returns all names, comma-separated, for messages.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Names used by NumPy, PyTorch and C, and the equivalent name here.
const ALIASES: [(&str, &str); 24] = [
    ("int8", "i8"),
    ("uint8", "u8"),
    ("byte", "u8"),
    ("int16", "i16"),
    ("short", "i16"),
    ("uint16", "u16"),
    ("int32", "i32"),
    ("int", "i32"),
    ("uint32", "u32"),
    ("int64", "i64"),
    ("long", "i64"),
    ("uint64", "u64"),
    ("float16", "f16"),
    ("half", "f16"),
    ("fp16", "f16"),
    ("bfloat16", "bf16"),
    ("float32", "f32"),
    ("float", "f32"),
    ("fp32", "f32"),
    ("float64", "f64"),
    ("double", "f64"),
    ("fp64", "f64"),
    ("complex64", "c64"),
    ("complex128", "c128"),
];

impl FromStr for Dtype {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let alias = ALIASES.iter().find(|(name, _)| *name == text);
        let name = alias.map_or(text, |&(_, ours)| ours);
        Self::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| Error::Dtype(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases_round_trip() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
            assert_eq!(serde_json::to_value(dtype).unwrap(), dtype.name());
        }
        for (alias, ours) in ALIASES {
            assert_eq!(alias.parse::<Dtype>().unwrap().name(), ours);
        }
        assert!("f33".parse::<Dtype>().unwrap_err().to_string().contains("bf16"));
    }
}
