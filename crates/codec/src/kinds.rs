//! The table of codecs.
//!
//! To add one: write its file or folder beside `bpc`, with its `mod` and `pub use` in `lib.rs`, and give it a row here.
//! Name its bound in `tests/contract.rs`, and give `docs/reference/format.md` a section with an example. The tests of this crate
//! go over [`CodecKind::ALL`] and over the examples, so they prove it without being told.

use std::{fmt, str::FromStr};

use buddy_core::{ENTRY_BYTES, Entry};
use serde::{Deserialize, Serialize};

use crate::{
    Bdi, Bf16, Bpc, Cpack, Delta64, EntryCodec, Error, Fp16, Fp32, Fpc, Fvc, Near64, Planes, Prefix, Rank,
    Scaled, Stride, Table, Zeros,
};

/// Makes the two enums and what goes over their variants. Each call of a codec must know its type, so that loops over
/// entries are compiled for it: neither a table of values nor a trait object does that.
macro_rules! codecs {
    ($d:tt $($(#[$doc:meta])* $kind:ident($codec:ty) = $name:literal, $train:expr;)*) => {
        /// The name of a codec.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum CodecKind {
            $($(#[$doc])* #[serde(rename = $name)] $kind,)*
        }

        /// A codec that is ready for one allocation. It serialises with its parameters.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "codec")]
        pub enum Codec {
            $($(#[$doc])* #[serde(rename = $name)] $kind($codec),)*
        }

        impl CodecKind {
            /// Every codec, in the order of tables: the paper's five, then ours.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// The name in tables, files and on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// Makes the codec ready for an allocation, of which `sample` holds entries. Only codecs that keep
            /// parameters per allocation look at it.
            pub fn train(self, sample: &[Entry]) -> Codec {
                let train: fn(&[Entry]) -> Codec = match self {
                    $(Self::$kind => |sample| Codec::$kind(($train)(sample)),)*
                };
                train(sample)
            }
        }

        impl Codec {
            /// Which codec it is.
            pub fn kind(&self) -> CodecKind {
                match self { $(Self::$kind(_) => CodecKind::$kind,)* }
            }
        }

        /// Calls the same code for whichever codec it is, with the codec's own type.
        macro_rules! each {
            ($d value:expr, $d codec:ident => $d call:expr) => {
                match $d value { $($crate::Codec::$kind($d codec) => $d call,)* }
            };
        }
    };
}

// The dollar is for the macro that this macro makes.
codecs! { $
    /// Bit-Plane Compression, the paper's choice.
    Bpc(Bpc) = "bpc", |_| Bpc;
    /// Base-Delta-Immediate, of the five that the paper compares.
    Bdi(Bdi) = "bdi", |_| Bdi;
    /// Frequent Pattern Compression, of the five that the paper compares.
    Fpc(Fpc) = "fpc", |_| Fpc;
    /// Frequent Value Compression, whose table is trained on the allocation.
    Fvc(Fvc) = "fvc", Fvc::train;
    /// C-Pack, of the five that the paper compares.
    Cpack(Cpack) = "cpack", |_| Cpack;
    /// Bit planes over 8-bit lanes.
    Planes8(Planes<8>) = "planes8", |_| Planes;
    /// Bit planes over 16-bit lanes.
    Planes16(Planes<16>) = "planes16", |_| Planes;
    /// Bit planes over 32-bit lanes.
    Planes32(Planes<32>) = "planes32", |_| Planes;
    /// Bit planes over 64-bit lanes.
    Planes64(Planes<64>) = "planes64", |_| Planes;
    /// A zero bitmap over 16-bit words.
    Zeros16(Zeros<16>) = "zeros16", |_| Zeros;
    /// A zero bitmap over 32-bit words.
    Zeros32(Zeros<32>) = "zeros32", |_| Zeros;
    /// A zero bitmap over 64-bit words.
    Zeros64(Zeros<64>) = "zeros64", |_| Zeros;
    /// bf16 values, with a window of exponents trained on the allocation.
    Bf16(Bf16) = "bf16", Bf16::train;
    /// Half-precision values, many of them zero.
    Fp16(Fp16) = "fp16", |_| Fp16::default();
    /// Single-precision values, many of them zero.
    Fp32(Fp32) = "fp32", |_| Fp32::default();
    /// Differences of 64-bit words.
    Delta64(Delta64) = "delta64", |_| Delta64;
    /// Places in a table of 32-bit values, trained on the allocation.
    Table32(Table<32>) = "table32", Table::train;
    /// Places in a table of 64-bit values, trained on the allocation.
    Table64(Table<16>) = "table64", Table::train;
    /// Differences of 32-bit words at a stride trained on the allocation.
    Stride32(Stride<32>) = "stride32", Stride::train;
    /// Differences of 64-bit words at a stride trained on the allocation.
    Stride64(Stride<16>) = "stride64", Stride::train;
    /// Doubles as counts of a unit trained on the allocation.
    Scaled64(Scaled) = "scaled64", Scaled::train;
    /// Prefix codes of the lengths of 32-bit words' differences, trained on the allocation.
    Prefix32(Prefix<32>) = "prefix32", Prefix::train;
    /// Prefix codes of the lengths of 64-bit words' differences, trained on the allocation.
    Prefix64(Prefix<16>) = "prefix64", Prefix::train;
    /// Prefix codes of places in a table of 32-bit values, trained on the allocation.
    Rank32(Rank<32>) = "rank32", Rank::train;
    /// Prefix codes of places in a table of 64-bit values, trained on the allocation.
    Rank64(Rank<16>) = "rank64", Rank::train;
    /// Doubles close to each other, laid out for kernels that work in compressed memory.
    Near64(Near64) = "near64", |_| Near64;
}
// The lint takes the export of a macro for an import.
#[allow(clippy::single_component_path_imports)]
pub(crate) use each;

impl CodecKind {
    /// The five that the paper compares.
    pub const PAPER: [Self; 5] = [Self::Bpc, Self::Bdi, Self::Fpc, Self::Fvc, Self::Cpack];

    /// Whether the codec keeps parameters per allocation, so that [`train`](Self::train) looks at its sample.
    pub fn learns(self) -> bool {
        self.train(&[[1; ENTRY_BYTES]]).parameter_bytes() > 0
    }
}

impl fmt::Display for CodecKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CodecKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found
            .ok_or_else(|| Error::Name { name: name.to_owned(), known: Self::ALL.map(Self::name).join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_learn_are_those_that_keep_parameters() {
        let learn: Vec<CodecKind> = CodecKind::ALL.into_iter().filter(|kind| kind.learns()).collect();
        use CodecKind::{
            Bf16, Fvc, Prefix32, Prefix64, Rank32, Rank64, Scaled64, Stride32, Stride64, Table32, Table64,
        };
        let all =
            [Fvc, Bf16, Table32, Table64, Stride32, Stride64, Scaled64, Prefix32, Prefix64, Rank32, Rank64];
        assert_eq!(learn, all);
    }
}
